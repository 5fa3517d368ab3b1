package limit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Processes that take chunks pass no more together than the limit, and few calls are sent.
func TestLeasedTokensArePassedOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	name := luatomictest.Namespace(t)
	rate := limit.Per(100_000, 10_000*time.Second).Burst(5000) // 10 a second
	var passed atomic.Int64
	var callers sync.WaitGroup
	began := time.Now()
	for range 4 {
		l := limit.New(through(t, proxy), nil)
		fast := l.Leased(l.Rate(name, rate), &limit.LeasedOptions{Chunk: 100})
		for range 4 {
			callers.Go(func() {
				for range 2000 {
					ok, err := fast.Allow(ctx, 1)
					require.NoError(t, err)
					if ok {
						passed.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	most := 5000 + int64(time.Since(began)/(100*time.Millisecond)) + 1
	require.LessOrEqual(t, passed.Load(), most)
	require.Greater(t, passed.Load(), most-4*100-int64(time.Since(began)/(25*time.Millisecond))-100)
	require.Less(t, proxy.Executed(lab.Sent(&limitscript.ReserveScript)), 400)
}

// Close gives the rest of the chunk back.
func TestCloseOfALeasedGivesTheRestBack(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, nil)
	of := l.Rate(luatomictest.Namespace(t), limit.Per(10, time.Second).Burst(10_000))
	_, err := l.Allow(ctx, 9000, of) // what is taken lasts
	require.NoError(t, err)
	fast := l.Leased(of, &limit.LeasedOptions{Chunk: 500})
	for range 3 {
		ok, err := fast.Allow(ctx, 100)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.InDelta(t, 500, left(t, l, of), 100)
	require.NoError(t, fast.Close(ctx))
	require.InDelta(t, 700, left(t, l, of), 100)
	require.NoError(t, fast.Close(ctx))
	require.InDelta(t, 700, left(t, l, of), 100)
	ok, err := fast.Allow(ctx, 600)
	require.NoError(t, err)
	require.True(t, ok, "more than a chunk")
	ok, err = fast.Allow(ctx, 600)
	require.NoError(t, err)
	require.False(t, ok)
}

// A token that has flowed back in Redis since it was taken can be spent there again: it ends here.
func TestALeasedTokenEndsAsItFlowsBack(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, nil)
	of := l.Rate(luatomictest.Namespace(t), limit.Per(20, time.Second))
	luatomictest.Eventually(t, time.Minute, "a try that took less time than a token takes", func() bool {
		require.NoError(t, l.Reset(ctx, of))
		fast := l.Leased(of, &limit.LeasedOptions{Chunk: 10})
		ok, err := fast.Allow(ctx, 1)
		require.NoError(t, err)
		require.True(t, ok)
		luatomictest.Eventually(t, 20*time.Second, "all has flowed back", func() bool { return left(t, l, of) == 20 })
		began := time.Now()
		d, err := l.Allow(ctx, 20, of)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		ok, err = fast.Allow(ctx, 1)
		require.NoError(t, err)
		if time.Since(began) > 40*time.Millisecond {
			return false
		}
		require.False(t, ok, "nine of the chunk were left")
		return true
	})
}

func TestLeasedRefusesWhatSavesNothing(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, nil)
	_, err := l.Leased(l.Rate("slow", limit.Per(9, time.Second)), nil).Allow(ctx, 1)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	require.ErrorContains(t, err, "saves no round trip")
	_, err = l.Leased(l.Rate("x", limit.Per(10, time.Second)), &limit.LeasedOptions{Chunk: 11}).Allow(ctx, 1)
	require.ErrorContains(t, err, "Chunk: 11")
	_, err = l.Leased(l.Rate("x", limit.Per(10, time.Second)), nil).Allow(ctx, 11)
	require.ErrorContains(t, err, "the burst")
	_, err = l.Leased(nil, nil).Allow(ctx, 1)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	ok, err := l.Leased(l.Rate("x", limit.Blocked()), nil).Allow(ctx, 1)
	require.NoError(t, err)
	require.False(t, ok)
	ok, err = l.Leased(l.Rate("x", limit.Unlimited()), nil).Allow(ctx, 1)
	require.NoError(t, err)
	require.True(t, ok)
}

func BenchmarkLeased(b *testing.B) {
	l := limit.New(luatomictest.Client(b), nil)
	fast := l.Leased(l.Rate("bench:leased", limit.Per(1_000_000, time.Second).Burst(1_000_000_000)),
		&limit.LeasedOptions{Chunk: 50_000})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := fast.Allow(b.Context(), 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	_ = l.Reset(b.Context(), l.Rate("bench:leased", limit.Per(1_000_000, time.Second)))
}
