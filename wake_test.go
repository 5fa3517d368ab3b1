package luatomic_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// Whoever waits looks by itself after the one, and is told well before that.
const (
	asleep    = time.Minute
	soonAwake = asleep / 2
)

// idleConsumers runs n consumers until the test ends and returns once all wait.
func idleConsumers(t *testing.T, client *redis.Client, q *luatomic.Queue, n int, h luatomic.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range n {
		running.Go(func() { _, _ = q.Consume(ctx, &luatomic.ConsumeOptions{Concurrency: 1, Idle: asleep}, h) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	luatomictest.Eventually(t, 30*time.Second, "all consumers wait", func() bool {
		return client.ZCard(t.Context(), key(q, "w")).Val() >= int64(n) // a poller may wait, too
	})
}

// A push wakes a sleeping consumer: nobody polls. The guard is rouse.
func TestPushWakesASleepingConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := newQueue(t, nil)
	got := make(chan string, 10)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *luatomic.Delivery) error {
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
		luatomictest.Eventually(t, soonAwake, "it waits again", func() bool { return c.ZCard(ctx, key(q, "w")).Val() == 1 })
	}
	require.Positive(t, c.PTTL(ctx, key(q, "w")).Val(), "a waiter that dies is forgotten")
	push(t, q, luatomic.Job{ID: "pushed"})
	within("pushed")
	push(t, q, luatomic.Job{ID: "delayed", Delay: 20 * time.Millisecond})
	within("delayed")
	push(t, q, luatomic.Job{ID: "far", Delay: time.Hour})
	push(t, q, luatomic.Job{ID: "first of two", Delay: 20 * time.Millisecond}, luatomic.Job{Delay: 2 * time.Hour})
	within("first of two")
	_, err := q.Reschedule(ctx, "far", time.Unix(1, 0))
	require.NoError(t, err)
	within("far")

	require.NoError(t, q.Pause(ctx))
	push(t, q, luatomic.Job{ID: "paused"})
	luatomictest.Eventually(t, soonAwake, "it waits again", func() bool { return c.ZCard(ctx, key(q, "w")).Val() == 1 })
	require.Empty(t, got)
	require.NoError(t, q.Resume(ctx))
	within("paused")
}

// What a nack, a requeue or a reclaim makes ready wakes a consumer, each by itself.
func TestReturnedJobsWakeASleepingConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := newQueue(t, &luatomic.QueueOptions{Lease: time.Hour})
	push(t, q, luatomic.Job{ID: "nacked"}, luatomic.Job{ID: "buried"}, luatomic.Job{ID: "abandoned"})
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	got := make(chan string, 10)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *luatomic.Delivery) error {
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
		luatomictest.Eventually(t, soonAwake, "it waits again", func() bool { return c.ZCard(ctx, key(q, "w")).Val() == 1 })
	}
	require.NoError(t, taken.Deliveries[0].Nack(ctx, 0, "again"))
	wakes("nacked")
	require.NoError(t, taken.Deliveries[1].Bury(ctx, "no"))
	_, err = q.Requeue(ctx)
	require.NoError(t, err)
	wakes("buried")
	require.NoError(t, c.ZAdd(ctx, key(q, "l"), redis.Z{Score: past, Member: "abandoned"}).Err())
	_, err = q.Reclaim(ctx)
	require.NoError(t, err)
	wakes("abandoned")
}

// One job wakes one of many: no herd. And many jobs wake one after the other, until
// there is no work or nobody who waits.
func TestOneJobWakesOneConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := luatomic.NewQueue(c, "q", nil)
	require.NoError(t, err)
	var done atomic.Int64
	const n = 20
	gate := make(chan struct{})
	idleConsumers(t, c, q, n, func(context.Context, *luatomic.Delivery) error {
		done.Add(1)
		<-gate
		return nil
	})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // before the consumers are waited for
	calls := func() int64 {
		info, err := c.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		return statCalls(t, info["Commandstats"]["cmdstat_evalsha"])
	}
	before := calls()
	push(t, q, luatomic.Job{})
	luatomictest.Eventually(t, soonAwake, "the job is taken", func() bool { return done.Load() == 1 })
	require.LessOrEqual(t, calls()-before, int64(4), "the push, one take, and little more")
	require.Equal(t, int64(n-1), c.ZCard(ctx, "{q}:w").Val())

	push(t, q, bodies(n-1)...)
	luatomictest.Eventually(t, soonAwake, "every consumer has a job", func() bool { return done.Load() == n })
	open()
}

