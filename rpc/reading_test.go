package rpc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A bus on a client that may read from replicas reads at the master: a replica may have less. This one has nothing.
func TestNothingIsReadFromAReplica(t *testing.T) {
	t.Parallel()
	ctx, master, replica := t.Context(), luatomictest.StartServer(t), luatomictest.StartServer(t)
	reading := func() *redis.ClusterClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{
			ReadOnly: true,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				nodes := []redis.ClusterNode{{Addr: master.Addr()}, {Addr: replica.Addr()}}
				return []redis.ClusterSlot{{End: 16383, Nodes: nodes}}, nil
			},
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	require.ErrorIs(t, reading().Get(ctx, "x").Err(), redis.Nil)
	node := lab.Serving(t, lab.Echo, reading(), "bus", &rpc.Options{Lease: time.Minute}, lab.Upper)
	own := reading()
	caller := lab.OpenBus(t, own, "bus", &rpc.Options{Lease: 300 * time.Millisecond, Timeout: 20 * time.Second})
	large := strings.Repeat("x", 10<<10)
	out, err := lab.Echo.Call(ctx, caller, large, nil)
	require.NoError(t, err)
	require.Equal(t, strings.ToUpper(large), out)

	require.NoError(t, node.Bind(ctx, "connection"))
	out, err = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Connection: "connection"})
	require.NoError(t, err)
	require.Equal(t, "X", out)

	// The lease of the node is read for a call that takes long.
	leave, read := make(chan struct{}), make(chan struct{}, 1)
	t.Cleanup(sync.OnceFunc(func() { close(leave) }))
	require.NoError(t, hold.Serve(node, func(context.Context, string) (string, error) {
		<-leave
		return "", nil
	}, nil))
	require.NoError(t, node.Ready(ctx))
	own.AddHook(&lab.Around{Sha: "rpc:{bus}:nodes", Do: func(run func() error) error { // the argument of ZSCORE
		defer func() {
			select {
			case read <- struct{}{}:
			default:
			}
		}()
		return run()
	}})
	_ = startCall(t, hold, caller, "x")
	lab.Soon(t, 20*time.Second, "the lease is read", read)
	require.Zero(t, lab.CommandCalls(t, replica.Client())["zscore"])
}
