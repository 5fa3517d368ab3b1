package rpc_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

func TestNodesCountTheirMethods(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	fail := rpc.NewMethod[string, string]("fail")
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	node, err := rpc.New(c, name, &rpc.Options{Lease: nodeLease})
	require.NoError(t, err)
	require.NoError(t, rpc.NewMethod[string, string]("never").Serve(node, lab.Upper, nil))
	require.NoError(t, fail.Serve(node, func(context.Context, string) (string, error) {
		return "", context.Canceled
	}, nil))
	require.NoError(t, lab.Echo.Serve(node, func(_ context.Context, s string) (string, error) {
		if s == "wait" {
			<-release
		}
		return s, nil
	}, nil))
	lab.RunBus(t, node)
	t.Cleanup(end) // before the bus stops, which waits for handlers
	require.NoError(t, node.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	_, err = fail.Call(ctx, caller, "", nil)
	require.Error(t, err)
	for range 3 {
		_, err := lab.Echo.Call(ctx, caller, "", nil)
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, "wait", nil)
		done <- err
	}()
	want := map[string]rpc.MethodCounts{"echo": {Running: 1, Handled: 3}, "fail": {Handled: 1, Failed: 1}}
	luatomictest.Eventually(t, 30*time.Second, "the counts are there", func() bool {
		nodes, err := caller.Nodes(ctx)
		require.NoError(t, err)
		for _, n := range nodes {
			if n.Node == node.Node() {
				for name, counts := range n.Counts {
					counts.Took = 0
					n.Counts[name] = counts
				}
				return len(n.Counts) == 2 && n.Counts["echo"] == want["echo"] && n.Counts["fail"] == want["fail"]
			}
		}
		return false
	})
	end()
	require.NoError(t, <-done)
}

