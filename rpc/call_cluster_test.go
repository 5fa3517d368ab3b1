package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// home is the node that owns the slot of a bus.
func home(t *testing.T, cluster *luatomictest.Cluster, bus string) (slot, owner int) {
	t.Helper()
	slot, err := cluster.Slot(t.Context(), "rpc:{"+bus+"}:nodes")
	require.NoError(t, err)
	owner, err = cluster.Owner(t.Context(), slot)
	require.NoError(t, err)
	return slot, owner
}

// moveSlot moves the slot of a bus to the next node, 100 keys at a time.
func moveSlot(t *testing.T, cluster *luatomictest.Cluster, bus string) {
	t.Helper()
	slot, from := home(t, cluster, bus)
	m, err := cluster.MigrateSlot(t.Context(), slot, from, (from+1)%3)
	require.NoError(t, err)
	for {
		n, err := m.Move(t.Context(), 100)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	require.NoError(t, m.Finish(t.Context()))
}

// door allows connections or refuses them, and cuts the open ones.
type door struct {
	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func (d *door) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.New("the door is closed")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		d.conns = append(d.conns, conn)
	}
	return conn, err
}

// cut closes the door, with what is inside.
func (d *door) cut() {
	d.set(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
}

func (d *door) set(closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = closed
}

func (d *door) client(cluster *luatomictest.Cluster) *redis.ClusterClient {
	return cluster.Client(func(o *redis.ClusterOptions) { o.Dialer = d.dial })
}

// evals counts how often a client runs rpc_call.
type evals struct{ n atomic.Int64 }

func (e *evals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *evals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *evals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && fmt.Sprint(args[1]) == lab.Digest(&rpcscript.CallScript) {
			e.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// All kinds of calls in a cluster. Messages stay on the server that owns the
// slot: the others receive none of it.
func TestRPCOnACluster(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 5 * time.Minute, Timeout: time.Minute} // what a message misses is looked for too late
	entered, notified := make(chan struct{}), make(chan struct{})
	var casts atomic.Int64
	for i := range 2 {
		b := lab.Serving(t, lab.Echo, cluster.Client(), "bus", opts, lab.Upper)
		require.NoError(t, rpc.NewMethod[string, string]("cast").Serve(b, func(_ context.Context, s string) (string,
			error) {
			casts.Add(1)
			return "", nil
		}, nil))
		require.NoError(t, hold.Serve(b, func(ctx context.Context, _ string) (string, error) {
			close(entered)
			<-ctx.Done()
			close(notified)
			return "", nil
		}, nil))
		require.NoError(t, count.Serve(b, func(_ context.Context, n int, send func(string) error) error {
			for i := range n {
				if err := send(fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		}))
		if i == 0 {
			err := b.Bind(ctx, "socket")
			require.NoError(t, err)
		}
	}
	caller := lab.OpenBus(t, cluster.Client(), "bus", opts)
	require.NoError(t, caller.Ready(ctx))
	luatomictest.Eventually(t, 20*time.Second, "both serve all", func() bool {
		return cluster.Client().ZLexCount(ctx, "rpc:{bus}:methods", "[count\x00", "(count\x01").Val() == 2
	})

	large := strings.Repeat("x", 200_000)
	for _, body := range []string{"x", large} {
		out, err := lab.Echo.Call(ctx, caller, body, nil)
		require.NoError(t, err)
		require.Equal(t, strings.ToUpper(body), out)
		out, err = lab.Echo.Call(ctx, caller, body, &rpc.CallOptions{Connection: "socket"})
		require.NoError(t, err)
		require.Equal(t, strings.ToUpper(body), out)
		n := 0
		for p, err := range lab.Echo.Gather(ctx, caller, body) {
			require.NoError(t, err)
			require.Equal(t, strings.ToUpper(body), p.Result)
			n++
		}
		require.Equal(t, 2, n)
	}
	n, err := rpc.NewMethod[string, string]("cast").CastAll(ctx, caller, "x")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, rpc.NewMethod[string, string]("cast").Cast(ctx, caller, "x"))
	luatomictest.Eventually(t, 20*time.Second, "the casts have run", func() bool { return casts.Load() == 3 })

	bounded, cancel := context.WithCancel(ctx)
	go func() {
		<-entered
		cancel()
	}()
	_, err = hold.Call(bounded, caller, "x", nil)
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-notified:
	case <-time.After(30 * time.Second): // half of the call's time
		t.Fatal("the handler's context has not ended")
	}
	parts := 0
	for part, err := range count.Call(ctx, caller, 1000) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(parts), part)
		parts++
	}
	require.Equal(t, 1000, parts)

	lab.Unmarked(t)
	_, owner := home(t, cluster, "bus")
	for i, node := range cluster.Nodes() {
		calls := lab.CommandCalls(t, node.Client())
		require.Zero(t, calls["publish"])
		require.Zero(t, calls["subscribe"])
		info := lab.Must(node.Client().ClusterInfo(ctx).Result())
		require.NotContains(t, info, "messages_publish_sent", "to all nodes")
		require.NotContains(t, info, "messages_publish_received")
		channels := lab.Must(node.Client().PubSubShardChannels(ctx, "*").Result())
		if i == owner {
			require.Len(t, channels, 4, "of three processes, and all")
			require.Positive(t, calls["spublish"])
		} else {
			require.Empty(t, channels)
			require.Zero(t, calls["spublish"])
		}
	}
}

