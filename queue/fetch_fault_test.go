package queue_test

import (
	"context"
	"net"
	"strconv"
	"sync"
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

// The subscription is cut when a job is pushed. The consumer takes again once it is subscribed.
func TestConsumerTakesAgainAfterACutSubscription(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	cut := redis.NewClient(opts)
	defer cut.Close()
	q, c := lab.NewQueue(t, nil)
	// A take whose reply is cut leaves its job leased; a short lease returns it soon.
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
			t.Fatal("the consumer did not take a job")
		}
	}
}

// A push skips a waiter whose process is dead and notifies the next one, in the same script.
func TestDeadConsumersAreSkipped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	got := make(chan struct{}, 1)
	idleConsumers(t, c, q, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for _, ghost := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Score: 1, Member: "ghost-" + ghost}).Err())
	}
	lab.Push(t, q, queue.Job{})
	select {
	case <-got:
	case <-time.After(soonAwake):
		t.Fatal("no live consumer was notified")
	}
}

// A push notifies a live consumer behind a fleet of killed ones, whether the time of their wait is over or not.
func TestDeadFleetIsSkipped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	got := make(chan struct{}, 1)
	idleConsumers(t, c, q, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for i := range 1000 {
		score := float64(1)
		if i < 40 {
			score = float64(c.Time(ctx).Val().UnixMilli() + 5000)
		}
		ghost := redis.Z{Score: score, Member: "ghost-" + strconv.Itoa(i)}
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), ghost).Err())
	}
	lab.Push(t, q, queue.Job{})
	select {
	case <-got:
	case <-time.After(soonAwake):
		t.Fatal("the live consumer was not notified")
	}
}

// A subscription over which nothing comes any more, while all other connections are healthy, delays jobs for at most
// five seconds.
func TestHalfOpenSubscriptionIsNoticed(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	q, c := lab.NewQueue(t, nil)
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	dial, direct := opts.Dialer, true
	if dial == nil {
		dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}
	var mu sync.Mutex
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if direct {
			return dial(ctx, network, addr)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", proxy.Addr())
	}
	opts.PoolSize, opts.PipelinePoolSize = 1, -1 // no connection but that of the subscription is dialed later
	half := redis.NewClient(opts)
	defer half.Close()
	require.NoError(t, half.Ping(t.Context()).Err())
	mu.Lock()
	direct = false // the next connection is that of the subscription
	mu.Unlock()
	through, err := queue.New(half, q.Name(), nil)
	require.NoError(t, err)
	got := make(chan struct{}, 100)
	idleConsumers(t, c, through, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	mu.Lock()
	direct = true
	mu.Unlock()
	proxy.Blackhole(true)
	blackholed := time.Now()
	lab.Push(t, q, queue.Job{})
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Fatal("the consumer did not take the job")
	}
	require.Less(t, time.Since(blackholed), 15*time.Second, "4.1 s, on a machine that has time for it")
	best := time.Hour
	for range 20 { // and the next ones not at all
		start := time.Now()
		lab.Push(t, q, queue.Job{})
		lab.Soon(t, 20*time.Second, "the next job", got)
		best = min(best, time.Since(start))
	}
	require.Less(t, best, 2*time.Second)
}

// A consumer goes on within half a second after its server has come back.
func TestConsumerGoesOnSoonAfterARestart(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	q, err := queue.New(server.Client(), "q", nil)
	require.NoError(t, err)
	got := make(chan struct{}, 100)
	idleConsumers(t, server.Client(), q, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	best := time.Minute
	for range 5 {
		server.Kill()
		time.Sleep(3 * time.Second) // the back-offs have reached their longest waits
		server.Restart()
		other, err := queue.New(server.Client(), "q", nil)
		require.NoError(t, err)
		start := time.Now()
		lab.Push(t, other, queue.Job{})
		select {
		case <-got:
		case <-time.After(20 * time.Second):
			t.Fatal("the consumer did not go on")
		}
		t.Logf("after %v", time.Since(start))
		if best = min(best, time.Since(start)); best < time.Second {
			break
		}
	}
	require.Less(t, best, 2*time.Second) // a busy machine delays some
}

// master is a server that another one replaces, while it lives on, and a queue on a client that dials the one of now.
type master struct {
	before, after *luatomictest.Server
	address       atomic.Pointer[string]
	queue         *queue.Queue
}

func newMaster(t *testing.T) *master {
	t.Helper()
	m := &master{before: luatomictest.StartServer(t), after: luatomictest.StartServer(t)}
	m.dial(m.before)
	m.queue = lab.Must(queue.New(m.before.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", *m.address.Load())
		}
	}), "q", nil))
	return m
}

