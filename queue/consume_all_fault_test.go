package queue_test

import (
	"context"
	"math/rand/v2"
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

// severalThroughProxy are the queues over a client of a proxy, with the script loaded.
func severalThroughProxy(t *testing.T, qs []*queue.Queue) ([]*queue.Queue, *luatomictest.LossyProxy, *redis.Client) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	o.ContextTimeoutEnabled = true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	out := make([]*queue.Queue, len(qs))
	for i, q := range qs {
		out[i], err = queue.New(c, q.Name(), &queue.Options{Tag: q.Tag()})
		require.NoError(t, err)
	}
	_, err = out[0].Take(t.Context(), 1)
	require.NoError(t, err)
	return out, proxy, c
}

// The repeat of a take whose reply is lost returns the same jobs of the same queues and counts no failure: a repeat of
// the same call, and the next call where no attempt had a reply, which keeps the order that was drawn.
func TestTakeOfSeveralQueuesWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	take := lab.Sent(&queuescript.TakeScript)
	for range 5 { // the order is drawn
		qs := several(t, luatomictest.Client(t), 2, queue.Options{})
		lossy, proxy, c := severalThroughProxy(t, qs)
		for _, q := range qs {
			pushNumbered(t, q, 2)
		}
		by := queue.Taker(rand.IntN, queue.Source{Queue: lossy[0], Weight: 1}, queue.Source{Queue: lossy[1], Weight: 1})
		leased := func() [2]int { return [2]int{stats(t, qs[0]).Leased, stats(t, qs[1]).Leased} }

		var lose atomic.Bool
		lose.Store(true)
		proxy.Drop(1000, func(args []string) bool { return lose.Load() && take(args) })
		_, err := by(untilRun(ctx, t, proxy, &queuescript.TakeScript), 3, "")
		require.Error(t, err)
		luatomictest.Eventually(t, 20*time.Second, "its last attempt is over, which could run late", func() bool {
			conns := c.PoolStats()
			return conns.TotalConns == conns.IdleConns
		})
		first := leased()
		require.Equal(t, 3, first[0]+first[1])
		lose.Store(false)
		ts, err := by(ctx, 3, "")
		require.NoError(t, err)
		require.Equal(t, first, leased())
		require.Len(t, namesOf(ts), 3)
		for _, t2 := range ts {
			for _, d := range t2.Deliveries {
				require.Equal(t, 1, d.Attempt)
				require.NoError(t, d.Ack(ctx), "the lease is this delivery's")
			}
		}
		proxy.Drop(2, take)
		ts, err = by(ctx, 3, "")
		require.NoError(t, err)
		require.Len(t, namesOf(ts), 1)
	}
}

// A consumer that loses replies of takes handles each job once, without a failure counted.
func TestConsumeAllLosesNoJobWithAReply(t *testing.T) {
	t.Parallel()
	qs := several(t, luatomictest.Client(t), 3, queue.Options{})
	lossy, proxy, _ := severalThroughProxy(t, qs)
	for _, q := range qs {
		pushNumbered(t, q, 100)
	}
	n, take := 0, lab.Sent(&queuescript.TakeScript)
	proxy.Drop(50, func(args []string) bool {
		if take(args) {
			n++
		}
		return take(args) && n%5 < 3
	})
	out, err := queue.ConsumeAll(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: 2},
		func(_ context.Context, d *queue.Delivery) error {
			require.Equal(t, 1, d.Attempt)
			return nil
		}, queue.Source{Queue: lossy[0], Weight: 2}, queue.Source{Queue: lossy[1]}, queue.Source{Queue: lossy[2]})
	require.NoError(t, err)
	out.Retried = 0 // a busy machine may keep a handler for so long that its consumer returns others
	require.Equal(t, queue.Consumed{Acked: 300}, out)
}

// A consumer whose take is cut off by its stop returns the jobs to their queues.
func TestStopDuringATakeOfSeveralQueuesReturnsItsJobs(t *testing.T) {
	t.Parallel()
	inOneOfFive(t, stopDuringATakeOfSeveral)
}

func stopDuringATakeOfSeveral(t *testing.T) bool {
	qs := several(t, luatomictest.Client(t), 2, queue.Options{})
	lossy, proxy, _ := severalThroughProxy(t, qs)
	for _, q := range qs {
		pushNumbered(t, q, 2)
	}
	ctx, cancel := context.WithCancel(t.Context())
	take := lab.Sent(&queuescript.TakeScript)
	proxy.Drop(1, func(args []string) bool {
		if take(args) {
			cancel()
		}
		return take(args)
	})
	_, err := queue.ConsumeAll(ctx, nil, func(context.Context, *queue.Delivery) error {
		return nil
	}, inOrderOf(lossy)...)
	require.ErrorIs(t, err, context.Canceled)
	for _, q := range qs {
		if stats(t, q).Leased > 0 {
			return false
		}
		taken, err := q.Take(t.Context(), 5)
		require.NoError(t, err)
		require.Equal(t, []string{q.Name() + "0", q.Name() + "1"}, idsOf(taken.Deliveries))
		require.Equal(t, 1, taken.Deliveries[0].Attempt)
	}
	return true
}

// A raw call that names a queue twice is refused: the second move of what is due would remove other jobs.
func TestTakeOfAQueueNamedTwiceIsRefused(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Numbered(3, time.Millisecond)...)
	time.Sleep(5 * time.Millisecond) // they are due
	before := lab.Dump(t.Context(), t, c, q.Name())
	one := queuescript.TakeQueue{
		Ready: lab.Key(q, "r"), Scheduled: lab.Key(q, "s"), Bodies: lab.Key(q, "b"), Leases: lab.Key(q, "l"),
		Failures: lab.Key(q, "n"), Control: lab.Key(q, "c"), Wake: lab.Key(q, "w"), Options: lab.Key(q, "o"),
		Receipt: lab.Key(q, "i:x"), Dead: lab.Key(q, "d"), Lease: time.Minute,
	}
	_, err := queuescript.Take(t.Context(), c, queuescript.TakeParams{
		Max: 2, Bytes: 1000, Queues: []queuescript.TakeQueue{one, one},
	})
	require.ErrorContains(t, err, "each is named once")
	require.Equal(t, before, lab.Dump(t.Context(), t, c, q.Name()))
	taken, err := q.Take(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 3)
}