// The guards of the scripts that list nodes, own connections, send parts and keep the list of nodes.
func TestRPCScriptsThatKeepLists(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	methods, nodes, about, serves := "{"+k+"}:methods", "{"+k+"}:nodes", "{"+k+"}:about", "{"+k+"}:serves"
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "dead"},
		redis.Z{Score: lab.Future + 0.25, Member: "unreachable"}).Err())
	require.NoError(t, c.ZAdd(ctx, methods, redis.Z{Member: "x\x00dead"}, redis.Z{Member: "x\x00unreachable"},
		redis.Z{Member: "xy\x00other"}, redis.Z{Member: "w\x00other"}).Err())
	for _, node := range []string{"n", "dead"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+node))
	}
	cast, err := rpcscript.Cast(ctx, c, rpcscript.CastParams{Nodes: nodes, Methods: methods, Method: "x",
		Frame:  []byte("f"),
		Outbox: k, Timeout: time.Minute, All: true})
	require.NoError(t, err)
	require.Equal(t, int64(1), cast.Sent, "neither the dead nor the unreachable")
	find := rpcscript.FindParams{Nodes: nodes, Methods: methods, Method: "x", Caller: k, Outbox: k}
	rows := lab.Must(rpcscript.Find(ctx, c, find))
	const alive, unreachable = rpcscript.FindStateAlive, rpcscript.FindStateUnreachable
	require.Equal(t, []rpcscript.FindRow{{Node: "dead"}, {Node: "n", State: alive},
		{Node: "unreachable", State: unreachable, Load: 250}}, rows)
	rows = lab.Must(rpcscript.Find(ctx, c, find))
	require.Equal(t, []rpcscript.FindRow{{Node: "n", State: alive}, {Node: "unreachable", State: unreachable,
		Load: 250}},
		rows, "the dead one is removed")
	find.After = lua.Some("n")
	require.Len(t, lab.Must(rpcscript.Find(ctx, c, find)), 1, "what comes after n")

	binding := "{" + k + "}:k:9"
	bind := rpcscript.BindParams{Binding: binding, Nodes: nodes, Node: "n", From: lua.Some("other"), Keep: time.Hour}
	require.False(t, lab.Must(rpcscript.Bind(ctx, c, bind)).Bound, "taken from a node that does not own it")
	require.NoError(t, c.Set(ctx, binding, "n", time.Hour).Err())
	free := rpcscript.BindParams{Binding: binding, Nodes: nodes, Node: "other"}
	require.False(t, lab.Must(rpcscript.Bind(ctx, c, free)).Bound, "freed by a node that does not own it")
	free.Node = "n"
	require.True(t, lab.Must(rpcscript.Bind(ctx, c, free)).Bound)
	require.Zero(t, c.Exists(ctx, binding).Val())

	require.NoError(t, scriptcase.Asked(ctx, c, k))
	record := "{" + k + "}:r:1"
	chunk := func(node string, attempt int64) rpcscript.ChunkResult {
		r, err := rpcscript.Chunk(ctx, c, rpcscript.ChunkParams{Record: record, Chunks: "{" + k + "}:s:9", Node: node,
			Attempt: attempt, Seq: 1,
			Frame: []byte("f"), Outbox: k, Keep: time.Hour})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, rpcscript.ChunkResultStale, chunk("other", 1))
	require.Equal(t, rpcscript.ChunkResultStale, chunk("n", 2))
	require.Equal(t, rpcscript.ChunkResultAccepted, chunk("n", 1))
	require.NoError(t, c.Set(ctx, record, "x", time.Hour).Err())
	require.Equal(t, rpcscript.ChunkResultMissing, chunk("n", 1), "given up")

	// A dead node goes with its methods, one that comes back late stays and learns that it was not known.
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "n"},
		redis.Z{Score: lab.Past, Member: "dead"}).Err())
	require.NoError(t, c.ZAdd(ctx, methods, redis.Z{Member: "x\x00dead"}, redis.Z{Member: "y\x00dead"}).Err())
	require.NoError(t, c.HSet(ctx, serves, "dead\x000", "x", "dead\x001", "y").Err())
	join := rpcscript.JoinParams{Nodes: nodes, About: about, Methods: methods, Serves: serves, Node: "n",
		Lease: time.Minute,
		Load:  500, Stay: time.Hour, Text: "{}", Outbox: k, Notice: []byte("P"), Names: []string{"x", "z"}}
	require.False(t, lab.Must(rpcscript.Join(ctx, c, join)).Fresh)
	require.Equal(t, []string{"n", "unreachable"}, c.ZRange(ctx, nodes, 0, -1).Val())
	_, load := math.Modf(c.ZScore(ctx, nodes, "n").Val())
	require.InDelta(t, 0.5, load, 0.001)
	require.Equal(t, []string{"w\x00other", "x\x00n", "x\x00unreachable", "xy\x00other", "z\x00n"},
		c.ZRange(ctx, methods, 0, -1).Val())
	require.Equal(t, map[string]string{"n\x000": "x\nz"}, c.HGetAll(ctx, serves).Val())
	leave := rpcscript.LeaveParams{Nodes: nodes, About: about, Methods: methods, Serves: serves, Node: "n", Stay: true,
		Names: []string{"z"}}
	lab.Must(rpcscript.Leave(ctx, c, leave))
	require.Equal(t, []string{"w\x00other", "x\x00n", "x\x00unreachable", "xy\x00other"},
		c.ZRange(ctx, methods, 0, -1).Val(), "one method alone")
	for _, stay := range []bool{true, false} {
		leave.Stay, leave.Names = stay, nil
		lab.Must(rpcscript.Leave(ctx, c, leave))
		require.Equal(t, stay, c.ZScore(ctx, nodes, "n").Err() == nil, "it stays until its handlers are done")
		require.ErrorIs(t, c.ZScore(ctx, methods, "x\x00n").Err(), redis.Nil)
	}
	join.Names = nil
	require.True(t, lab.Must(rpcscript.Join(ctx, c, join)).Fresh, "its methods are to be given")
}
