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

// throughProxy is the queue over a proxy, without its own retries of the client.
func throughProxy(t *testing.T, q *queue.Queue, opts *queue.Options,
	hooks ...redis.Hook) (*queue.Queue, *luatomictest.LossyProxy) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	o.ContextTimeoutEnabled = true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	for _, h := range hooks {
		c.AddHook(h)
	}
	lossy, err := queue.New(c, q.Name(), opts)
	require.NoError(t, err)
	return lossy, proxy
}

// The deletion of expired jobs is housekeeping: where it fails, the take gives the jobs that it has leased.
func TestATakeGivesItsJobsWhenExpiredOnesCannotBeDeleted(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.AckScript), Do: func(func() error) error {
		return redis.ErrClosed
	}})
	q, s := lab.Must(queue.New(c, name, nil)), lab.Must(queue.NewShards(c, name, 1, nil))
	for _, from := range []*queue.Queue{q, s.Queues()[0]} {
		lab.Push(t, from, queue.Job{ID: "live"}, queue.Job{ID: "expired", ExpiresAt: time.Now().Add(-time.Hour)})
	}
	for _, take := range []func(context.Context, int) (queue.Taken, error){q.Take, s.Take} {
		taken, err := take(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"live"}, idsOf(taken.Deliveries))
		require.Equal(t, 1, taken.Dropped)
	}
	require.Equal(t, 2, stats(t, q).Leased, "the lease of the expired job ends by itself")
}

func idsOf(ds []*queue.Delivery) (ids []string) {
	for _, d := range ds {
		ids = append(ids, d.ID)
	}
	return ids
}

// The repeat of a take whose reply is lost returns the same jobs, under a lease that is theirs, and counts no failure.
func TestTakeWhoseReplyIsLostReturnsTheSameJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lossy, proxy := throughProxy(t, q, nil)
	take := lab.Sent(&queuescript.TakeScript)
	pushed := lab.Push(t, q, lab.Numbered(10, 0)...)
	_, err := lossy.Take(ctx, 1) // loads the script
	require.NoError(t, err)
	for i := range 3 {
		proxy.Drop(2, take)
		from := proxy.Executed(take)
		taken, err := lossy.Take(ctx, 3)
		require.NoError(t, err)
		require.Equal(t, 3, proxy.Executed(take)-from, "two replies are lost")
		require.Equal(t, pushed.IDs[1+3*i:4+3*i], idsOf(taken.Deliveries))
		for _, d := range taken.Deliveries {
			require.Equal(t, 1, d.Attempt)
			require.Equal(t, pushed.Now, d.EnqueuedAt)
			require.NoError(t, d.Extend(ctx, time.Minute), "the lease is this delivery's")
		}
		require.Equal(t, 1+3*(i+1), stats(t, q).Leased)
	}
}

// When no attempt has a reply, the next take of the Queue returns the jobs. Another Queue gets others.
func TestTakeWithoutAnyReplyIsRepeatedByTheNext(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lossy, proxy := throughProxy(t, q, nil)
	take := lab.Sent(&queuescript.TakeScript)
	pushed := lab.Push(t, q, lab.Numbered(4, 0)...)
	_, err := lossy.Take(t.Context(), 1)
	require.NoError(t, err)
	var lose atomic.Bool
	lose.Store(true)
	proxy.Drop(1000, func(args []string) bool { return lose.Load() && take(args) })
	_, err = lossy.Take(untilRun(t.Context(), t, proxy, &queuescript.TakeScript), 2)
	require.Error(t, err)
	require.Equal(t, 3, stats(t, q).Leased)
	other, err := q.Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, pushed.IDs[3:], idsOf(other.Deliveries))

	again, _ := throughProxy(t, q, nil)
	none, err := again.Take(t.Context(), 2)
	require.NoError(t, err)
	require.Empty(t, none.Deliveries, "the lost jobs are another Queue's")
	lose.Store(false)
	taken, err := lossy.Take(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, pushed.IDs[1:3], idsOf(taken.Deliveries))
	require.Equal(t, 1, taken.Deliveries[0].Attempt)
}

