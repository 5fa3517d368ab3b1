package queue_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Several pollers and a worker run concurrently: each job moves once, and none before its time.
// The end of its context is no error of a poller, whatever kind of end it is.
func TestAPollerDoesNotReportItsOwnEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := luatomictest.Client(t)
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.PromoteScript), Do: func(run func() error) error {
		<-ctx.Done()
		return run()
	}})
	q := lab.Must(queue.New(c, luatomictest.Namespace(t), nil))
	report := func(_ *queue.Queue, err error) { t.Errorf("reported: %v", err) }
	require.ErrorIs(t, queue.NewPoller(&queue.PollerOptions{OnError: report}, q).Run(ctx), context.DeadlineExceeded)
}

func TestPollersMoveEachJobOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	const n = queue.MaxTake
	jobs := lab.Bodies(n)
	for i := range jobs {
		jobs[i].Delay = time.Duration(i%100+1) * time.Millisecond
	}
	pushed, err := q.Push(t.Context(), jobs...)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	moved := 0
	opts := &queue.PollerOptions{OnPromote: func(_ *queue.Queue, p queue.Promoted) {
		mu.Lock()
		defer mu.Unlock()
		moved += p.Moved
	}}
	var pollers sync.WaitGroup
	for range 4 {
		pollers.Go(func() { require.ErrorIs(t, queue.NewPoller(opts, q).Run(ctx), context.Canceled) })
	}
	luatomictest.Eventually(t, 30*time.Second, "all moves are reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return moved >= n
	})
	cancel()
	pollers.Wait()
	require.Equal(t, n, moved)
	require.EqualValues(t, n, c.LLen(t.Context(), lab.Key(q, "r")).Val())
	taken, err := q.Take(t.Context(), n)
	require.NoError(t, err)
	at := make(map[string]time.Time)
	for i, id := range pushed.IDs {
		at[id] = pushed.Now.Add(jobs[i].Delay)
	}
	for _, d := range taken.Deliveries {
		require.False(t, d.EnqueuedAt.Before(at[d.ID]), "job %s became ready early", d.ID)
		delete(at, d.ID)
	}
	require.Empty(t, at)
}

func TestPollerReturnsAtOnceAndReportsErrors(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	down, err := queue.New(c, "down", nil)
	require.NoError(t, err)
	idle, _ := lab.NewQueue(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- queue.NewPoller(&queue.PollerOptions{Idle: time.Hour}, idle, down).Run(ctx) }()
	luatomictest.Eventually(t, 5*time.Second, "the poller is asleep", func() bool {
		return c.PoolStats().Misses > 0
	})
	start := time.Now()
	cancel(context.Canceled)
	require.ErrorIs(t, <-done, context.Canceled)
	require.Less(t, time.Since(start), 10*time.Second, "it slept for an hour")
}

// Very many jobs are due: each script is short, and the server answers others in between. The drill uses a million
// jobs, a normal run a tenth of that.
func TestManyDueAtOnceDoNotBlockTheServer(t *testing.T) {
	n := 100_000
	if os.Getenv("LUATOMIC_DRILL") != "" {
		n = 1_000_000
	}
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	load := redis.NewScript(`for i = ARGV[1], ARGV[2] do redis.call('ZADD', KEYS[1], 1, 'job-' .. i) end return 1`)
	for i := 0; i < n; i += 10_000 {
		require.NoError(t, load.Run(ctx, c, []string{"{q}:s"}, i, i+9_999).Err())
	}
	require.NoError(t, c.ConfigSet(ctx, "slowlog-log-slower-than", "2000").Err())
	require.NoError(t, c.Do(ctx, "SLOWLOG", "RESET").Err())

	before := lab.Calls(t, c)["evalsha"]
	stop, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = queue.NewPoller(nil, q).Run(stop)
	}()
	var pings []time.Duration
	for start := time.Now(); len(pings) == 0 || c.ZCard(ctx, "{q}:s").Val() > 0; {
		require.Less(t, time.Since(start), 5*time.Minute)
		begin := time.Now()
		require.NoError(t, c.Ping(ctx).Err())
		pings = append(pings, time.Since(begin))
	}
	cancel()
	<-done
	require.Equal(t, int64(n), c.LLen(ctx, "{q}:r").Val())
	require.GreaterOrEqual(t, lab.Calls(t, c)["evalsha"]-before, n/queue.MaxBatch, "no step moves more than that")
	slices.Sort(pings)
	t.Logf("%d due: %d pings meanwhile, p50 %v, p99.9 %v, the longest %v", n, len(pings),
		pings[len(pings)/2], pings[len(pings)*999/1000], pings[len(pings)-1])
	slow := 0
	for _, entry := range lab.Must(c.SlowLogGet(ctx, 128).Result()) {
		if entry.Args[0] == "evalsha" && entry.Duration > 50*time.Millisecond {
			slow++
		}
	}
	// A step takes under a millisecond. A busy machine interrupts some.
	require.LessOrEqual(t, slow, n/queue.MaxBatch/3, "scripts over 50 ms")
	require.Less(t, pings[len(pings)/2], 200*time.Millisecond, "half of the pings")
}

