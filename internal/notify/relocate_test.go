package notify_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/luatomictest"
)

// oneMaster returns a client of a cluster whose one master is at the address that it is given.
func oneMaster(t *testing.T, addr *atomic.Value) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			master := redis.ClusterNode{Addr: addr.Load().(string)}
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{master}}}, nil
		},
		ReadTimeout: time.Second, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A master that is replaced at another address takes its subscriptions along, although no caller asks for that.
// Messages were lost meanwhile.
func TestSubscriptionsFollowAMasterThatIsReplaced(t *testing.T) {
	t.Parallel()
	first, second := luatomictest.StartServer(t), luatomictest.StartServer(t)
	var addr atomic.Value
	addr.Store(first.Addr())
	h := record(t, oneMaster(t, &addr))
	require.NoError(t, h.Subscribe(t.Context(), "a"))
	require.NoError(t, h.Subscribe(t.Context(), "b"))
	require.Zero(t, h.again.Load())
	addr.Store(second.Addr())
	first.Kill()
	luatomictest.Eventually(t, 20*time.Second, "both are subscribed at the new master", func() bool {
		return len(second.Client().PubSubChannels(t.Context(), "*").Val()) == 2
	})
	luatomictest.Eventually(t, 20*time.Second, "the gaps are reported", func() bool { return h.again.Load() == 2 })
}

// A channel without a server at first gets one as soon as there is one.
func TestASubscriptionWithoutAServerWaitsForOne(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": server.Addr()}, HeartbeatFrequency: 50 * time.Millisecond,
		ReadTimeout: 100 * time.Millisecond, DialTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = ring.Close() })
	server.Pause()
	t.Cleanup(server.Resume)
	luatomictest.Eventually(t, 20*time.Second, "the Ring has no shard", func() bool { return ring.Len() == 0 })
	h := record(t, ring)
	require.ErrorContains(t, h.Subscribe(t.Context(), "a"), "all ring shards are down")
	server.Resume()
	luatomictest.Eventually(t, 20*time.Second, "it is subscribed", func() bool { return h.Subscribed("a") })
}

// A hub whose client was closed, or whose channels were left, looks for no server any more.
func TestAHubOfAClosedClientLooksForNoServer(t *testing.T) {
	server := luatomictest.StartServer(t)
	for what, open := range map[string]func() redis.UniversalClient{
		"cluster": func() redis.UniversalClient {
			var addr atomic.Value
			addr.Store(server.Addr())
			return oneMaster(t, &addr)
		},
		"ring": func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
		},
	} {
		c := open()
		h := record(t, c)
		require.NoError(t, h.Subscribe(t.Context(), "a"))
		require.NoError(t, c.Close())
		luatomictest.Eventually(t, 20*time.Second, what+": nothing looks for a server", func() bool {
			return !strings.Contains(stacks(), "placeAll")
		})
		time.Sleep(2 * notify.MaxSearchWait)
		require.NotContains(t, stacks(), "placeAll", what)
	}
}

// stacks is what all goroutines do.
func stacks() string {
	room := make([]byte, 4<<20)
	return string(room[:runtime.Stack(room, true)])
}