// A take without a reply is repeated by the next one also where another take was on its way meanwhile and ended later.
func TestTakeWithoutAnyReplyIsRepeatedBesideOthers(t *testing.T) {
	t.Parallel()
	opts := &queue.Options{MaxFailures: 1, Lease: time.Hour}
	q, _ := lab.NewQueue(t, opts)
	held, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	lossy, proxy := throughProxy(t, q, opts, &lab.Around{
		Sha: lab.Digest(&queuescript.TakeScript), Do: func(run func() error) error {
			err := run()
			if hold.Swap(false) {
				close(held)
				<-end
			}
			return err
		}})
	pushed := lab.Push(t, q, lab.Numbered(3, 0)...)
	_, err := lossy.Take(t.Context(), 1) // loads the script
	require.NoError(t, err)
	hold.Store(true)
	go func() {
		defer close(ended)
		_, _ = lossy.Take(t.Context(), 1)
	}()
	<-held
	var lose atomic.Bool
	lose.Store(true)
	take := lab.Sent(&queuescript.TakeScript)
	proxy.Drop(1000, func(args []string) bool { return lose.Load() && take(args) })
	_, err = lossy.Take(untilRun(t.Context(), t, proxy, &queuescript.TakeScript), 1)
	require.Error(t, err)
	lose.Store(false)
	close(end)
	<-ended
	taken, err := lossy.Take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, pushed.IDs[2:], idsOf(taken.Deliveries))
	require.Equal(t, 1, taken.Deliveries[0].Attempt)
}

// A consumer that loses the replies of takes handles each job, without a failure counted: none dies that no handler
// has seen.
func TestLostTakesKillNoJobs(t *testing.T) {
	t.Parallel()
	opts := &queue.Options{MaxFailures: 2, Lease: time.Minute}
	q, _ := lab.NewQueue(t, opts)
	lossy, proxy := throughProxy(t, q, opts)
	lab.Push(t, q, lab.Bodies(300)...)
	n := 0
	take := lab.Sent(&queuescript.TakeScript)
	proxy.Drop(50, func(args []string) bool {
		if take(args) {
			n++
		}
		return take(args) && n%5 < 3 // three of five
	})
	start := time.Now()
	out, err := lossy.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: 2},
		func(_ context.Context, d *queue.Delivery) error {
			require.Equal(t, 1, d.Attempt)
			return nil
		})
	require.NoError(t, err)
	out.Retried = 0 // a busy machine may keep a handler for so long that its consumer returns others
	require.Equal(t, queue.Consumed{Acked: 300}, out)
	require.Less(t, time.Since(start), 40*time.Second, "no job waits for the end of its lease")
}

// A consumer whose take is cut off by its stop returns the jobs, without waiting for the end of their lease.
func TestStopDuringATakeReturnsItsJobs(t *testing.T) {
	t.Parallel()
	inOneOfFive(t, stopDuringATake)
}

// inOneOfFive expects success in one of five rounds: on a busy machine the repeat of a request may overtake it.
func inOneOfFive(t *testing.T, round func(t *testing.T) bool) {
	t.Helper()
	for range 5 {
		if round(t) {
			return
		}
	}
	t.Fatal("the jobs were not returned in any of five rounds")
}

func stopDuringATake(t *testing.T) bool {
	q, _ := lab.NewQueue(t, nil)
	lossy, proxy := throughProxy(t, q, nil)
	take := lab.Sent(&queuescript.TakeScript)
	_, err := lossy.Take(t.Context(), 1)
	require.NoError(t, err)
	pushed := lab.Push(t, q, lab.Numbered(5, 0)...)
	ctx, cancel := context.WithCancel(t.Context())
	proxy.Drop(1, func(args []string) bool {
		if take(args) {
			cancel()
		}
		return take(args)
	})
	out, err := lossy.Consume(ctx, nil, func(context.Context, *queue.Delivery) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, queue.Consumed{}, out)
	if stats(t, q).Leased > 0 {
		return false
	}
	taken, err := q.Take(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, pushed.IDs, idsOf(taken.Deliveries))
	require.Equal(t, 1, taken.Deliveries[0].Attempt)
	return true
}

// refusal is an error that a server replies.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// A consumer that is stopped after a take without any reply, before it has made the next one, returns the jobs as well;
// also where the server has refused the next one.
func TestStopAfterATakeWithoutAReplyReturnsItsJobs(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]int{"before the next": 1, "refused": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inOneOfFive(t, func(t *testing.T) bool { return stopAfterALostTake(t, refused, nil) })
		})
	}
}

