package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The request of a take can be on its way for longer than its job has left when the server runs it. The job has not
// expired then, and stays.
func TestSlowTakeDeletesNoJobBeforeItExpires(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(context.Context, *queue.Queue) error{
		"Take": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Take(ctx, 1)
			return err
		},
		"Consume": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true},
				func(context.Context, *queue.Delivery) error { return queue.Snooze(time.Hour) })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := luatomictest.Client(t)
			q, _ := lab.NewQueue(t, nil)
			const life, left = 500 * time.Millisecond, 200 * time.Millisecond
			expires := c.Time(t.Context()).Val().Add(life)
			lab.Push(t, q, queue.Job{ID: "x", ExpiresAt: expires})
			slow := luatomictest.Client(t)
			slow.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.TakeScript), Do: func(run func() error) error {
				time.Sleep(time.Until(expires) - left)
				return run()
			}})
			ctx, cancel := context.WithTimeout(t.Context(), life) // a drain waits for the job that snoozes
			defer cancel()
			of, err := queue.New(slow, q.Name(), nil)
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- take(ctx, of) }()
			for ; c.Time(t.Context()).Val().Before(expires); time.Sleep(5 * time.Millisecond) {
				found, err := q.Find(t.Context(), "x")
				require.NoError(t, err)
				if found[0].State == queue.Absent {
					require.False(t, c.Time(t.Context()).Val().Before(expires), "deleted before its time")
				}
			}
			cancel()
			<-done
		})
	}
}

// An expired job that could not be deleted is still there: its delivery ends as lost, and the one that deletes it as
// expired.
func TestExpiredJobThatCannotBeDeletedIsNotReportedAsDeleted(t *testing.T) {
	t.Parallel()
	var seen observed
	q, c := lab.NewQueue(t, &queue.Options{Observe: seen.add, Lease: 500 * time.Millisecond})
	lab.Push(t, q, queue.Job{ID: "x", ExpiresAt: time.Now().Add(-time.Hour)})
	var refused atomic.Bool
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.AckScript), Do: func(run func() error) error {
		if !refused.Swap(true) {
			return redis.ErrClosed
		}
		return run()
	}})
	drain := func() (queue.Consumed, error) {
		return q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
			func(context.Context, *queue.Delivery) error { return nil })
	}
	_, err := drain()
	require.ErrorIs(t, err, redis.ErrClosed)
	out, err := drain()
	require.NoError(t, err)
	out.Retried = 0 // a delivery whose lease ends before its turn, on a machine that is busy, gives the job back
	require.Equal(t, queue.Consumed{Expired: 1}, out)
	outcomes := seen.outcomes("x")
	last := len(outcomes) - 1
	require.Equal(t, queue.OutcomeLost, outcomes[0])
	require.Equal(t, queue.OutcomeExpired, outcomes[last])
	require.NotContains(t, outcomes[:last], queue.OutcomeExpired)
	require.NoError(t, seen.events["x"][0].Err)
}
