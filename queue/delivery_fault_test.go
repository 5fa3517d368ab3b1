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
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// lossy returns the queue as seen through a proxy that can lose replies.
func lossy(t *testing.T, q *queue.Queue, opts *queue.Options) (*queue.Queue, *luatomictest.LossyProxy) {
	t.Helper()
	p := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(p.URL())
	require.NoError(t, err)
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	// Or the first lost reply is that the server does not know the script, and nothing ran.
	require.NoError(t, lua.Preload(t.Context(), luatomictest.Client(t), &queuescript.ExtendScript))
	out, err := queue.New(c, q.Name(), opts)
	require.NoError(t, err)
	return out, p
}

// An extend whose reply is lost repeats itself and learns the fence that the first attempt set.
func TestExtendWithoutAReplyLosesNoLease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	far, p := lossy(t, q, nil)
	lab.Push(t, q, queue.Job{ID: "x"})
	d := lab.TakeOne(t, far)
	p.Drop(1, lab.Sent(&queuescript.ExtendScript))
	require.NoError(t, d.Extend(ctx, time.Hour))
	require.Equal(t, d.Deadline().UnixMicro(), int64(c.ZScore(ctx, lab.Key(q, "l"), "x").Val()))
	require.NoError(t, d.Ack(ctx))
	require.Zero(t, stats(t, q).Leased)
}

// An Ack after an extend whose replies were all lost learns the fence first.
func TestAckAfterAnExtendWithoutAReply(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	far, p := lossy(t, q, nil)
	lab.Push(t, q, queue.Job{ID: "x"})
	d := lab.TakeOne(t, far)
	var whole atomic.Bool
	p.Drop(1000, func(args []string) bool {
		return !whole.Load() && lab.Sent(&queuescript.ExtendScript)(args)
	})
	require.Error(t, d.Extend(untilRun(t.Context(), t, p, &queuescript.ExtendScript), time.Hour))
	whole.Store(true)
	require.NoError(t, d.Ack(t.Context()))
	require.Zero(t, stats(t, q).Leased)
}

// The repeat of an extend is of the deliveries that it had, whatever the caller has done with the slice since.
func TestExtendKeepsNoSliceOfTheCaller(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	far, p := lossy(t, q, nil)
	lab.Push(t, q, queue.Job{ID: "x"})
	batch := []*queue.Delivery{lab.TakeOne(t, far)}
	d, losing := batch[0], unanswered(t, p, &queuescript.ExtendScript)
	require.Error(t, far.Extend(untilRun(t.Context(), t, p, &queuescript.ExtendScript), time.Hour, batch...))
	clear(batch)
	losing.Store(false)
	require.NoError(t, d.Ack(t.Context()))
	require.Zero(t, stats(t, q).Leased)
}

// The repeat of an extend leaves the job to the worker that has it now.
func TestRepeatedExtendLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "x"})
	d := lab.TakeOne(t, q)
	call := queuescript.ExtendParams{
		Leases: lab.Key(q, "l"), Failures: lab.Key(q, "n"), Receipt: lab.Key(q, "i:token"), Lease: time.Minute,
		Jobs: []queuescript.ExtendJob{{ID: "x", Fence: d.Deadline().UnixMicro()}},
	}
	first, err := queuescript.Extend(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, first.Verdicts)
	again, err := queuescript.Extend(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: float64(first.Fence + 7), Member: "x"}).Err())
	again, err = queuescript.Extend(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, []int64{0}, again.Verdicts, "another worker's lease")
	require.InDelta(t, first.Fence+7, c.ZScore(ctx, lab.Key(q, "l"), "x").Val(), 0)
}

