package lua_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
)

func TestRepeatsEndWithTheContext(t *testing.T) {
	t.Parallel()
	for name, retry := range retries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fake := startFake(t, func(_ string, nth int) string {
				if nth == 8 { // in the delay after it, of at least 64 ms
					time.AfterFunc(20*time.Millisecond, cancel)
				}
				return "-LOADING Redis is loading the dataset in memory"
			})
			// The attempt that is under way at the end has its answer.
			_, err := runInt(ctx, lua.Direct(fake.client(t)), newScript("count", countSource, retry), "k")
			e := requireOutcome(t, err, lua.ErrNotExecuted)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, "LOADING", e.Code)
			require.Greater(t, e.Tries, 3)
			require.Contains(t, err.Error(), "LOADING")
		})
	}
}

func TestRepeatsEndWithTheDeadline(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(string, int) string { return "-BUSY Redis is busy running a script." })
	client := fake.client(t)
	var err error
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = runInt(ctx, client, newScript("count", countSource, lua.RetryNever), "k")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if !errors.Is(err, lua.ErrOutcomeUnknown) { // else an attempt was on its way at the deadline
			break
		}
	}
	requireOutcome(t, err, lua.ErrNotExecuted)
}

func TestWithoutDeadlinePatienceIsBounded(t *testing.T) {
	t.Parallel()
	require.True(t, lua.PassAfter(t.Context(), lua.RetryBudget/2), "retry budget is left")
	require.False(t, lua.PassAfter(t.Context(), lua.RetryBudget), "no retry budget is left")
	require.True(t, lua.PassAfter(within(t, time.Minute), 2*lua.RetryBudget),
		"a deadline is what counts where there is one")
}

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := runInt(ctx, untouched(t), newScript("count", countSource, lua.RetrySafe), "k")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorIs(t, err, context.Canceled)
}
