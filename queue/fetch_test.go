package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A waiter takes by itself after asleep, a consumer after a lease of 30 s, and each is notified well before.
const (
	asleep    = time.Minute
	soonAwake = asleep / 3
)

// idleConsumers runs n consumers until the test ends. It returns once all of them wait.
func idleConsumers(t *testing.T, client *redis.Client, q *queue.Queue, n int, h queue.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range n {
		running.Go(func() { _, _ = q.Consume(ctx, &queue.ConsumeOptions{Concurrency: 1, Idle: asleep}, h) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	luatomictest.Eventually(t, 30*time.Second, "all consumers wait", func() bool {
		return client.ZCard(t.Context(), lab.Key(q, "w")).Val() >= int64(n) // a poller may wait as well
	})
}

// A push wakes a sleeping consumer: nobody polls.
func TestPushWakesASleepingConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	got := make(chan string, 10)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *queue.Delivery) error {
		got <- d.ID
		return nil
	})
	within := func(id string) {
		t.Helper()
		select {
		case g := <-got:
			require.Equal(t, id, g)
		case <-time.After(soonAwake):
			t.Fatalf("job %s did not wake the consumer", id)
		}
		luatomictest.Eventually(t, soonAwake, "it waits again", waitersAre(t, c, q, 1))
	}
	require.Positive(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), "the key of the waiters expires")
	lab.Push(t, q, queue.Job{ID: "pushed"})
	within("pushed")
	lab.Push(t, q, queue.Job{ID: "delayed", Delay: 20 * time.Millisecond})
	within("delayed")
	lab.Push(t, q, queue.Job{ID: "far", Delay: time.Hour})
	lab.Push(t, q, queue.Job{ID: "first of two", Delay: 20 * time.Millisecond}, queue.Job{Delay: 2 * time.Hour})
	within("first of two")
	_, err := q.Reschedule(ctx, "far", time.Unix(1, 0))
	require.NoError(t, err)
	within("far")

	require.NoError(t, q.Pause(ctx))
	lab.Push(t, q, queue.Job{ID: "paused"})
	luatomictest.Eventually(t, soonAwake, "it waits again", waitersAre(t, c, q, 1))
	require.Empty(t, got)
	require.NoError(t, q.Resume(ctx))
	within("paused")
}

// A nack, a requeue and a reclaim each wake a consumer for the job that they make ready.
func TestReturnedJobsWakeASleepingConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{ID: "nacked"}, queue.Job{ID: "buried"}, queue.Job{ID: "abandoned"})
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	got := make(chan string, 10)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *queue.Delivery) error {
		got <- d.ID
		return nil
	})
	wakes := func(id string) {
		t.Helper()
		select {
		case g := <-got:
			require.Equal(t, id, g)
		case <-time.After(soonAwake):
			t.Fatalf("job %s did not wake the consumer", id)
		}
		luatomictest.Eventually(t, soonAwake, "it waits again", waitersAre(t, c, q, 1))
	}
	require.NoError(t, taken.Deliveries[0].Nack(ctx, 0, "again"))
	wakes("nacked")
	require.NoError(t, taken.Deliveries[1].Bury(ctx, "no"))
	_, err = q.Requeue(ctx)
	require.NoError(t, err)
	wakes("buried")
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: "abandoned"}).Err())
	_, err = q.Reclaim(ctx)
	require.NoError(t, err)
	wakes("abandoned")
}

// One job wakes one of many consumers. Many jobs wake one after the other, until no job or no waiter is left.
func TestOneJobWakesOneConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	var done atomic.Int64
	const n = 20
	gate := make(chan struct{})
	idleConsumers(t, c, q, n, func(context.Context, *queue.Delivery) error {
		done.Add(1)
		<-gate
		return nil
	})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // runs before the wait for the consumers
	calls := func() int64 {
		info, err := c.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		return lab.StatCalls(t, info["Commandstats"]["cmdstat_evalsha"])
	}
	before := calls()
	lab.Push(t, q, queue.Job{})
	luatomictest.Eventually(t, soonAwake, "the job is taken", func() bool { return done.Load() == 1 })
	// A push, a take and the next one; the load of a script and a heartbeat may come in between.
	require.Less(t, calls()-before, int64(n/2), "not a take of each consumer")
	require.Equal(t, int64(n-1), c.ZCard(ctx, "{q}:w").Val())

	lab.Push(t, q, lab.Bodies(n-1)...)
	luatomictest.Eventually(t, soonAwake, "every consumer has a job", func() bool { return done.Load() == n })
	open()
}

// A consumer reclaims the jobs of workers that died.
func TestConsumeReclaimsAbandonedJobs(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), lab.Bodies(5)...)
	require.NoError(t, err)
	dead, err := queue.New(c, q.Name(), &queue.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	_, err = dead.Take(t.Context(), 5) // and then dies
	require.NoError(t, err)
	var attempts atomic.Int64
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(_ context.Context, d *queue.Delivery) error {
			attempts.Add(int64(d.Attempt))
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, 5, out.Acked)
	require.Equal(t, int64(10), attempts.Load(), "each on its second attempt")
}

