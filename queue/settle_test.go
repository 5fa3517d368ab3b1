package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestConsumeRetriesAndBuries(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 3})
	_, err := q.Push(t.Context(), queue.Job{ID: "bad"}, queue.Job{ID: "panics"}, queue.Job{ID: "good"})
	require.NoError(t, err)
	var mu sync.Mutex
	attempts := make(map[string][]int)
	var failures atomic.Int64
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Backoff: noWait,
		OnError: func(error) { failures.Add(1) }},
		func(_ context.Context, d *queue.Delivery) error {
			mu.Lock()
			attempts[d.ID] = append(attempts[d.ID], d.Attempt)
			mu.Unlock()
			switch d.ID {
			case "bad":
				return errors.New("no")
			case "panics":
				panic("oh")
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 4, Dead: 2}, out)
	require.Equal(t, []int{1, 2, 3}, attempts["bad"])
	require.Equal(t, []int{1, 2, 3}, attempts["panics"])
	require.Equal(t, int64(6), failures.Load())
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, stats.Dead)
}

// The error of a handler that panicked has the stack, and so has the text of its JobError. A dead job keeps the text of
// the error alone.
func TestAPanicHasItsStack(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
	lab.Push(t, q, queue.Job{ID: "panics"})
	var failed error
	_, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, OnError: func(err error) { failed = err }},
		func(context.Context, *queue.Delivery) error { panic("oh") })
	require.NoError(t, err)
	var panicked *lua.PanicError
	require.ErrorAs(t, failed, &panicked)
	require.Equal(t, "oh", panicked.Value)
	require.Contains(t, string(panicked.Stack), "TestAPanicHasItsStack")
	require.Regexp(t, `job "panics", attempt 1: luatomic: the handler panicked: oh; it is dead\n(?s:.*)settle_test.go`,
		failed.Error())
	found := lab.Must(q.Find(t.Context(), "panics"))
	require.Equal(t, "luatomic: the handler panicked: oh", found[0].Reason)
}

// A nil error in Discard or a negative back-off affects the job alone, not the process.
func TestInvalidResultsOfHandlers(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{ID: "discarded"}, queue.Job{ID: "negative"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var tries atomic.Int32
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true,
		Backoff: func(int) time.Duration { return -time.Second }},
		func(_ context.Context, d *queue.Delivery) error {
			switch {
			case d.ID == "discarded":
				return queue.Discard(nil)
			case tries.Add(1) == 1:
				return errors.New("again")
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 1, Dead: 1}, out)
}

func TestSnoozeAndDiscard(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "snoozes"}, queue.Job{ID: "discarded"})
	runs := 0
	var reported []error // by the goroutine that settles
	onError := func(err error) { reported = append(reported, err) }
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: 1, OnError: onError},
		func(_ context.Context, d *queue.Delivery) error {
			if d.ID == "discarded" {
				return queue.Discard(errors.New("bad address"))
			}
			require.Equal(t, 1, d.Attempt, "a snooze counts as no failure")
			if runs++; runs < 3 {
				return queue.Snooze(time.Millisecond)
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 2, Dead: 1}, out)
	require.Len(t, reported, 1, "a snooze is no error: %v", reported)
	require.ErrorContains(t, reported[0], "bad address")
	dead, err := q.Peek(t.Context(), queue.Dead, 0, 1)
	require.NoError(t, err)
	require.Contains(t, dead[0].Reason, "bad address")
}

// What gives up after a number of snoozes discards the error of the last one.
func TestADiscardedSnoozeIsDead(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "gives-up"})
	var reported []error // by the goroutine that settles
	onError := func(err error) { reported = append(reported, err) }
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, OnError: onError},
		func(context.Context, *queue.Delivery) error {
			snoozed := fmt.Errorf("no turn: %w", queue.Snooze(time.Millisecond))
			err := fmt.Errorf("gave up: %w", queue.Discard(snoozed))
			require.NotErrorIs(t, err, queue.ErrSnoozed)
			return err
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Dead: 1}, out)
	require.Len(t, reported, 1)
	require.ErrorContains(t, reported[0], "no turn")
}

// It says no time, and counts no failure either.
func TestErrSnoozedItselfWaitsForTheBackoff(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
	lab.Push(t, q, queue.Job{ID: "snoozes"})
	runs := 0
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{
		Drain: true, Concurrency: 1, OnError: func(err error) { t.Error(err) },
		Backoff: func(int) time.Duration { return 20 * time.Millisecond },
	}, func(_ context.Context, d *queue.Delivery) error {
		require.Equal(t, 1, d.Attempt, "a snooze counts as no failure")
		if runs++; runs < 3 {
			return queue.ErrSnoozed
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 2}, out)
}

func TestConsumeTrimsTheDead(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Dead: queue.DeadLimits{Jobs: 2}})
	lab.Push(t, q, lab.Bodies(5)...)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(context.Context, *queue.Delivery) error {
			return queue.Discard(errors.New("no"))
		})
	require.NoError(t, err)
	require.Equal(t, 5, out.Dead)
	require.Equal(t, 2, stats(t, q).Dead)
}

// A job that is returned without a failure and without a delay is where it was, with the time it had. Several keep
// their order.
func TestReturnedJobsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	pushed := lab.Push(t, q, lab.Numbered(5, 0)...)
	luatomictest.Eventually(t, 5*time.Second, "the clock moves", func() bool {
		return stats(t, q).Now.After(pushed.Now)
	})
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	require.NoError(t, q.Return(ctx, 0, taken.Deliveries...))
	again, err := q.Take(ctx, 5)
	require.NoError(t, err)
	require.Len(t, again.Deliveries, 5)
	for i, d := range again.Deliveries {
		require.Equal(t, pushed.IDs[i], d.ID)
		require.Equal(t, pushed.Now, d.EnqueuedAt)
		require.Equal(t, 1, d.Attempt)
	}
}
