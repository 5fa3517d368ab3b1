package lua_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
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

// A server that hangs after the error is asked for its details all the same. go-redis waits for the answer for a
// minute. Neither a call nor a batch does.
func TestDetailsOfAnErrorAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	asked, hang := make(chan struct{}, 10), make(chan struct{})
	fake := startFake(t, func(verb string, _ int) string {
		if verb == "TYPE" {
			asked <- struct{}{}
			<-hang
		}
		return "-WRONGTYPE Operation against a key holding the wrong kind of value"
	})
	defer close(hang)
	client := fake.client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	s := newScript("count", countSource, lua.RetryNever)
	s.Keys = []lua.Key{{Name: "counter", Type: "string"}}
	call := func(ctx context.Context) error {
		_, err := runInt(ctx, client, s, "k")
		return err
	}
	batch := func(ctx context.Context) error {
		b := lua.NewBatch(client)
		lua.Queue(b, newCall(s, "k"), decodeInt)
		return b.Exec(ctx)
	}
	for name, do := range map[string]func(context.Context) error{"call": call, "batch": batch} {
		start := time.Now()
		require.ErrorIs(t, do(t.Context()), lua.ErrWrongType, name)
		<-asked
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-asked
			leave()
		}()
		require.ErrorIs(t, do(ctx), lua.ErrWrongType, name)
		require.Less(t, time.Since(start), 30*time.Second, name)
	}
}

// limiter refuses so many requests.
type limiter struct{ refusals atomic.Int64 }

func (l *limiter) Allow() error {
	if l.refusals.Add(-1) >= 0 {
		return errors.New("the circuit is open")
	}
	return nil
}

func (*limiter) ReportResult(error) {}

func TestTheRefusalOfALimiterIsTemporary(t *testing.T) {
	t.Parallel()
	l := &limiter{}
	client := luatomictest.StartServer(t).Client(func(o *redis.Options) { o.Limiter = l })
	s := coldCount(t, lua.RetryNever)
	l.refusals.Store(3)
	n, err := runInt(within(t, time.Minute), client, s, "k")
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	l.refusals.Store(1 << 30)
	_, err = runInt(within(t, 100*time.Millisecond), client, s, "k")
	requireOutcome(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "the circuit is open")
}
