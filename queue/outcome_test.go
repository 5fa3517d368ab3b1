package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// consumeOne runs the handler on the one job of a queue, once, and returns the event and what OnError got.
func consumeOne(t *testing.T, job queue.Job, h func(context.Context, *queue.Queue, *queue.Delivery) error) (
	*queue.Queue, queue.Event, []error) {
	t.Helper()
	var seen observed
	q, _ := lab.NewQueue(t, &queue.Options{Observe: seen.add})
	job.ID = "x"
	lab.Push(t, q, job)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var reported []error // by the goroutine that settles
	_, err := q.Consume(ctx, &queue.ConsumeOptions{OnError: func(err error) { reported = append(reported, err) }},
		func(ctx context.Context, d *queue.Delivery) error {
			defer stop()
			return h(ctx, q, d)
		})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, seen.events["x"], 1)
	return q, seen.events["x"][0], reported
}

// What a handler settles itself is reported and counted as what it asked for.
func TestJobSettledByHandIsReportedAsItWas(t *testing.T) {
	t.Parallel()
	failure := errors.New("smtp: 421")
	for name, c := range map[string]struct {
		settle  func(context.Context, *queue.Delivery) error
		outcome queue.Outcome
		retry   time.Duration
		counts  queue.DayCounts
	}{
		"nack": {func(ctx context.Context, d *queue.Delivery) error { return d.Nack(ctx, time.Minute, "smtp down") },
			queue.OutcomeRetried, time.Minute, queue.DayCounts{Failed: 1}},
		"return": {func(ctx context.Context, d *queue.Delivery) error { return d.Return(ctx, time.Minute) },
			queue.OutcomeRetried, time.Minute, queue.DayCounts{}},
		"bury": {func(ctx context.Context, d *queue.Delivery) error { return d.Bury(ctx, "smtp down") },
			queue.OutcomeDead, 0, queue.DayCounts{Failed: 1, Dead: 1}},
		"ack": {func(ctx context.Context, d *queue.Delivery) error { return d.Ack(ctx) },
			queue.OutcomeAcked, 0, queue.DayCounts{Processed: 1}},
	} {
		for _, returned := range []error{nil, failure} {
			t.Run(fmt.Sprint(name, ", then ", returned), func(t *testing.T) {
				t.Parallel()
				q, event, reported := consumeOne(t, queue.Job{},
					func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error {
						require.NoError(t, c.settle(ctx, d))
						return returned
					})
				require.Equal(t, c.outcome, event.Outcome)
				require.Equal(t, c.retry, event.Retry)
				require.Equal(t, returned, event.Err)
				if returned == nil {
					require.Empty(t, reported)
				} else {
					var failed *queue.JobError
					require.Len(t, reported, 1)
					require.ErrorAs(t, reported[0], &failed)
					require.Equal(t, c.outcome, failed.Outcome)
					require.Equal(t, c.retry, failed.Retry)
				}
				days, err := q.Counts(t.Context(), 2) // midnight may be now
				require.NoError(t, err)
				require.Equal(t, c.counts, queue.DayCounts{
					Processed: days[0].Processed + days[1].Processed, Failed: days[0].Failed + days[1].Failed,
					Dead: days[0].Dead + days[1].Dead,
				})
			})
		}
	}
}

// OnError reports what became of the job, not what was to become of it.
func TestOnErrorReportsWhatBecameOfTheJob(t *testing.T) {
	t.Parallel()
	_, event, reported := consumeOne(t, queue.Job{},
		func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error {
			_, err := q.Cancel(context.WithoutCancel(ctx), d.ID) // which ends ctx
			require.NoError(t, err)
			return errors.New("no")
		})
	require.Equal(t, queue.OutcomeCancelled, event.Outcome)
	require.Len(t, reported, 1)
	var failed *queue.JobError
	require.ErrorAs(t, reported[0], &failed)
	require.Equal(t, queue.OutcomeCancelled, failed.Outcome)
}