// A waiter with a short idle time does not shorten the life of the key for a waiter with a long one.
func TestShortWaitsLeaveLongOnesAlone(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	ctx := t.Context()
	long := time.Minute
	handler := func(context.Context, *queue.Delivery) error { return nil }
	run := func(idle time.Duration, poll bool) (stop func()) {
		running, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			if poll {
				ended <- queue.NewPoller(&queue.PollerOptions{Idle: idle}, q).Run(running)
				return
			}
			_, err := q.Consume(running, &queue.ConsumeOptions{Idle: idle}, handler)
			ended <- err
		}()
		return func() {
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	}
	stop := run(long, false)
	defer stop()
	waits := func(n int64) func() bool {
		return func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() >= n }
	}
	luatomictest.Eventually(t, 20*time.Second, "the first waits", waits(1))
	for _, poll := range []bool{false, true} {
		stop := run(10*time.Millisecond, poll)
		luatomictest.Eventually(t, 20*time.Second, "the second waits, too", waits(2))
		stop()
		require.Greater(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), long/2)
	}
}

// An idle time below a millisecond counts as one millisecond, the shortest that the scripts accept.
func TestIdleBelowAMillisecond(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{Delay: 20 * time.Millisecond})
	failed := func(err error) { t.Errorf("%v", err) }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- queue.NewPoller(&queue.PollerOptions{Idle: time.Microsecond,
			OnError: func(_ *queue.Queue, err error) { failed(err) }}, q).Run(ctx)
	}()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Idle: time.Microsecond, Drain: true, OnError: failed},
		func(context.Context, *queue.Delivery) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 1, out.Acked)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A consumer that stops, and waits for its last handlers, gets no more notifications. It passes on the one that it
// got before.
func TestStoppingConsumerPassesTheNotificationOn(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	ctx := t.Context()
	begun, gate := make(chan string, 3), make(chan struct{})
	stopping, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(stopping, &queue.ConsumeOptions{Idle: time.Hour, Grace: time.Minute},
			func(_ context.Context, d *queue.Delivery) error {
				begun <- d.ID
				<-gate
				return nil
			})
		ended <- err
	}()
	defer func() {
		cancel()
		close(gate)
		require.ErrorIs(t, <-ended, context.Canceled)
	}()
	waiting := func(n int64) {
		luatomictest.Eventually(t, 20*time.Second, "all consumers wait", waitersAre(t, c, q, n))
	}
	waiting(1)
	lab.Push(t, q, queue.Job{ID: "long"})
	require.Equal(t, "long", <-begun)
	waiting(1)
	old := c.ZRange(ctx, lab.Key(q, "w"), 0, 0).Val()[0]

	got := make(chan string, 3)
	other, end := context.WithCancel(ctx)
	otherEnded := make(chan error, 1)
	go func() {
		_, err := q.Consume(other, &queue.ConsumeOptions{Idle: time.Hour},
			func(_ context.Context, d *queue.Delivery) error {
				got <- d.ID
				return nil
			})
		otherEnded <- err
	}()
	defer func() {
		end()
		require.ErrorIs(t, <-otherEnded, context.Canceled)
	}()
	waiting(2)

	// The old consumer is notified of a job, and stops before it takes.
	require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), "notified", "").Err())
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:notified").Err())
	require.NoError(t, c.ZRem(ctx, lab.Key(q, "w"), old).Err())
	cancel()
	takes := func(id string) {
		t.Helper()
		select {
		case g := <-got:
			require.Equal(t, id, g)
		case <-time.After(20 * time.Second):
			t.Fatalf("no consumer took the job %s", id)
		}
	}
	takes("notified")
	waiting(1)
	require.NotEqual(t, []string{old}, c.ZRange(ctx, lab.Key(q, "w"), 0, 0).Val())
	lab.Push(t, q, queue.Job{ID: "new"})
	takes("new")
}

// Of an earlier job one waiter is notified. Where that stops before the job is due, another one learns of it.
func TestWhoStopsPassesOnTheNextDueJob(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *queue.Queue, queue.Handler){
		"consumer": func(ctx context.Context, q *queue.Queue, h queue.Handler) {
			_, _ = q.Consume(ctx, &queue.ConsumeOptions{Idle: asleep}, h)
		},
		"poller": func(ctx context.Context, q *queue.Queue, _ queue.Handler) {
			_ = queue.NewPoller(&queue.PollerOptions{Idle: asleep}, q).Run(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, c := lab.NewQueue(t, nil)
			got := make(chan string, 2)
			h := func(_ context.Context, d *queue.Delivery) error { got <- d.ID; return nil }
			ctx, end := context.WithCancel(t.Context())
			stopping, stop := context.WithCancel(ctx)
			var running sync.WaitGroup
			defer running.Wait()
			defer end()
			running.Go(func() { run(stopping, q, h) })
			running.Go(func() { _, _ = q.Consume(ctx, &queue.ConsumeOptions{Idle: time.Hour}, h) })
			luatomictest.Eventually(t, soonAwake, "both wait", waitersAre(t, c, q, 2))
			first := c.ZRangeWithScores(ctx, lab.Key(q, "w"), 0, 0).Val()[0]
			lab.Push(t, q, queue.Job{ID: "soon", Delay: 5 * time.Second})
			luatomictest.Eventually(t, soonAwake, "the first one has learnt of the job, and waits again", func() bool {
				return c.ZScore(ctx, lab.Key(q, "w"), first.Member.(string)).Val() > first.Score
			})
			stop()
			require.Equal(t, "soon", lab.Soon(t, soonAwake, "the other one", got))
		})
	}
}

// A consumer that stops while it waits removes itself from the waiters.
func TestStoppedConsumerIsNoWaiter(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(ctx, nil, func(context.Context, *queue.Delivery) error { return nil })
		ended <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "it waits", waitersAre(t, c, q, 1))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, c.ZCard(t.Context(), lab.Key(q, "w")).Val())
}
