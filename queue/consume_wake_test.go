package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Whoever waits looks by itself after the one, and is told well before that.
const (
	asleep    = time.Minute
	soonAwake = asleep / 2
)

// idleConsumers runs n consumers until the test ends and returns once all wait.
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
		return client.ZCard(t.Context(), lab.Key(q, "w")).Val() >= int64(n) // a poller may wait, too
	})
}

// A push wakes a sleeping consumer: nobody polls. The guard is part/queue_wake_next.lua.
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
		luatomictest.Eventually(t, soonAwake, "it waits again", func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() == 1 })
	}
	require.Positive(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), "a waiter that dies is forgotten")
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
	luatomictest.Eventually(t, soonAwake, "it waits again", func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() == 1 })
	require.Empty(t, got)
	require.NoError(t, q.Resume(ctx))
	within("paused")
}

// What a nack, a requeue or a reclaim makes ready wakes a consumer, each by itself.
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
		luatomictest.Eventually(t, soonAwake, "it waits again", func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() == 1 })
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

// One job wakes one of many: no herd. And many jobs wake one after the other, until
// there is no work or nobody who waits.
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
	t.Cleanup(open) // before the consumers are waited for
	calls := func() int64 {
		info, err := c.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		return lab.StatCalls(t, info["Commandstats"]["cmdstat_evalsha"])
	}
	before := calls()
	lab.Push(t, q, queue.Job{})
	luatomictest.Eventually(t, soonAwake, "the job is taken", func() bool { return done.Load() == 1 })
	require.LessOrEqual(t, calls()-before, int64(4), "the push, one take, and little more")
	require.Equal(t, int64(n-1), c.ZCard(ctx, "{q}:w").Val())

	lab.Push(t, q, lab.Bodies(n-1)...)
	luatomictest.Eventually(t, soonAwake, "every consumer has a job", func() bool { return done.Load() == n })
	open()
}

// An earlier job wakes a poller that sleeps until a later one, and a poller that is
// woken by ready jobs passes the word on to a consumer.
func TestAnEarlierJobWakesThePoller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{Delay: time.Hour})
	done := make(chan error, 1)
	go func() { done <- queue.NewPoller(&queue.PollerOptions{Idle: asleep}, q).Run(ctx) }()
	luatomictest.Eventually(t, soonAwake, "the poller waits", func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() == 1 })
	lab.Push(t, q, queue.Job{ID: "earlier", Delay: 20 * time.Millisecond})
	luatomictest.Eventually(t, soonAwake, "the earlier job is ready", func() bool { return c.LLen(ctx, lab.Key(q, "r")).Val() == 1 })
	require.Equal(t, "earlier", lab.TakeOne(t, q).ID)

	got := make(chan string, 1)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *queue.Delivery) error {
		got <- d.ID
		return nil
	})
	luatomictest.Eventually(t, soonAwake, "both wait", func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() == 2 })
	// The poller has waited longest, so it is told first.
	require.NoError(t, c.ZAddArgs(ctx, lab.Key(q, "w"), redis.ZAddArgs{XX: true, Members: []redis.Z{{Score: 1, Member: c.ZRange(ctx, lab.Key(q, "w"), 0, 0).Val()[0]}}}).Err())
	lab.Push(t, q, queue.Job{ID: "ready"})
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
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, lab.Subscribe(ctx, t, c, q.Name()))
	told := func(jobs ...queue.Job) [2]bool {
		var out [2]bool
		for i, add := range []func() error{
			func() error { _, err := q.Push(ctx, jobs...); return err },
			func() error { _, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: jobs}); return err },
		} {
			require.NoError(t, c.Del(ctx, lab.Key(q, "s")).Err())
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "known"}).Err())
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Score: lab.Future, Member: q.Name()}).Err())
			require.NoError(t, add())
			out[i] = c.ZCard(ctx, lab.Key(q, "w")).Val() == 0
		}
		return out
	}
	later, earlier := queue.Job{Delay: 2 * time.Hour}, queue.Job{Delay: time.Minute}
	require.Equal(t, [2]bool{false, false}, told(later))
	require.Equal(t, [2]bool{true, true}, told(earlier, later))
	require.Equal(t, [2]bool{true, true}, told(queue.Job{}))
	require.Equal(t, [2]bool{true, true}, told(queue.Job{}, later))
}