// A handler ended for a lost lease, by its own clock or of a lock, and its job was still held: no other worker had it.
func TestAJobThatIsRetriedWasNotAnotherWorkers(t *testing.T) {
	t.Parallel()
	_, event, reported := consumeOne(t, queue.Job{},
		func(_ context.Context, _ *queue.Queue, d *queue.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			return fmt.Errorf("save: %w", queue.ErrLeaseLost)
		})
	require.Equal(t, queue.OutcomeRetried, event.Outcome)
	require.ErrorContains(t, reported[0],
		"; the server still had its lease, so no other worker had it; it is delivered again in ")
}

// A delay without an end, as of a job that is parked, is the longest one, and not one in the past.
func TestALongRetryIsReportedAsLong(t *testing.T) {
	t.Parallel()
	_, event, _ := consumeOne(t, queue.Job{}, func(context.Context, *queue.Queue, *queue.Delivery) error {
		return queue.Snooze(math.MaxInt64)
	})
	require.Equal(t, queue.OutcomeRetried, event.Outcome)
	require.Greater(t, event.Retry, 290*365*24*time.Hour)
}

// fragile is an error whose nil pointer cannot be read; wrapping one has an Unwrap, too.
type (
	fragile  struct{ err error }
	wrapping struct{ fragile }
)

func (f *fragile) Error() string  { return f.err.Error() }
func (w *wrapping) Unwrap() error { return w.err }

// An error that panics where it is read is the failure of its job, and of no other.
func TestErrorThatCannotBeReadFailsItsJobAlone(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{"fragile": (*fragile)(nil), "wrapping": (*wrapping)(nil)} {
		q, event, reported := consumeOne(t, queue.Job{}, func(context.Context, *queue.Queue, *queue.Delivery) error {
			return broken
		})
		require.Equal(t, queue.OutcomeRetried, event.Outcome)
		require.ErrorContains(t, event.Err, "*queue_test."+name)
		require.Len(t, reported, 1)
		require.ErrorIs(t, reported[0], event.Err)
		found, err := q.Find(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, 1, found[0].Failures)
		require.Equal(t, event.Err.Error(), found[0].Reason)
	}
}

// A Backoff that panics is reported, and the default applies.
func TestBackoffThatPanicsIsReported(t *testing.T) {
	t.Parallel()
	var seen observed
	q, _ := lab.NewQueue(t, &queue.Options{Observe: seen.add})
	lab.Push(t, q, queue.Job{ID: "x"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	failure := errors.New("no")
	var reported []error
	_, err := q.Consume(ctx, &queue.ConsumeOptions{
		Backoff: func(int) time.Duration { panic("out of range") },
		OnError: func(err error) { reported = append(reported, err) },
	}, func(context.Context, *queue.Delivery) error {
		defer stop()
		return failure
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, reported, 2)
	require.ErrorContains(t, reported[0], "out of range")
	require.ErrorIs(t, reported[1], failure)
	require.Equal(t, time.Second, seen.events["x"][0].Retry)
}

// The text of ErrTimeout is there once, whether the handler returns it or not.
func TestTextOfATimeoutIsThereOnce(t *testing.T) {
	t.Parallel()
	for name, returned := range map[string]func(context.Context) error{
		"cause": context.Cause, "error": context.Context.Err,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, event, _ := consumeOne(t, queue.Job{Timeout: time.Millisecond},
				func(ctx context.Context, _ *queue.Queue, _ *queue.Delivery) error {
					<-ctx.Done()
					return returned(ctx)
				})
			require.ErrorIs(t, event.Err, queue.ErrTimeout)
			want := queue.ErrTimeout.Error()
			if name == "error" {
				want += ": context deadline exceeded"
			}
			require.EqualError(t, event.Err, want)
		})
	}
}

// Options.Dead bounds the dead set also where handlers bury their jobs themselves.
func TestJobsBuriedByHandlersAreTrimmed(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Dead: queue.DeadLimits{Jobs: 1}})
	lab.Push(t, q, lab.Bodies(3)...)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(ctx context.Context, d *queue.Delivery) error { return d.Bury(ctx, "no") })
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Dead: 3}, out)
	require.Equal(t, 1, lab.Must(q.Stats(t.Context())).Dead)
}