// A poller that was notified waits again under its own name, once. It notifies a consumer of ready jobs only.
func TestThePollerWaitsAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	promote := func(channel string) {
		_, err := queuescript.Promote(ctx, c, queuescript.PromoteParams{Scheduled: lab.Key(q, "s"),
			Ready: lab.Key(q, "r"), Wake: lab.Key(q, "w"), Max: 10, Waiter: channel, Wait: time.Minute})
		require.NoError(t, err)
	}
	const poller = "poller"
	require.NoError(t, lab.Subscribe(ctx, t, c, lab.Key(q, "w:"+poller)), "it would receive its own notification")
	promote(poller)
	require.Equal(t, []string{poller}, waiting(t, c, q))
	require.Positive(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), "the key expires")
	notified := listener(t, c, q, "consumer")
	promote(poller)
	require.Len(t, waiting(t, c, q), 2, "nothing is ready, so nobody is notified")
	promote("")
	require.Len(t, waiting(t, c, q), 2, "one without a name does not wait")
	scheduleDue(t, c, q, "j")
	promote(poller)
	require.Equal(t, []string{poller}, waiting(t, c, q), "it does not notify itself")
	require.NoError(t, c.Del(ctx, lab.Key(q, "w")).Err())
	notified()
}

// A waiter that leaves moves no job and waits no more. Another one is notified where there is a job, ready or
// scheduled. A promotion alone notifies nobody of scheduled jobs.
func TestAWaiterThatLeavesHasAnotherLook(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	promote := func(max int64, waiter string) {
		t.Helper()
		r, err := queuescript.Promote(ctx, c, queuescript.PromoteParams{Scheduled: lab.Key(q, "s"),
			Ready: lab.Key(q, "r"), Wake: lab.Key(q, "w"), Max: max, Waiter: waiter})
		require.NoError(t, err)
		require.Zero(t, r.Moved)
	}
	leaves := func() {
		t.Helper()
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Member: "leaves", Score: lab.Future}).Err())
		promote(0, "leaves")
	}
	leaves()
	require.Empty(t, waiting(t, c, q), "it waits no more")
	notified := listener(t, c, q, "other")
	leaves()
	require.Equal(t, []string{"other"}, waiting(t, c, q), "there is no job")
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: lab.Future, Member: "later"}).Err())
	promote(1, "")
	require.Equal(t, []string{"other"}, waiting(t, c, q), "a promotion says nothing of what the others know")
	scheduleDue(t, c, q, "due")
	leaves()
	notified()
	require.NoError(t, c.Del(ctx, lab.Key(q, "s")).Err())
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:due").Err())
	notified = listener(t, c, q, "another")
	leaves()
	notified()
}

