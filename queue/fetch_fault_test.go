package queue_test

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
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
	require.Less(t, time.Since(blackholed), 5*time.Second)
	for range 20 { // and the next ones not at all
		start := time.Now()
		lab.Push(t, q, queue.Job{})
		<-got
		require.Less(t, time.Since(start), 2*time.Second)
	}
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
	for range 3 {
		server.Kill()
		time.Sleep(1500 * time.Millisecond) // the back-offs have reached their longest waits
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
		best = min(best, time.Since(start))
	}
	require.Less(t, best, time.Second) // a busy machine delays some
}
