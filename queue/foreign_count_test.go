package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
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

// sizeChanges are the calls that change the size of the dead set, on a queue of sizedQueue.
var sizeChanges = map[string]func(ctx context.Context, q *queue.Queue) error{
	"reclaim": func(ctx context.Context, q *queue.Queue) error { _, err := q.Reclaim(ctx); return err },
	"bury":    func(ctx context.Context, q *queue.Queue) error { return buryFirst(ctx, q) },
	"bury jobs": func(ctx context.Context, q *queue.Queue) error {
		_, err := q.BuryJobs(ctx, "bad", "ready")
		return err
	},
	"cancel":  func(ctx context.Context, q *queue.Queue) error { _, err := q.Cancel(ctx, "dead"); return err },
	"requeue": func(ctx context.Context, q *queue.Queue) error { _, err := q.Requeue(ctx, "dead"); return err },
	"trim": func(ctx context.Context, q *queue.Queue) error {
		_, err := q.Trim(ctx, queue.DeadLimits{Jobs: -1, Age: time.Hour})
		return err
	},
}

func buryFirst(ctx context.Context, q *queue.Queue) error {
	taken, err := q.Take(ctx, 1)
	if err != nil {
		return err
	}
	return taken.Deliveries[0].Bury(ctx, "bad")
}

// sizedQueue gives the queue a job of four bytes that has long been dead, one whose lease has ended, and a ready one.
func sizedQueue(t *testing.T, q *queue.Queue, c *redis.Client) {
	t.Helper()
	lab.Push(t, q, queue.Job{ID: "dead", Body: []byte("dead")})
	require.NoError(t, lab.TakeOne(t, q).Bury(t.Context(), "bad"))
	require.NoError(t, c.ZAddXX(t.Context(), lab.Key(q, "d"), redis.Z{Score: 1, Member: "dead"}).Err())
	lapsed(t, q, c, 1)
	lab.Push(t, q, queue.Job{ID: "ready", Body: []byte("ready")})
}

// A size of the dead set that is no number stops no call that changes it, and an audit mends it. A right size stays so.
func TestAForeignSizeOfTheDeadSetStopsNoCall(t *testing.T) {
	t.Parallel()
	const right = "4"
	for name, call := range sizeChanges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range append(foreignSizes, right) {
				ctx := t.Context()
				q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
				sizedQueue(t, q, c)
				require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "dead_bytes", size).Err())
				require.NoError(t, call(ctx, q), size)
				if size != right {
					_, err := q.Audit(ctx, true)
					require.NoError(t, err)
				}
				report, err := q.Audit(ctx, false)
				require.NoError(t, err)
				require.True(t, report.OK(), "%q: %+v", size, report)
			}
		})
	}
}

// A user who may not add to the size gets an error, not a size that is wrong.
func TestASizeOfTheDeadSetThatMayNotChangeIsAnError(t *testing.T) {
	t.Parallel()
	server, ctx := luatomictest.StartServer(t), t.Context()
	admin := server.Client()
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-hincrby").Err())
	app := server.Client(func(o *redis.Options) { o.Username, o.Password = "app", "pw" })
	for name, call := range sizeChanges {
		of := func(c *redis.Client) *queue.Queue {
			return lab.Must(queue.New(c, name, &queue.Options{MaxFailures: 1}))
		}
		sizedQueue(t, of(admin), admin)
		require.ErrorIs(t, call(ctx, of(app)), lua.ErrExecutedInPart, name)
		require.Equal(t, "4", admin.HGet(ctx, lab.Key(of(admin), "c"), "dead_bytes").Val(), name)
	}
}

// A limit that is no number is refused by each call that reads it, as a later layout is, until a call sets another.
func TestAForeignLimitIsRefusedByName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "limit", "many").Err())
	before := lab.Dump(ctx, t, c, q.Name())
	for what, call := range map[string]func() error{
		"push":  func() error { _, err := q.Push(ctx, queue.Job{}); return err },
		"stats": func() error { _, err := q.Stats(ctx); return err },
		"pause": func() error { return q.Pause(ctx) },
	} {
		require.ErrorIs(t, call(), queue.ErrLayout, what)
	}
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
	require.NoError(t, q.SetLimit(ctx, 1))
	require.Equal(t, 1, stats(t, q).Limit)
}