// A handler returns its job by hand and goes on. Another worker takes the job. Whatever the consumer of the first
// handler renews and acks, with a reply lost, it leaves that job alone.
func TestJobSettledByHandIsLeftToItsNextWorker(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	far, p := lossy(t, q, &queue.Options{Lease: 6 * time.Second})
	lab.Push(t, q, queue.Job{ID: "x"}, queue.Job{ID: "y"})
	extend := lab.Sent(&queuescript.ExtendScript)
	p.Drop(1, extend)
	given := make(chan error, 1)
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := far.Consume(consuming, &queue.ConsumeOptions{Concurrency: 2},
			func(ctx context.Context, d *queue.Delivery) error {
				if d.ID == "x" {
					given <- d.Return(ctx, time.Millisecond)
				}
				luatomictest.Eventually(t, 20*time.Second, "renewals", func() bool { return p.Executed(extend) >= 2 })
				stop()
				return nil
			})
		done <- err
	}()
	require.NoError(t, lab.Soon(t, 20*time.Second, "the return", given))
	var next queue.Taken
	luatomictest.Eventually(t, 5*time.Second, "the next worker has the job", func() bool {
		var err error
		next, err = q.Take(ctx, 1)
		require.NoError(t, err)
		return len(next.Deliveries) == 1
	})
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end", done), context.Canceled)
	require.True(t, c.HExists(ctx, lab.Key(q, "b"), "x").Val(), "the consumer acked another worker's job")
	require.NoError(t, next.Deliveries[0].Ack(ctx))
}

// While the server is out of reach, a handler's context ends with its lease.
func TestHandlerEndsWithItsLeaseDuringAPartition(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	far, p := lossy(t, q, &queue.Options{Lease: time.Second})
	lab.Push(t, q, queue.Job{ID: "x"})
	consuming, stop := context.WithCancel(t.Context())
	defer stop()
	cause := make(chan error, 1)
	done := make(chan error, 1)
	go func() {
		_, err := far.Consume(consuming, nil, func(ctx context.Context, d *queue.Delivery) error {
			p.Blackhole(true)
			defer p.Blackhole(false)
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(d.Deadline()) + 1500*time.Millisecond):
			}
			cause <- context.Cause(ctx)
			return nil
		})
		done <- err
	}()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of the handler", cause), queue.ErrLeaseLost)
	stop()
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end", done), context.Canceled)
}

// A handler that does not look at its context loses its lease. The next delivery of the job, in the same process,
// keeps its own.
func TestStuckHandlerHarmsNoLaterDelivery(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 9 * time.Second})
	lab.Push(t, q, queue.Job{ID: "x"})
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	second := make(chan error, 1)
	stuck := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := q.Consume(consuming, &queue.ConsumeOptions{Concurrency: 2, Idle: 50 * time.Millisecond},
			func(work context.Context, d *queue.Delivery) error {
				if d.Attempt == 1 {
					_ = c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: 1, Member: "x"}).Err()
					<-stuck
					return nil
				}
				select {
				case <-work.Done():
				case <-time.After(7 * time.Second): // two renewals
				}
				second <- context.Cause(work)
				return nil
			})
		done <- err
	}()
	require.NoError(t, lab.Soon(t, 20*time.Second, "the second delivery", second))
	close(stuck)
	luatomictest.Eventually(t, 10*time.Second, "the job is acked", func() bool {
		return c.ZCard(ctx, lab.Key(q, "l")).Val() == 0
	})
	stop()
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end", done), context.Canceled)
	require.Zero(t, stats(t, q).Dead+stats(t, q).Scheduled)
}

// What a handler settles itself is counted as what became of it, and not settled again: no lease is reported lost.
func TestJobSettledByHandIsCountedOnce(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{ID: "acked"}, queue.Job{ID: "returned"}, queue.Job{ID: "buried"})
	var reported atomic.Int32
	var returned atomic.Bool
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{
		Drain: true, OnError: func(error) { reported.Add(1) },
	}, func(ctx context.Context, d *queue.Delivery) error {
		switch d.ID {
		case "acked":
			return d.Ack(ctx)
		case "buried":
			return d.Bury(ctx, "by hand")
		}
		if returned.CompareAndSwap(false, true) {
			return d.Return(ctx, time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 2, Retried: 1, Dead: 1}, out)
	require.Zero(t, reported.Load())
}
