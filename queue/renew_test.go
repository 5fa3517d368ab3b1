package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A handler may run for longer than the lease: the consumer extends it.
func TestConsumeRenewsLeases(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	const lease = 9 * time.Second // an extend may come some seconds late
	q, c := lab.NewQueue(t, &queue.Options{Lease: lease})
	_, err := q.Push(t.Context(), lab.Bodies(1)...)
	require.NoError(t, err)
	var runs atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := make(chan error, 1)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: 1},
		func(work context.Context, d *queue.Delivery) error {
			runs.Add(1)
			first := d.Deadline()
			go func() { // would reclaim a lease that ended
				_, err := q.Consume(ctx, &queue.ConsumeOptions{Idle: 10 * time.Millisecond},
					func(context.Context, *queue.Delivery) error {
						runs.Add(1)
						return nil
					})
				other <- err
			}()
			luatomictest.Eventually(t, 30*time.Second, "more than the lease passes", func() bool {
				return c.Time(t.Context()).Val().After(first.Add(500 * time.Millisecond))
			})
			return work.Err()
		})
	cancel()
	require.ErrorIs(t, <-other, context.Canceled)
	require.NoError(t, err)
	require.Equal(t, int64(1), runs.Load())
	require.Equal(t, 1, out.Acked)
}

// The context of a handler ends when its lease is lost, and the loss is reported once, after that.
func TestConsumeCancelsTheHandlerOfALostLease(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	_, err := q.Push(t.Context(), lab.Bodies(1)...)
	require.NoError(t, err)
	var ended atomic.Bool // the context of the handler, at each report
	reported := make(chan bool, 100)
	begun := make(chan context.Context, 1)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = q.Consume(ctx, &queue.ConsumeOptions{OnError: func(error) {
		work := <-begun
		begun <- work
		reported <- work.Err() != nil
	}}, func(work context.Context, d *queue.Delivery) error {
		defer cancel()
		begun <- work
		require.NoError(t, c.ZIncrBy(t.Context(), lab.Key(q, "l"), 3_600_000, d.ID).Err())
		luatomictest.Eventually(t, 20*time.Second, "a renewal finds the loss", func() bool {
			require.NoError(t, c.Publish(t.Context(), lab.Key(q, "l"), d.ID).Err()) // as a Cancel does
			return work.Err() != nil
		})
		require.ErrorIs(t, context.Cause(work), queue.ErrLeaseLost)
		ended.Store(lab.Soon(t, 20*time.Second, "the report", reported))
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, ended.Load(), "reported before, by the call that failed")
	require.Len(t, reported, 1, "the ack reports that it has acked nothing")
}

// A handler that extends its lease for less than the queue does keeps its job.
func TestConsumeRenewsALeaseThatAHandlerMadeShorter(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{})
	var ends []error
	drain := &queue.ConsumeOptions{Drain: true}
	out, err := q.Consume(t.Context(), drain, func(work context.Context, d *queue.Delivery) error {
		if d.Attempt > 1 {
			return nil
		}
		ends = append(ends, d.Extend(work, 9*time.Second))
		short := d.Deadline()
		luatomictest.Eventually(t, 20*time.Second, "it is renewed, or ends", func() bool {
			return d.Deadline().After(short) || work.Err() != nil
		})
		ends = append(ends, context.Cause(work))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []error{nil, nil}, ends)
	require.Equal(t, queue.Consumed{Acked: 1}, out)
}