// An earlier job wakes a poller that sleeps until a later one. A poller that ready jobs wake passes the
// notification on to a consumer.
func TestAnEarlierJobWakesThePoller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{Delay: time.Hour})
	done := make(chan error, 1)
	go func() { done <- queue.NewPoller(&queue.PollerOptions{Idle: asleep}, q).Run(ctx) }()
	luatomictest.Eventually(t, soonAwake, "the poller waits", waitersAre(t, c, q, 1))
	lab.Push(t, q, queue.Job{ID: "earlier", Delay: 20 * time.Millisecond})
	luatomictest.Eventually(t, soonAwake, "the earlier job is ready",
		func() bool { return c.LLen(ctx, lab.Key(q, "r")).Val() == 1 })
	require.Equal(t, "earlier", lab.TakeOne(t, q).ID)

	got := make(chan string, 1)
	idleConsumers(t, c, q, 1, func(_ context.Context, d *queue.Delivery) error {
		got <- d.ID
		return nil
	})
	luatomictest.Eventually(t, soonAwake, "both wait", waitersAre(t, c, q, 2))
	// The poller has waited longest, so it is notified first.
	first := redis.Z{Score: float64(time.Now().Add(soonAwake).UnixMilli()), Member: waiting(t, c, q)[0]}
	require.NoError(t, c.ZAddArgs(ctx, lab.Key(q, "w"), redis.ZAddArgs{XX: true, Members: []redis.Z{first}}).Err())
	lab.Push(t, q, queue.Job{ID: "ready"})
	select {
	case id := <-got:
		require.Equal(t, "ready", id)
	case <-time.After(soonAwake):
		t.Fatal("the poller did not notify the consumer")
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A push notifies no waiter of a job later than the one it waits for. The waiter here is a channel with a
// subscriber; it stays among the waiters until it is notified.
func TestALaterJobWakesNobody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, lab.Subscribe(ctx, t, c, q.Name()))
	notified := func(jobs ...queue.Job) [2]bool {
		var out [2]bool
		for i, add := range []func() error{
			func() error { _, err := q.Push(ctx, jobs...); return err },
			func() error { _, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: jobs}); return err },
		} {
			require.NoError(t, c.Del(ctx, lab.Key(q, "s")).Err())
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"),
				redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "known"}).Err())
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Score: lab.Future, Member: q.Name()}).Err())
			require.NoError(t, add())
			out[i] = c.ZCard(ctx, lab.Key(q, "w")).Val() == 0
		}
		return out
	}
	later, earlier := queue.Job{Delay: 2 * time.Hour}, queue.Job{Delay: time.Minute}
	require.Equal(t, [2]bool{false, false}, notified(later))
	require.Equal(t, [2]bool{true, true}, notified(earlier, later))
	require.Equal(t, [2]bool{true, true}, notified(queue.Job{}))
	require.Equal(t, [2]bool{true, true}, notified(queue.Job{}, later))
}

// A promotion notifies the consumer that has waited longest, and only that one. A name without a subscriber is that of
// a dead process: the next one is notified in its place.
func TestAPromotionNotifiesOneConsumer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "soon", Delay: time.Millisecond})
	wake := lab.Key(q, "w")
	for i, name := range []string{"dead", "first", "second"} {
		require.NoError(t, c.ZAdd(ctx, wake, redis.Z{Score: lab.Future + float64(i), Member: name}).Err())
	}
	inbox := c.Subscribe(ctx, wake+":first", wake+":second")
	defer inbox.Close()
	for range 2 {
		_, err := inbox.Receive(ctx)
		require.NoError(t, err)
	}
	luatomictest.Eventually(t, 10*time.Second, "the job is moved", func() bool {
		r, err := queuescript.Promote(ctx, c, queuescript.PromoteParams{Scheduled: lab.Key(q, "s"),
			Ready: lab.Key(q, "r"), Wake: wake, Max: 10})
		require.NoError(t, err)
		return r.Moved == 1
	})
	message, err := inbox.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, wake+":first", message.Channel)
	require.Equal(t, []string{"second"}, c.ZRange(ctx, wake, 0, -1).Val())
}
