package queue_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A kind that only another version serves, and a body that only another version can decode.
func TestADeclinedJobRunsElsewhereWithoutAFailure(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	ctx := t.Context()
	_, err := queue.NewKind[string]("text").Push(ctx, q, "new")
	require.NoError(t, err)
	_, err = queue.NewKind[string]("later").Push(ctx, q, "new")
	require.NoError(t, err)
	older := &queue.Mux{}
	queue.NewKind[int]("text").Serve(older, func(context.Context, int, *queue.Delivery) error { return nil })
	working, stop := context.WithCancel(ctx)
	defer stop()
	declined := make(chan *queue.JobError, 10)
	done := make(chan queue.Consumed, 1)
	go func() {
		out, _ := q.Consume(working, &queue.ConsumeOptions{OnError: func(err error) {
			var e *queue.JobError
			if errors.As(err, &e) {
				declined <- e
			}
		}}, older.Handle)
		done <- out
	}()
	for range 2 {
		e := lab.Soon(t, 20*time.Second, "a job is declined", declined)
		require.ErrorIs(t, e, queue.ErrDeclined)
		require.Equal(t, 1, e.Declined)
		require.Equal(t, queue.OutcomeRetried, e.Outcome)
	}
	stop()
	require.Zero(t, lab.Soon(t, 20*time.Second, "the end", done).Dead)
	var attempts atomic.Int32
	newer := &queue.Mux{Other: func(_ context.Context, d *queue.Delivery) error {
		attempts.Add(int32(d.Attempt))
		return nil
	}}
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true}, newer.Handle)
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 2}, out)
	require.EqualValues(t, 2, attempts.Load(), "no failure is counted")
}

// A job that nobody serves ends in the dead set, unchanged and with the reason, even if it may not fail once.
func TestAJobDeclinedForTooLongIsDead(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	ctx := t.Context()
	_, err := q.Push(ctx, queue.Job{ID: "a", Body: []byte("body"), Kind: "none", MaxFailures: 1})
	require.NoError(t, err)
	var reported atomic.Int32
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Declined: 50 * time.Millisecond,
		OnError: func(error) { reported.Add(1) }}, (&queue.Mux{}).Handle)
	require.NoError(t, err)
	require.Equal(t, 1, out.Dead)
	require.Positive(t, out.Retried)
	require.EqualValues(t, 2, reported.Load(), "the first time, and the death")
	found := lab.Must(q.Find(ctx, "a"))[0]
	require.Equal(t, queue.Dead, found.State)
	require.Equal(t, "body", string(found.Body))
	require.Zero(t, found.Failures)
	require.Regexp(t, regexp.MustCompile(`^declined since \d{13}: declined: .*"none"`), found.Reason)
}

// Work that has begun ends the row: the patience counts from the next decline.
func TestABegunJobIsNoLongerDeclined(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]error{
		"snoozed": queue.Snooze(time.Millisecond), "failed": errors.New("no"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			ctx := t.Context()
			_, err := q.Push(ctx, queue.Job{ID: "a"})
			require.NoError(t, err)
			var runs []string
			_, err = q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Declined: time.Hour,
				Backoff: func(int) time.Duration { return time.Millisecond }},
				func(ctx context.Context, d *queue.Delivery) error {
					reason := lab.Must(q.Find(ctx, "a"))[0].Reason
					runs = append(runs, reason)
					switch len(runs) {
					case 1:
						return queue.Decline(errors.New("not here"))
					case 2:
						return begun
					}
					return nil
				})
			require.NoError(t, err)
			require.Len(t, runs, 3)
			require.True(t, strings.HasPrefix(runs[1], "declined since "), runs[1])
			require.False(t, strings.HasPrefix(runs[2], "declined since "), runs[2])
		})
	}
}

// declineOnce pushes a job that was declined since a time before or after now, and declines it once more.
func declineOnce(t *testing.T, age time.Duration) (found queue.Found, now time.Time) {
	t.Helper()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a"})
	since := lab.Must(q.Stats(t.Context())).Now.Add(-age).UnixMilli()
	c.HSet(t.Context(), lab.Key(q, "n"), "a\n", fmt.Sprintf("declined since %d: before", since))
	ctx, stop := context.WithCancel(t.Context())
	_, err := q.Consume(ctx, nil, func(context.Context, *queue.Delivery) error {
		stop()
		return queue.Decline(errors.New("not here"))
	})
	require.ErrorIs(t, err, context.Canceled)
	return lab.Must(q.Find(t.Context(), "a"))[0], lab.Must(q.Stats(t.Context())).Now
}

// A job that nobody has served for hours is offered to the fleet each minute.
func TestADeclinedJobIsOfferedEachMinute(t *testing.T) {
	t.Parallel()
	found, now := declineOnce(t, 2*time.Hour)
	require.Equal(t, queue.Scheduled, found.State)
	require.WithinRange(t, found.At, now.Add(time.Second), now.Add(time.Minute+time.Second))
}

// The server's clock was set back after the first decline: the row begins now, and not in an hour.
func TestADeclineAheadOfTheClockCountsFromNow(t *testing.T) {
	t.Parallel()
	found, now := declineOnce(t, -time.Hour)
	var since int64
	_, err := fmt.Sscanf(found.Reason, "declined since %d:", &since)
	require.NoError(t, err, found.Reason)
	require.LessOrEqual(t, since, now.UnixMilli())
}

func TestADeclineOfACancelledJobDeletesIt(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a"})
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(ctx context.Context, d *queue.Delivery) error {
			if _, err := q.Cancel(ctx, d.ID); err != nil {
				return err
			}
			return queue.Decline(errors.New("not here"))
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Cancelled: 1}, out)
	require.Zero(t, c.Exists(t.Context(), lab.Key(q, "n"), lab.Key(q, "b")).Val())
}

// The text of a failure is the handler's, so it says nothing of a decline.
func TestAFailureThatReadsLikeADeclineIsNone(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a"})
	ctx, stop := context.WithCancel(t.Context())
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Backoff: func(int) time.Duration { return time.Millisecond }},
		func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("declined since 1: of old")
			}
			stop()
			return queue.Decline(errors.New("not here"))
		})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, queue.Consumed{Retried: 2}, out)
}

// A handler that stops because the program's context has ended has not failed; its own end is a failure.
func TestAnErrorOfTheEndedContextIsNoFailure(t *testing.T) {
	t.Parallel()
	cause := errors.New("shutdown")
	for name, c := range map[string]struct {
		err      error
		failures int
	}{
		"cancelled":              {fmt.Errorf("query: %w", context.Canceled), 0},
		"the cause":              {fmt.Errorf("query: %w", cause), 0},
		"its own error":          {errors.New("no"), 1},
		"its own time-out":       {fmt.Errorf("%w: %w", queue.ErrTimeout, context.Canceled), 1},
		"discarded":              {queue.Discard(context.Canceled), 1},
		"its own deadline ended": {context.DeadlineExceeded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			_, err := q.Push(t.Context(), queue.Job{ID: "a", MaxFailures: 1})
			require.NoError(t, err)
			ctx, stop := context.WithCancelCause(t.Context())
			_, err = q.Consume(ctx, nil, func(context.Context, *queue.Delivery) error {
				stop(cause)
				<-ctx.Done()
				return c.err
			})
			require.ErrorIs(t, err, cause)
			found := lab.Must(q.Find(t.Context(), "a"))[0]
			require.Equal(t, c.failures, found.Failures)
			require.Equal(t, c.failures == 0, found.State == queue.Ready, found.State)
		})
	}
}
