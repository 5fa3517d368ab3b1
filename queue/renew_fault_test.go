package queue_test

import (
	"context"
	"errors"
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

// renewed consumes ten jobs through a proxy that loses replies as lose says, until done returns true.
func renewed(t *testing.T, lose func(p *luatomictest.LossyProxy),
	done func(p *luatomictest.LossyProxy) bool) {
	t.Helper()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: 12 * time.Second})
	p := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(p.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	lossy, err := queue.New(c, q.Name(), &queue.Options{Lease: 12 * time.Second})
	require.NoError(t, err)
	lab.Push(t, q, lab.Bodies(10)...)
	lose(p)
	var runs, lost atomic.Int32
	out, err := lossy.Consume(t.Context(), &queue.ConsumeOptions{
		Concurrency: 10, Drain: true,
	}, func(ctx context.Context, d *queue.Delivery) error {
		runs.Add(1)
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
			if done(p) {
				return nil
			}
			if ctx.Err() != nil {
				lost.Add(1)
				return context.Cause(ctx)
			}
		}
		return errors.New("the test did not end in time")
	})
	require.NoError(t, err)
	require.Zero(t, lost.Load(), "leases taken for lost")
	require.EqualValues(t, 10, runs.Load(), "a job ran twice")
	require.Equal(t, queue.Consumed{Acked: 10}, out)
	require.Zero(t, stats(t, q).Leased)
}

// A connection that breaks during an extend costs no lease.
func TestRenewalWithoutAReplyLosesNoJob(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	extend := lab.Sent(&queuescript.ExtendScript)
	renewed(t, func(p *luatomictest.LossyProxy) { p.Drop(1, extend) },
		func(p *luatomictest.LossyProxy) bool { return p.Executed(extend) >= 3 })
}

// The repeat of a renewal arrives after the old lease has ended: the next worker's lease stays its own.
func TestLateReplyToARenewalLeavesTheNextHolderAlone(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	direct, name := luatomictest.Client(t), luatomictest.Namespace(t)
	long, err := queue.New(direct, name, &queue.Options{Lease: time.Hour})
	require.NoError(t, err)
	p := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(p.URL())
	require.NoError(t, err)
	opts.ReadTimeout = time.Second
	c := redis.NewClient(opts)
	defer c.Close()
	short, err := queue.New(c, name, &queue.Options{Lease: 6 * time.Second})
	require.NoError(t, err)
	lab.Push(t, long, queue.Job{ID: "x"})
	extend := lab.Sent(&queuescript.ExtendScript)
	p.Drop(1, extend)
	ended := make(chan error, 1)
	consuming, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := short.Consume(consuming, nil, func(ctx context.Context, d *queue.Delivery) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})
		done <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "a renewal", func() bool { return p.Executed(extend) > 0 })
	p.Blackhole(true)
	var next queue.Taken
	luatomictest.Eventually(t, 40*time.Second, "the job is reclaimed", func() bool {
		_, err := long.Reclaim(ctx)
		require.NoError(t, err)
		next, err = long.Take(ctx, 1)
		require.NoError(t, err)
		return len(next.Deliveries) == 1
	})
	p.Blackhole(false)
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the loss", ended), queue.ErrLeaseLost)
	require.NoError(t, next.Deliveries[0].Ack(ctx), "its lease was not touched")
	stop()
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end", done), context.Canceled)
}

// A consumer reports each renewal that fails. An extend of its handler that fails is the handler's to report.
func TestFailedRenewalIsReported(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour}) // nothing renews by itself
	lab.Push(t, q, queue.Job{ID: "x"})
	var byHand, refused atomic.Bool
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ExtendScript), Do: func(func() error) error {
		if byHand.Load() {
			return refusal("NOPERM by hand")
		}
		refused.Store(true)
		return refusal("NOPERM renewal")
	}})
	reported := make(chan error, 100)
	_, err := q.Consume(ctx, &queue.ConsumeOptions{OnError: func(err error) { reported <- err }},
		func(ctx context.Context, d *queue.Delivery) error {
			defer stop()
			byHand.Store(true)
			require.ErrorContains(t, d.Extend(ctx, time.Hour), "NOPERM by hand")
			byHand.Store(false)
			luatomictest.Eventually(t, 20*time.Second, "a renewal", func() bool {
				require.NoError(t, c.Publish(ctx, lab.Key(q, "l"), d.ID).Err()) // as a Cancel does
				return refused.Load()
			})
			require.ErrorContains(t, lab.Soon(t, 20*time.Second, "the report", reported), "NOPERM renewal")
			return nil
		})
	require.ErrorIs(t, err, context.Canceled)
}

// A call that fails is reported to each consumer of which it has a job, and to no other.
func TestFailedRenewalIsReportedToEachConsumer(t *testing.T) {
	t.Parallel()
	got := queue.ReportsOfARenewal(errors.New("no"), []int{-1, 0, 1, 1, 0}, 3) // -1: taken by hand
	require.Equal(t, []int{1, 1, 0}, got)
}

// A renewal that finds no lease while an ack of the handler waits for its reply reports no loss: the ack has ended it.
func TestRenewalDuringAnAckReportsNoLoss(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{ID: "x"})
	var renewals atomic.Int32
	var reported atomic.Pointer[error]
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ExtendScript), Do: func(run func() error) error {
		renewals.Add(1)
		return run()
	}})
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.AckScript), Do: func(run func() error) error {
		err := run()
		from := renewals.Load()
		luatomictest.Eventually(t, 20*time.Second, "a renewal has its outcome, as the next one is sent", func() bool {
			_ = c.Publish(ctx, lab.Key(q, "l"), "x").Err() // as a Cancel does
			return renewals.Load() > from+1 || reported.Load() != nil
		})
		return err
	}})
	out, err := q.Consume(ctx, &queue.ConsumeOptions{OnError: func(err error) { reported.Store(&err) }},
		func(ctx context.Context, d *queue.Delivery) error {
			defer stop()
			require.NoError(t, d.Ack(ctx))
			return ctx.Err()
		})
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, reported.Load())
	require.Equal(t, queue.Consumed{Acked: 1}, out)
}