// An earlier job wakes a poller that sleeps until a later one, and a poller that is
// woken by ready jobs passes the word on to a consumer.
func TestAnEarlierJobWakesThePoller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	q, c := newQueue(t, nil)
	push(t, q, luatomic.Job{Delay: time.Hour})
	done := make(chan error, 1)
	go func() { done <- luatomic.NewPoller(&luatomic.PollerOptions{Idle: asleep}, q).Run(ctx) }()
	luatomictest.Eventually(t, soonAwake, "the poller waits", func() bool { return c.ZCard(ctx, key(q, "w")).Val() == 1 })
	push(t, q, luatomic.Job{ID: "earlier", Delay: 20 * time.Millisecond})
	luatomictest.Eventually(t, soonAwake, "the earlier job is ready", func() bool { return c.LLen(ctx, key(q, "r")).Val() == 1 })
	require.Equal(t, "earlier", takeOne(t, q).ID)

	got := make(chan string, 1)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *luatomic.Delivery) error {
		got <- d.ID
		return nil
	})
	luatomictest.Eventually(t, soonAwake, "both wait", func() bool { return c.ZCard(ctx, key(q, "w")).Val() == 2 })
	// The poller has waited longest, so it is told first.
	require.NoError(t, c.ZAddArgs(ctx, key(q, "w"), redis.ZAddArgs{XX: true, Members: []redis.Z{{Score: 1, Member: c.ZRange(ctx, key(q, "w"), 0, 0).Val()[0]}}}).Err())
	push(t, q, luatomic.Job{ID: "ready"})
	select {
	case id := <-got:
		require.Equal(t, "ready", id)
	case <-time.After(soonAwake):
		t.Fatal("the word was not passed on")
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// Who waits is not told of a later job than the one it waits for. The waiter here is a
// channel with a receiver, and stays in the key of those who wait until it is told.
func TestALaterJobWakesNobody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := newQueue(t, nil)
	require.NoError(t, subscribe(ctx, t, c, q.Name()))
	told := func(jobs ...luatomic.Job) [2]bool {
		var out [2]bool
		for i, add := range []func() error{
			func() error { _, err := q.Push(ctx, jobs...); return err },
			func() error { _, err := luatomic.PushAll(ctx, luatomic.QueueJobs{Queue: q, Jobs: jobs}); return err },
		} {
			require.NoError(t, c.Del(ctx, key(q, "s")).Err())
			require.NoError(t, c.ZAdd(ctx, key(q, "s"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "known"}).Err())
			require.NoError(t, c.ZAdd(ctx, key(q, "w"), redis.Z{Score: future, Member: q.Name()}).Err())
			require.NoError(t, add())
			out[i] = c.ZCard(ctx, key(q, "w")).Val() == 0
		}
		return out
	}
	later, earlier := luatomic.Job{Delay: 2 * time.Hour}, luatomic.Job{Delay: time.Minute}
	require.Equal(t, [2]bool{false, false}, told(later))
	require.Equal(t, [2]bool{true, true}, told(earlier, later))
	require.Equal(t, [2]bool{true, true}, told(luatomic.Job{}))
	require.Equal(t, [2]bool{true, true}, told(luatomic.Job{}, later))
}

// A waiter whose process is gone is passed over in the same call.
func TestDeadWaitersArePassedOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := newQueue(t, nil)
	got := make(chan struct{}, 1)
	idleConsumers(t, c, q, 1, func(context.Context, *luatomic.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for _, ghost := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, c.ZAdd(ctx, key(q, "w"), redis.Z{Score: 1, Member: key(q, "w:ghost-"+ghost)}).Err())
	}
	push(t, q, luatomic.Job{})
	select {
	case <-got:
	case <-time.After(soonAwake):
		t.Fatal("a ghost took the word")
	}
}

// So in every script that tells those who wait: the word goes to a channel with a
// receiver, here the last of three.
func TestEveryScriptPassesDeadWaitersOver(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, q *luatomic.Queue) error{
		"push of one": func(ctx context.Context, q *luatomic.Queue) error { _, err := q.Push(ctx, luatomic.Job{}); return err },
		"push":        func(ctx context.Context, q *luatomic.Queue) error { _, err := q.Push(ctx, bodies(2)...); return err },
		"push later": func(ctx context.Context, q *luatomic.Queue) error {
			_, err := q.Push(ctx, luatomic.Job{Delay: 1})
			return err
		},
		"push all later": func(ctx context.Context, q *luatomic.Queue) error {
			_, err := luatomic.PushAll(ctx, luatomic.QueueJobs{Queue: q, Jobs: []luatomic.Job{{Delay: 1}}})
			return err
		},
		"requeue": func(ctx context.Context, q *luatomic.Queue) error { _, err := q.Requeue(ctx, "dead"); return err },
		"reschedule": func(ctx context.Context, q *luatomic.Queue) error {
			_, err := q.Reschedule(ctx, "far", time.Unix(1, 0))
			return err
		},
		"resume": func(ctx context.Context, q *luatomic.Queue) error { return q.Resume(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := newQueue(t, nil)
			switch name {
			case "requeue":
				push(t, q, luatomic.Job{ID: "dead"})
				require.NoError(t, takeOne(t, q).Bury(ctx, "why"))
			case "reschedule":
				push(t, q, luatomic.Job{ID: "far", Delay: time.Hour})
			}
			require.NoError(t, subscribe(ctx, t, c, q.Name()))
			waiting := []redis.Z{{Score: future, Member: "gone"}, {Score: future + 1, Member: "gone too"}, {Score: future + 2, Member: q.Name()}, {Score: future + 3, Member: "later"}}
			require.NoError(t, c.ZAdd(ctx, key(q, "w"), waiting...).Err())
			require.NoError(t, call(ctx, q))
			require.Equal(t, []string{"later"}, c.ZRange(ctx, key(q, "w"), 0, -1).Val())
		})
	}
}

// The subscription is cut while a job comes: the consumer looks when it is back.
func TestConsumerLooksAgainAfterACutSubscription(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	cut := redis.NewClient(opts)
	defer cut.Close()
	q, c := newQueue(t, nil)
	// A take whose reply is cut leaves its job leased; it comes back soon.
	through, err := luatomic.NewQueue(cut, q.Name(), &luatomic.QueueOptions{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	got := make(chan struct{}, 100)
	idleConsumers(t, c, through, 1, func(context.Context, *luatomic.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for range 20 {
		proxy.CutAll()
		push(t, q, luatomic.Job{})
		select {
		case <-got:
		case <-time.After(soonAwake):
			t.Fatal("a job was not noticed")
		}
	}
}

// statCalls reads the calls out of a line of INFO commandstats.
func statCalls(t *testing.T, line string) int64 {
	t.Helper()
	var calls int64
	_, err := fmt.Sscanf(line, "calls=%d", &calls)
	require.NoError(t, err, line)
	return calls
}
