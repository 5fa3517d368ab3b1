package rpc_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A node binds its connections anew where the server has lost all that it knew: within two heartbeats, however many
// there are.
func TestConnectionsOutliveTheMemoryOfTheServer(t *testing.T) {
	t.Parallel()
	const connections = 2000
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	node := lab.Serving(t, lab.Echo, c, "bus", &rpc.Options{Lease: 6 * time.Second}, lab.Upper)
	for i := range connections {
		require.NoError(t, node.Bind(ctx, strconv.Itoa(i)))
	}
	require.NoError(t, c.FlushAll(ctx).Err())
	luatomictest.Eventually(t, 10*time.Second, "all are bound again", func() bool {
		keys, err := c.Keys(ctx, "rpc:{bus}:k:*").Result()
		return err == nil && len(keys) == connections
	})
	_, err := lab.Echo.Call(ctx, node, "", &rpc.CallOptions{Connection: "7"})
	require.NoError(t, err)
	require.Zero(t, node.DueBindings())
}

// ownerOfX is a node that owns the connection x, and sends no heartbeat by itself.
func ownerOfX(t *testing.T, c redis.UniversalClient, name string) *rpc.Bus {
	t.Helper()
	node := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour})
	require.NoError(t, node.Bind(t.Context(), "x"))
	require.Zero(t, node.DueBindings())
	return node
}

// heartbeat has the node send one.
func heartbeat(t *testing.T, node *rpc.Bus) {
	t.Helper()
	require.NoError(t, lab.Echo.Serve(node, lab.Upper, nil))
	require.NoError(t, node.Ready(t.Context()))
}

// A node whose lease was over learns that another one has its connection, although that was bound a moment ago.
func TestANodeWhoseLeaseWasOverLooksAfterItsConnections(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := ownerOfX(t, c, name)
	other := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Lease: time.Hour})
	require.NoError(t, other.Ready(ctx)) // it has sent its heartbeat, which removes nodes whose lease is over
	heartbeat(t, node)
	require.Zero(t, node.DueBindings(), "its lease is good")
	require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:nodes", redis.Z{Score: 1, Member: node.Node()}).Err())
	require.NoError(t, other.Bind(ctx, "x"))
	heartbeat(t, node)
	require.Equal(t, 1, node.DueBindings())
	node.RenewDoubted(ctx)
	require.False(t, node.Owns("x"))
}

// The reply to an Unbind is lost, and the repeat finds the connection free. Unbind says that the node owned it, unless
// another node has it by then.
func TestAnUnbindWhoseReplyIsLostOwnedTheConnection(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lossy, proxy := through(t)
	node := ownerOfX(t, lossy, name)
	for what, before := range map[string]func(){
		"owned": func() { require.NoError(t, node.Bind(ctx, "x")) },
		"free":  func() {},
		"taken": func() {
			require.NoError(t, node.Bind(ctx, "x"))
			require.NoError(t, c.Set(ctx, "rpc:{"+name+"}:k:x", "another", time.Minute).Err())
		},
	} {
		require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:k:x").Err())
		_, err := node.Unbind(ctx, "x")
		require.NoError(t, err)
		before()
		proxy.Drop(1, lab.Sent(&rpcscript.BindScript))
		owned, err := node.Unbind(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, what == "owned", owned, what)
	}
}

// The reply to the heartbeat is lost that says that the server did not know the node.
func TestALostReplyHidesNoLostConnections(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	lossy := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	t.Cleanup(func() { _ = lossy.Close() })
	node := ownerOfX(t, lossy, name)
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:nodes", "rpc:{"+name+"}:k:x").Err())
	proxy.Drop(1, lab.Sent(&rpcscript.JoinScript))
	heartbeat(t, node)
	require.Equal(t, 1, node.DueBindings())
	node.RenewDoubted(ctx)
	require.Equal(t, node.Node(), c.Get(ctx, "rpc:{"+name+"}:k:x").Val())
}

// A heartbeat that ends with an error half-way may have written the lease, so that the next one finds it.
func TestAHeartbeatThatEndsHalfWayHidesNoLostConnections(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	node := ownerOfX(t, own, name)
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:nodes", "rpc:{"+name+"}:k:x").Err())
	var failed atomic.Bool
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		if err := run(); err != nil || failed.Swap(true) {
			return err
		}
		return refusal("ERR a write after that was refused")
	}})
	require.NoError(t, lab.Echo.Serve(node, lab.Upper, nil))
	luatomictest.Eventually(t, 10*time.Second, "the heartbeat", failed.Load)
	heartbeat(t, node)
	require.Equal(t, 1, node.DueBindings())
}
