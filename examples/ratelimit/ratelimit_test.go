package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/examples/ratelimit"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

func TestABurstThenTheRate(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	spend := func(n int64) ratelimit.AllowResult {
		out, err := ratelimit.Allow(t.Context(), client,
			ratelimit.AllowParams{Name: name, N: n, Burst: 10, Period: time.Hour})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, ratelimit.AllowResult{Allowed: true, Left: 10}, spend(0), "reading spends nothing")
	require.Equal(t, ratelimit.AllowResult{Allowed: true, Left: 4}, spend(6))
	out := spend(5)
	require.False(t, out.Allowed)
	require.EqualValues(t, 4, out.Left, "what is refused is not spent")
	require.InDelta(t, (6 * time.Minute).Seconds(), out.RetryAfter.Seconds(), 60,
		"a tenth of an hour for the one that is missing")
	require.True(t, spend(4).Allowed)
	require.False(t, spend(1).Allowed)
	_, err := ratelimit.Allow(t.Context(), client,
		ratelimit.AllowParams{Name: name, N: 11, Burst: 10, Period: time.Hour})
	require.ErrorIs(t, err, ratelimit.ErrAllowTooMuch)
}

// After the whole period nothing is stored.
func TestAWholeLimitHasNoKey(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	p := ratelimit.AllowParams{Name: name, N: 3, Burst: 3, Period: 50 * time.Millisecond}
	out, err := ratelimit.Allow(t.Context(), client, p)
	require.NoError(t, err)
	require.True(t, out.Allowed)
	luatomictest.Eventually(t, 10*time.Second, "the limit is whole", func() bool {
		return client.Exists(t.Context(), "limit:{"+name+"}").Val() == 0
	})
}

// A shorter period takes effect at once: what was spent under the longer one leaves nothing, and no debt.
func TestAShorterPeriodLeavesNoDebt(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	p := ratelimit.AllowParams{Name: name, N: 10, Burst: 10, Period: time.Hour}
	out, err := ratelimit.Allow(t.Context(), client, p)
	require.NoError(t, err)
	require.True(t, out.Allowed)
	for _, p.N = range []int64{0, 1} {
		p.Period = time.Minute
		out, err = ratelimit.Allow(t.Context(), client, p)
		require.NoError(t, err)
		require.False(t, out.Allowed)
		require.Zero(t, out.Left)
	}
}
