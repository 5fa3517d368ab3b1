package rpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// unlisted waits until the server does not know that the node serves the method.
func unlisted(t *testing.T, bus string, node *rpc.Bus) {
	t.Helper()
	c := luatomictest.Client(t)
	luatomictest.Eventually(t, 20*time.Second, "the method is withdrawn", func() bool {
		return c.ZScore(t.Context(), "rpc:{"+bus+"}:methods", "echo\x00"+node.Node()).Err() != nil
	})
}

// The connection breaks while a heartbeat is on its way, and the first copy arrives after the method is withdrawn. The
// next heartbeat withdraws it again, though the node serves another method and lives.
func TestALateCopyOfAHeartbeatBringsNoMethodBack(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	far, h := lab.HoldUp(t, &rpcscript.JoinScript, 500*time.Millisecond)
	node, err := rpc.New(far, name, &quick)
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(node, lab.Upper, nil))
	require.NoError(t, rpc.NewMethod[string, string]("other").Serve(node, lab.Upper, nil))
	lab.RunBus(t, node)
	require.NoError(t, node.Ready(ctx))
	require.NoError(t, lab.Echo.Unserve(ctx, node))
	<-h.Arrived
	unlisted(t, name, node)
	_, err = lab.Echo.Call(ctx, lab.OpenBus(t, luatomictest.Client(t), name, nil), "x", nil)
	require.ErrorIs(t, err, rpc.ErrNoResponders)
}

// The server does not get what Unserve sends. A heartbeat withdraws the method.
func TestAHeartbeatWithdrawsWhatUnserveCouldNot(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lua.Direct(c) // the hook sees no shared round trip
	node := lab.Serving(t, lab.Echo, c, name, &quick, lab.Upper)
	require.NoError(t, rpc.NewMethod[string, string]("other").Unserve(ctx, node), "the script is loaded")
	short, cancel := context.WithCancel(ctx)
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.LeaveScript), Do: func(run func() error) error {
		if short.Err() != nil {
			return run()
		}
		cancel()
		return context.Canceled
	}})
	require.ErrorContains(t, lab.Echo.Unserve(short, node), "the next heartbeat withdraws it, or call Unserve again")
	unlisted(t, name, node)
}

// A method that is withdrawn and served again is the same one: its handlers count, those that run too.
func TestAMethodThatIsServedAgainKeepsItsLimitAndCounts(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.OpenBus(t, c, name, &rpc.Options{Lease: 15 * time.Second})
	entered, released := make(chan struct{}, 2), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	waits := func(_ context.Context, s string) (string, error) {
		entered <- struct{}{}
		<-released
		return s, nil
	}
	once := &rpc.ServeOptions{Concurrency: 1}
	require.NoError(t, hold.Serve(node, waits, once))
	require.NoError(t, node.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	first := startCall(t, hold, caller, "x")
	<-entered
	require.NoError(t, hold.Unserve(ctx, node))
	require.NoError(t, hold.Serve(node, waits, once))
	require.NoError(t, node.Ready(ctx))
	_, err := hold.Call(ctx, caller, "x", nil)
	require.ErrorIs(t, err, rpc.ErrOverloaded)
	release()
	require.NoError(t, (<-first).err)
	_, err = hold.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "both are counted", func() bool {
		require.NoError(t, lab.Echo.Serve(node, lab.Upper, nil), "it has a heartbeat sent")
		for _, n := range lab.Must(caller.Nodes(ctx)) {
			if n.Counts["hold"].Handled == 2 {
				return true
			}
		}
		return false
	})
}
