package notify_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// proxied is a client of the server behind a proxy.
func proxied(t *testing.T, server *luatomictest.Server) (*redis.Client, *luatomictest.LossyProxy) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c, proxy
}

// recorder is a hub that counts.
type recorder struct {
	*notify.Hub
	messages, again atomic.Int32
}

func record(t *testing.T, c redis.UniversalClient) *recorder {
	r := &recorder{Hub: notify.NewHub(c)}
	r.Message = func(string, string) { r.messages.Add(1) }
	r.Confirmed = func(_ string, again bool) {
		if again {
			r.again.Add(1)
		}
	}
	t.Cleanup(r.Close)
	return r
}

// A connection over which nothing comes, and which is not closed, is replaced within 5 s, and the waiter checks again.
func TestHalfOpenConnectionIsReplacedWithin5s(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, proxy := proxied(t, server)
	h := record(t, client)
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	time.Sleep(100 * time.Millisecond)
	proxy.Blackhole(true)
	stopped := time.Now()
	require.Eventually(t, func() bool { return !h.Subscribed("c") }, 20*time.Second, 5*time.Millisecond,
		"the silence is noticed")
	require.Less(t, notify.NoticedWithin, 5*time.Second)
	t.Logf("noticed after %v", time.Since(stopped))
	proxy.Blackhole(false)
	require.Eventually(t, func() bool { return h.again.Load() > 0 && h.Subscribed("c") }, 10*time.Second,
		5*time.Millisecond, "it is subscribed again, and the waiter was notified of the gap")
}

// A connection that still delivers messages, but carries no request to the server, is replaced, too: the answers to its
// PINGs are missing.
func TestConnectionWithoutAnswersIsReplaced(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, proxy := proxied(t, server)
	admin := server.Client()
	h := record(t, client)
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	proxy.DropRequest(1, luatomictest.Command("PING")) // closes the connection: the PING is sent although messages come
	sent := time.Now()
	for h.again.Load() == 0 && time.Since(sent) < 10*time.Second {
		require.NoError(t, admin.Publish(t.Context(), "c", "m").Err())
		time.Sleep(20 * time.Millisecond)
	}
	require.Positive(t, h.again.Load())
	require.Less(t, time.Since(sent), 9*time.Second)
}

// After a restart of the server the subscription is back within half a second.
func TestSubscriptionIsBackSoonAfterARestart(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	h := record(t, server.Client())
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	best := time.Minute
	for range 8 {
		server.Kill()
		time.Sleep(2 * time.Second) // the back-off has reached its longest wait
		server.Restart()
		restarted := time.Now()
		require.Eventually(t, func() bool { return h.Subscribed("c") }, 10*time.Second, time.Millisecond)
		if best = min(best, time.Since(restarted)); best < time.Second {
			break
		}
	}
	require.Less(t, best, time.Second) // a busy machine delays some
	require.Positive(t, h.again.Load())
}

// All hubs of a client share one connection and its goroutine, and the last one closes it.
func TestHubsOfAClientShareAConnection(t *testing.T) {
	server := luatomictest.StartServer(t)
	client, admin := server.Client(), server.Client()
	subscribers := func() int {
		list, err := admin.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		return strings.Count(list, "\n")
	}
	before := runtime.NumGoroutine()
	hubs := make([]*recorder, 1000)
	for i := range hubs {
		hubs[i] = record(t, client)
		require.NoError(t, hubs[i].Subscribe(t.Context(), fmt.Sprint("c", i)))
	}
	require.Equal(t, 1, subscribers())
	require.Less(t, runtime.NumGoroutine()-before, 20)
	for i := range hubs {
		require.EqualValues(t, 1, admin.Publish(t.Context(), fmt.Sprint("c", i), "").Val())
	}
	require.Eventually(t, func() bool {
		for _, h := range hubs {
			if h.messages.Load() != 1 {
				return false
			}
		}
		return true
	}, 10*time.Second, 5*time.Millisecond, "each hub has its own message and no other")
	for _, h := range hubs {
		h.Close()
	}
	require.Eventually(t, func() bool { return subscribers() == 0 }, 10*time.Second, 5*time.Millisecond)
}

// A message that arrives while the last subscription ends still reaches the hub, which knows what it is for.
func TestMessageDuringUnsubscribeReachesTheHub(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, proxy := proxied(t, server)
	admin := server.Client()
	h := record(t, client)
	for range 20 {
		require.NoError(t, h.Subscribe(t.Context(), "c"))
		before := h.messages.Load()
		proxy.Blackhole(true)
		require.EqualValues(t, 1, admin.Publish(t.Context(), "c", "a grant").Val())
		h.Unsubscribe("c")
		proxy.Blackhole(false)
		require.Eventually(t, func() bool { return h.messages.Load() == before+1 }, 10*time.Second, time.Millisecond)
	}
}

// A channel that is refused leaves the others of the connection alone.
func TestRefusedChannelLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(),
		"ACL", "SETUSER", "some", "on", ">pw", "~*", "resetchannels", "&ok*", "+@all").Err())
	h := record(t, server.Client(func(o *redis.Options) { o.Username, o.Password = "some", "pw" }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, h.Subscribe(ctx, "ok"))
	for range 5 {
		require.ErrorContains(t, h.Subscribe(ctx, "refused"), "NOPERM")
		h.Unsubscribe("refused")
		require.True(t, h.Subscribed("ok"))
	}
	require.EqualValues(t, 1, admin.Publish(ctx, "ok", "").Val())
	require.Eventually(t, func() bool { return h.messages.Load() == 1 }, 10*time.Second, time.Millisecond)
	require.Zero(t, h.again.Load())
	admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub")
	require.Eventually(t, func() bool { return h.again.Load() == 1 }, 10*time.Second, time.Millisecond)
}

// A connection that is being dialed does not hold up what replaces it, nor a waiter that leaves a channel, nor a hub
// that leaves it to others.
func TestADialHoldsUpNobody(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	var slow atomic.Bool
	dialing, dialed := make(chan struct{}, 100), make(chan struct{})
	client := server.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if slow.Load() {
				dialing <- struct{}{}
				<-dialed
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	first, second := record(t, client), record(t, client)
	t.Cleanup(func() { close(dialed) })
	require.NoError(t, first.Subscribe(t.Context(), "first"))
	require.NoError(t, second.Subscribe(t.Context(), "second"))
	slow.Store(true)
	require.NoError(t, server.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	lab.Soon(t, 20*time.Second, "it is dialed again", dialing)
	replaced := make(chan struct{})
	go func() {
		defer close(replaced)
		for !first.Reconnect("first") { // once a second at most
			time.Sleep(10 * time.Millisecond)
		}
		first.Unsubscribe("first")
		second.Close()
	}()
	lab.Soon(t, 20*time.Second, "it is replaced, and left", replaced)
}

// A connection that breaks when no channel needs it is not made again: its server may be gone for good, as the old
// address of a shard is.
func TestABrokenConnectionWithoutAChannelEnds(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	h := record(t, server.Client())
	for range 2 {
		require.NoError(t, h.Subscribe(t.Context(), "c"))
		h.Unsubscribe("c")
		require.Equal(t, 1, h.Connections(), "it serves the next channel")
		server.Kill()
		require.Eventually(t, func() bool { return h.Connections() == 0 }, 20*time.Second, time.Millisecond)
		server.Restart()
	}
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	require.Positive(t, server.Client().Publish(t.Context(), "c", "").Val())
	require.Eventually(t, func() bool { return h.messages.Load() == 1 }, 20*time.Second, time.Millisecond)
}