func (m *master) dial(s *luatomictest.Server) {
	at := s.Addr()
	m.address.Store(&at)
}

// subscribed reports that a waiter of the queue is subscribed at the server.
func (m *master) subscribed(t *testing.T, s *luatomictest.Server) bool {
	return len(s.Client().PubSubChannels(t.Context(), lab.Key(m.queue, "w:*")).Val()) == 1
}

// replace replaces the server once the waiter is subscribed there.
func (m *master) replace(t *testing.T) {
	t.Helper()
	luatomictest.Eventually(t, 30*time.Second, "it is subscribed", func() bool { return m.subscribed(t, m.before) })
	m.dial(m.after)
	require.NoError(t, m.before.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
}

// followed returns when a waiter is subscribed at the new server, although no notification was lost.
func (m *master) followed(t *testing.T) {
	t.Helper()
	luatomictest.Eventually(t, 30*time.Second, "it is subscribed at the new server", func() bool {
		return m.subscribed(t, m.after)
	})
}

// The master is replaced, and the old one lives on: it has the subscription of a poller, and gets no push any more.
func TestPollerFollowsAMasterThatWasReplacedAndLives(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m := newMaster(t)
	var polling sync.WaitGroup
	polling.Go(func() { _ = queue.NewPoller(&queue.PollerOptions{Idle: time.Minute}, m.queue).Run(ctx) })
	t.Cleanup(polling.Wait)
	t.Cleanup(cancel)
	m.replace(t)
	m.followed(t)
}

// A call that the end of a consumer, or of a poller, cuts off may have left its name among the waiters: it is removed.
func TestStopDuringATakeLeavesNoWaiter(t *testing.T) {
	t.Parallel()
	const idle = 50 * time.Millisecond
	for script, run := range map[*lua.Script]func(context.Context, *queue.Queue) error{
		&queuescript.TakeScript: func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Consume(ctx, &queue.ConsumeOptions{Idle: idle},
				func(context.Context, *queue.Delivery) error { return nil })
			return err
		},
		&queuescript.PromoteScript: func(ctx context.Context, q *queue.Queue) error {
			return queue.NewPoller(&queue.PollerOptions{Idle: idle}, q).Run(ctx)
		},
	} {
		q, c := lab.NewQueue(t, nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		watched := luatomictest.Client(t)
		watched.AddHook(&lab.Around{Sha: lab.Digest(script), Do: func(run func() error) error {
			err := run()
			if c.ZCard(context.Background(), lab.Key(q, "w")).Val() == 1 {
				stop()
				return ctx.Err()
			}
			return err
		}})
		require.ErrorIs(t, run(ctx, lab.Must(queue.New(watched, q.Name(), nil))), context.Canceled)
		require.Zero(t, c.Exists(t.Context(), lab.Key(q, "w")).Val())
	}
}

// A consumer follows the master, too.
func TestConsumerFollowsAMasterThatWasReplacedAndLives(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	got := make(chan string, 1)
	consumeAll(t, &queue.ConsumeOptions{Idle: time.Minute},
		func(_ context.Context, d *queue.Delivery) error {
			got <- d.ID
			return nil
		}, []*queue.Queue{m.queue})
	m.replace(t)
	m.followed(t)
	lab.Push(t, m.queue, queue.Job{ID: "late"})
	require.Equal(t, "late", lab.Soon(t, 30*time.Second, "it is notified", got))
}
