package limit_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/luatomictest"
)

// 7 tokens a second are 604 800 a day: a caller that takes each as soon as it is there gets the last one at its time,
// to the microsecond.
func TestADayOfSevenASecondErrsByNoToken(t *testing.T) {
	t.Parallel()
	s, key := newClocked(t, luatomictest.Client(t)), "limit:{"+luatomictest.Namespace(t)+"}"
	seven := newRated(t, key, limit.Per(7, time.Second).Burst(604_800), time.Minute)
	passed, _ := s.allow(seven, 604_800)
	require.True(t, passed)
	const steps = 7 * 97 // of 1 to 1731 tokens, which end in any fraction of a us
	var taken int64
	for i := range int64(steps) {
		n := i*7919%1731 + 1
		taken += n
		there := start + (taken*1_000_000+6)/7
		s.now = there - 1
		passed, debt := s.allow(seven, n)
		require.False(t, passed, "token %d comes at %d us", taken, there)
		require.LessOrEqual(t, debt+n*seven.token-seven.room, seven.rate, "it is there 1 us later")
		s.now = there
		passed, _ = s.allow(seven, n)
		require.True(t, passed, "token %d is there at %d us", taken, there)
	}
	require.Greater(t, taken, int64(500_000))
}

// Every number of a script is an integer that Lua holds, up to the greatest rates that are accepted.
func TestTheGreatestRatesAreExact(t *testing.T) {
	t.Parallel()
	s, name := newClocked(t, luatomictest.Client(t)), luatomictest.Namespace(t)
	for i, r := range []limit.Rate{
		limit.Per(1_000_000, time.Second), limit.Per(999_983, time.Second),
		limit.Per(1, 366*24*time.Hour), limit.Per(1_000_003, 2*time.Hour).Burst(500_000),
		limit.Per(1, time.Microsecond).Burst(4_000_000_000_000_000), limit.Per(3, 7*time.Microsecond),
	} {
		of := newRated(t, "limit:{"+name+"}"+string(rune('a'+i)), r, time.Minute)
		require.Less(t, of.most, int64(1<<53)/2+1, "%v", r)
		burst := of.room / of.token
		passed, debt := s.allow(of, burst)
		require.True(t, passed, "%v", r)
		require.Equal(t, burst*of.token, debt)
		passed, again := s.allow(of, 1)
		require.False(t, passed, "%v: the burst is spent", r)
		require.Equal(t, debt, again)
		s.now++
		_, less := s.allow(of, 0)
		require.Equal(t, debt-of.rate, less, "%v: a us later", r)
	}
}

func TestRatesAreShownAsTheyAreMade(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10/1s burst 20", limit.Per(10, time.Second).Burst(20).String())
	require.Equal(t, "unlimited", limit.Unlimited().String())
	require.Equal(t, "blocked", limit.Blocked().String())
	require.Equal(t, "unset", limit.Rate{}.String())
}

// A changed rate counts from the next call on: what was spent takes as long to flow back as it did.
func TestAChangedRateCountsFromTheNextCallOn(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l, name := limit.New(c, nil), luatomictest.Namespace(t)
	d, err := l.Allow(ctx, 10, l.Rate(name, limit.Per(10, time.Hour)))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	d, err = l.Allow(ctx, 1, l.Rate(name, limit.Per(10, time.Hour)))
	require.NoError(t, err)
	require.False(t, d.Allowed)
	d, err = l.Allow(ctx, 1, l.Rate(name, limit.Per(20, time.Hour).Burst(40)))
	require.NoError(t, err)
	require.True(t, d.Allowed, "an hour is half of the new burst")
	require.EqualValues(t, 19, d.Remaining)
	d, err = l.Allow(ctx, 1, l.Rate(name, limit.Per(7, time.Hour)))
	require.NoError(t, err)
	require.False(t, d.Allowed, "an hour is all of this one")
}

// The rows of a call may have two rates for one key: each counts as if it came by itself.
func TestTwoRatesOfOneKeyInOneCall(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	alone, together := newClocked(t, c), newClocked(t, c)
	one, two := "limit:{"+name+"}1", "limit:{"+name+"}2"
	var want []any
	rates := []limit.Rate{limit.Per(7, time.Second), limit.Per(11, time.Second), limit.Per(7, time.Second)}
	var keys []string
	var args []any
	for _, r := range rates {
		a := newRated(t, one, r, time.Minute)
		passed, debt := alone.allow(a, 2)
		if !passed {
			debt = -1 - debt
		}
		want = append(want, debt)
		keys, args = append(keys, two), append(args, a.row(2)...)
	}
	require.Equal(t, want, together.run(&limitscript.AllowScript, keys, args...))
	require.Equal(t, c.Get(t.Context(), one).Val(), c.Get(t.Context(), two).Val())
}

func TestALongNameIsHashed(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, &limit.Options{Tag: luatomictest.Namespace(t)})
	for _, name := range []string{strings.Repeat("x", 129), "a{b}", "line\n", "#" + strings.Repeat("A", 43)} {
		of := l.Rate(name, limit.Per(1, time.Hour))
		require.Equal(t, name, of.Name())
		for _, want := range []bool{true, false} {
			d, err := l.Allow(ctx, 1, of)
			require.NoError(t, err)
			require.Equal(t, want, d.Allowed, "%.20q", name)
		}
	}
}

func TestUnlimitedAndBlockedSendNothing(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	require.NoError(t, c.Close())
	l := limit.New(c, &limit.Options{Tag: "t"})
	all, none := l.Rate("all", limit.Unlimited()), l.Rate("none", limit.Blocked())
	d, err := l.Allow(ctx, 1<<60, all)
	require.NoError(t, err)
	require.Equal(t, limit.Decision{Allowed: true, Remaining: math.MaxInt64}, d)
	require.NoError(t, l.Wait(ctx, 1<<60, all))
	r, err := l.Reserve(ctx, 5, all)
	require.NoError(t, err)
	require.NoError(t, r.Settle(ctx, 3))
	d, err = l.Allow(ctx, 1, all, none, l.Rate("some", limit.Per(1, time.Second)))
	require.NoError(t, err)
	require.Equal(t, limit.Decision{RetryAfter: limit.Forever, ResetAfter: limit.Forever, By: "none"}, d)
	require.ErrorIs(t, l.Wait(ctx, 1, none), limit.ErrWouldWait)
	require.ErrorContains(t, l.Wait(ctx, 1, none), `"none" is blocked`)
}