// stopAfterALostTake stops a consumer whose first take has lost its reply, when that many repeats were refused: the
// first is of the same call. The one that follows goes by way of around, where that is given.
func stopAfterALostTake(t *testing.T, refused int, around func(run func() error) error) bool {
	t.Helper()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, lua.Preload(t.Context(), c, &queuescript.TakeScript))
	pushed := lab.Push(t, q, lab.Numbered(5, 0)...)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	far := redis.NewClient(o)
	t.Cleanup(func() { _ = far.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy.Drop(1, lab.Sent(&queuescript.TakeScript))
	tries := 0
	far.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.TakeScript), Do: func(run func() error) error {
		if tries++; tries > 1 && tries <= 1+refused {
			return refusal("NOPERM not now")
		}
		if tries > 1 && around != nil {
			return around(run)
		}
		return run()
	}})
	of, err := queue.New(far, q.Name(), nil)
	require.NoError(t, err)
	_, err = of.Consume(ctx, &queue.ConsumeOptions{OnError: func(error) {
		if tries == 1+refused {
			cancel()
		}
	}}, func(context.Context, *queue.Delivery) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	if stats(t, q).Leased > 0 {
		return false
	}
	taken, err := q.Take(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, pushed.IDs, idsOf(taken.Deliveries))
	return true
}

// A consumer whose take is cut off before the server gets it takes no others than one to return.
func TestStopBeforeATakeLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	inOneOfFive(t, stopBeforeATake)
}

func stopBeforeATake(t *testing.T) bool {
	q, _ := lab.NewQueue(t, nil)
	lossy, proxy := throughProxy(t, q, nil)
	take := lab.Sent(&queuescript.TakeScript)
	_, err := lossy.Take(t.Context(), 1)
	require.NoError(t, err)
	pushed := lab.Push(t, q, lab.Numbered(5, 0)...)
	ctx, cancel := context.WithCancel(t.Context())
	proxy.DropRequest(1, func(args []string) bool {
		if take(args) {
			cancel()
		}
		return take(args)
	})
	const most = 13 // EVALSHA, digest, number of keys, ten keys, max
	ofOne := func(args []string) bool { return take(args) && args[most] == "1" }
	before, beforeOfOne := proxy.Executed(take), proxy.Executed(ofOne)
	_, err = lossy.Consume(ctx, nil, func(context.Context, *queue.Delivery) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	if stats(t, q).Leased > 0 || proxy.Executed(take) == before {
		return false
	}
	require.Equal(t, 1, proxy.Executed(take)-before)
	require.Equal(t, 1, proxy.Executed(ofOne)-beforeOfOne, "it asks for one job")
	taken, err := q.Take(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, pushed.IDs, idsOf(taken.Deliveries))
	return true
}

// The repeat of a nack, return or bury whose reply is lost has the same answer.
func TestGivingBackWithALostReplyIsAnswered(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, call := range map[string]func(q *queue.Queue, ds []*queue.Delivery) error{
		"nack":   func(q *queue.Queue, ds []*queue.Delivery) error { return q.Nack(ctx, 0, "why", ds...) },
		"return": func(q *queue.Queue, ds []*queue.Delivery) error { return q.Return(ctx, time.Hour, ds...) },
		"bury":   func(q *queue.Queue, ds []*queue.Delivery) error { return q.Bury(ctx, "why", ds...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			lossy, proxy := throughProxy(t, q, nil)
			lab.Push(t, q, lab.Numbered(4, 0)...)
			taken, err := lossy.Take(ctx, 4)
			require.NoError(t, err)
			require.NoError(t, call(lossy, taken.Deliveries[:1])) // loads the script
			require.NoError(t, taken.Deliveries[3].Ack(ctx))
			proxy.Drop(1, lab.Sent(&queuescript.NackScript))
			err = call(lossy, taken.Deliveries[1:])
			var lost *queue.LeaseLostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, []string{taken.Deliveries[3].ID}, lost.IDs, "the other two are given back")
			s := stats(t, q)
			require.Equal(t, 3, s.Ready+s.Scheduled+s.Dead)
		})
	}
}
