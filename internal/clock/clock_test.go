package clock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/clock"
)

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.True(t, clock.Sleep(ctx, 400*time.Millisecond))
		require.Equal(t, 400*time.Millisecond, time.Since(start))
		require.False(t, clock.Sleep(ctx, time.Hour))
		require.Equal(t, time.Second, time.Since(start))
		require.False(t, clock.Sleep(ctx, time.Hour), "the context has ended before")
		require.True(t, clock.Sleep(ctx, 0))
		require.True(t, clock.Sleep(ctx, -time.Second))
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestBackoffDoublesUpToItsLast(t *testing.T) {
	b := clock.Backoff{First: 10 * time.Millisecond, Last: 35 * time.Millisecond}
	for _, want := range []time.Duration{10, 20, 35, 35} {
		require.Equal(t, want*time.Millisecond, b.Next())
	}
	b.Reset()
	require.Equal(t, 10*time.Millisecond, b.Next())
}

func TestCeilMilliRoundsUpAndDoesNotOverflow(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: 0, -time.Millisecond: -1,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		require.Equal(t, want, clock.CeilMilli(d), d)
	}
}

func TestRestIsFourTimesTheWorkAndBounded(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: 4 * time.Millisecond, 2 * time.Second: 5 * time.Second, math.MaxInt64: 5 * time.Second,
	} {
		require.Equal(t, want, clock.RestAfter(took), took)
	}
}