// A process that is killed is not asked, while its lease still runs: others get its calls,
// and when there are none that is an answer after one round trip.
func TestRPCDeadNodeOnACluster(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 5 * time.Minute, Timeout: 2 * time.Minute}
	var doors [2]door
	for i := range doors {
		lab.Serving(t, lab.Echo, doors[i].client(cluster), "bus", opts, lab.Upper)
	}
	var e evals
	c := cluster.Client()
	c.AddHook(&e)
	caller := lab.OpenBus(t, c, "bus", opts)
	require.NoError(t, caller.Ready(ctx))
	_, owner := home(t, cluster, "bus")
	listening := func(n int) func() bool {
		return func() bool {
			return len(lab.Must(cluster.Nodes()[owner].Client().PubSubShardChannels(ctx, "rpc:{bus}:n:*").Result())) ==
				n
		}
	}
	luatomictest.Eventually(t, 20*time.Second, "all three are subscribed", listening(3))
	doors[0].cut()
	luatomictest.Eventually(t, 20*time.Second, "the server knows that one is dead", listening(2))
	start := time.Now()
	for range 50 {
		out, err := lab.Echo.Call(ctx, caller, "x", nil)
		require.NoError(t, err)
		require.Equal(t, "X", out)
	}
	answers, silent := 0, 0
	for _, err := range lab.Echo.Gather(ctx, caller, "x") {
		if err == nil {
			answers++
			continue
		}
		require.ErrorIs(t, err, rpc.ErrNoResponders)
		silent++
	}
	require.Equal(t, []int{1, 1}, []int{answers, silent})
	reached, err := lab.Echo.CastAll(ctx, caller, "x")
	require.NoError(t, err)
	require.Equal(t, 1, reached)

	doors[1].cut()
	luatomictest.Eventually(t, 20*time.Second, "the server knows that both are dead", listening(1))
	nodes, err := caller.Nodes(ctx)
	require.NoError(t, err)
	e.n.Store(0)
	_, err = lab.Echo.Call(ctx, caller, "x", nil)
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	require.ErrorContains(t, err, "no subscriber")
	require.Equal(t, int64(1), e.n.Load(), "one round trip")
	_, err = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Node: nodes[0].Node})
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	require.ErrorContains(t, err, "no subscriber")
	require.ErrorIs(t, lab.Echo.Cast(ctx, caller, "x"), rpc.ErrNoResponders)
	require.Less(t, time.Since(start), time.Minute, "no lease was waited for")
}
