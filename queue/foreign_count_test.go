package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/queue"
)

// foreignCounts are texts that no script of a queue writes as the number of failures of a job.
var foreignCounts = []string{
	"-1", "-9223372036854775808", "9223372036854775807", "99999999999999999999", "1e300", "inf", "nan", "text", "",
}

// foreignSizes are texts to which Redis cannot add the size of a body.
var foreignSizes = []string{"text", "", "1e3", "9223372036854775807", "99999999999999999999"}

// A foreign count of failures ends no consumer, and the job is given back beside the others.
func TestAForeignCountOfFailuresHoldsUpNoJob(t *testing.T) {
	t.Parallel()
	for _, count := range foreignCounts {
		t.Run(count, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			q, c := lab.NewQueue(t, nil)
			lab.Push(t, q, lab.Numbered(5, 0)...)
			require.NoError(t, c.HSet(ctx, lab.Key(q, "n"), "j2", count).Err())
			failed := make(map[string]bool)
			opts := &queue.ConsumeOptions{Drain: true, Concurrency: 1}
			opts.OnError = func(err error) {
				require.ErrorAs(t, err, new(*queue.JobError))
			}
			opts.Backoff = func(failures int) time.Duration {
				require.GreaterOrEqual(t, failures, 1)
				return 0
			}
			out, err := q.Consume(ctx, opts, func(_ context.Context, d *queue.Delivery) error {
				if failed[d.ID] || d.Attempt > 25 {
					return nil
				}
				failed[d.ID] = true
				return errors.New("failed")
			})
			require.NoError(t, err)
			require.Equal(t, 5, out.Acked+out.Dead)
		})
	}
}

// The default back-off is that of a first failure where a handler has changed the number of the attempt.
func TestTheDefaultBackoffHoldsForAnyAttempt(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	_, err := q.Consume(ctx, nil, func(_ context.Context, d *queue.Delivery) error {
		d.Attempt = -5
		stop()
		return errors.New("failed")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, stats(t, q).Scheduled)
}

// A reclaim takes back the jobs beside one whose count is foreign.
func TestReclaimWithAForeignCount(t *testing.T) {
	t.Parallel()
	for _, count := range foreignCounts {
		ctx := t.Context()
		q, c := lab.NewQueue(t, nil)
		lapsed(t, q, c, 3)
		require.NoError(t, c.HSet(ctx, lab.Key(q, "n"), "j1", count).Err())
		r, err := q.Reclaim(ctx)
		require.NoError(t, err, count)
		require.Equal(t, 3, r.Returned+r.Buried, count)
		require.Zero(t, stats(t, q).Leased, count)
	}
}

// lapsed gives the queue n jobs whose leases have ended.
func lapsed(t *testing.T, q *queue.Queue, c *redis.Client, n int) {
	t.Helper()
	lab.Push(t, q, lab.Numbered(n, 0)...)
	taken, err := q.Take(t.Context(), n)
	require.NoError(t, err)
	for _, d := range taken.Deliveries {
		require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
	}
}

// A size of the dead set that is no number stops no call that changes it.
func TestAForeignSizeOfTheDeadSetStopsNoCall(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, call := range map[string]func(q *queue.Queue) error{
		"reclaim": func(q *queue.Queue) error { _, err := q.Reclaim(ctx); return err },
		"bury":    func(q *queue.Queue) error { return lab.TakeOne(t, q).Bury(ctx, "bad") },
		"bury jobs": func(q *queue.Queue) error {
			_, err := q.BuryJobs(ctx, "bad", "ready")
			return err
		},
		"cancel":  func(q *queue.Queue) error { _, err := q.Cancel(ctx, "dead"); return err },
		"requeue": func(q *queue.Queue) error { _, err := q.Requeue(ctx, "dead"); return err },
		"trim":    func(q *queue.Queue) error { _, err := q.Trim(ctx, queue.DeadLimits{Jobs: -1, Age: 1}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range foreignSizes {
				q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
				lab.Push(t, q, queue.Job{ID: "dead", Body: []byte("dead")})
				require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "bad"))
				lapsed(t, q, c, 1)
				lab.Push(t, q, queue.Job{ID: "ready", Body: []byte("ready")})
				require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "dead_bytes", size).Err())
				require.NoError(t, call(q), size)
				_, err := q.Audit(ctx, true)
				require.NoError(t, err)
				report, err := q.Audit(ctx, false)
				require.NoError(t, err)
				require.True(t, report.OK(), "%q: %+v", size, report)
			}
		})
	}
}