// A waiter whose process is gone is passed over in the same call.
func TestDeadWaitersArePassedOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	got := make(chan struct{}, 1)
	idleConsumers(t, c, q, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for _, ghost := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Score: 1, Member: lab.Key(q, "w:ghost-"+ghost)}).Err())
	}
	lab.Push(t, q, queue.Job{})
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
	for name, call := range map[string]func(ctx context.Context, q *queue.Queue) error{
		"push of one": func(ctx context.Context, q *queue.Queue) error { _, err := q.Push(ctx, queue.Job{}); return err },
		"push":        func(ctx context.Context, q *queue.Queue) error { _, err := q.Push(ctx, lab.Bodies(2)...); return err },
		"push later": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Push(ctx, queue.Job{Delay: 1})
			return err
		},
		"push all later": func(ctx context.Context, q *queue.Queue) error {
			_, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: []queue.Job{{Delay: 1}}})
			return err
		},
		"requeue": func(ctx context.Context, q *queue.Queue) error { _, err := q.Requeue(ctx, "dead"); return err },
		"reschedule": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Reschedule(ctx, "far", time.Unix(1, 0))
			return err
		},
		"resume": func(ctx context.Context, q *queue.Queue) error { return q.Resume(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, nil)
			switch name {
			case "requeue":
				lab.Push(t, q, queue.Job{ID: "dead"})
				require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
			case "reschedule":
				lab.Push(t, q, queue.Job{ID: "far", Delay: time.Hour})
			}
			require.NoError(t, lab.Subscribe(ctx, t, c, q.Name()))
			waiting := []redis.Z{{Score: lab.Future, Member: "gone"}, {Score: lab.Future + 1, Member: "gone too"}, {Score: lab.Future + 2, Member: q.Name()}, {Score: lab.Future + 3, Member: "later"}}
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), waiting...).Err())
			require.NoError(t, call(ctx, q))
			require.Equal(t, []string{"later"}, c.ZRange(ctx, lab.Key(q, "w"), 0, -1).Val())
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
	q, c := lab.NewQueue(t, nil)
	// A take whose reply is cut leaves its job leased; it comes back soon.
	through, err := queue.New(cut, q.Name(), &queue.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	got := make(chan struct{}, 100)
	idleConsumers(t, c, through, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for range 20 {
		proxy.CutAll()
		lab.Push(t, q, queue.Job{})
		select {
		case <-got:
		case <-time.After(soonAwake):
			t.Fatal("a job was not noticed")
		}
	}
}

// To wake a consumer is only a hint: a user that may not do it does the work all the same.
func TestScriptsThatMayNotWakeDoTheirWork(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin, ctx := server.Client(), t.Context()
	users := map[string]*redis.Client{"all": admin}
	for _, command := range []string{"zpopmin", "publish"} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", command, "reset", "on", ">pw", "~*", "&*", "+@all", "-"+command).Err())
		users[command] = server.Client(func(o *redis.Options) { o.Username, o.Password = command, "pw" })
	}
	woke := make(map[string]bool)
	for i, call := range scriptcase.ScriptCalls() {
		if !strings.Contains(*call.Script.Source, "'ZPOPMIN', wake") {
			continue
		}
		for user, client := range users {
			k := fmt.Sprint("wake", i, user)
			require.NoError(t, call.Prepare(ctx, admin, k))
			wake := "{" + k + "}:w"
			require.NoError(t, admin.ZAdd(ctx, wake, redis.Z{Score: lab.Future, Member: "nobody"}).Err())
			_, err := call.Run(ctx, client, k)
			require.NoError(t, err, "%s without %s", call.Script.Name, user)
			if user == "all" && admin.ZCard(ctx, wake).Val() == 0 {
				woke[call.Script.Name] = true
			}
		}
	}
	for _, name := range []string{"queue_push", "queue_push_many", "queue_take", "queue_nack", "queue_requeue", "queue_mend"} {
		require.True(t, woke[name], "%s wakes nobody here", name)
	}
}
