package rpc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
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
	node, err := rpc.NewBus(c, name, &rpc.Options{Lease: nodeLease})
	require.NoError(t, err)
	require.NoError(t, rpc.NewMethod[string, string]("never").Serve(node, lab.Upper))
	require.NoError(t, fail.Serve(node, func(context.Context, string) (string, error) { return "", context.Canceled }))
	require.NoError(t, lab.Echo.Serve(node, func(_ context.Context, s string) (string, error) {
		if s == "wait" {
			<-release
		}
		return s, nil
	}))
	lab.RunBus(t, node)
	t.Cleanup(end) // before the bus stops, which waits for handlers
	require.NoError(t, node.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	_, err = fail.Call(ctx, caller, "")
	require.Error(t, err)
	for range 3 {
		_, err := lab.Echo.Call(ctx, caller, "")
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, "wait")
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

// The guards of the scripts that ask many, own connections, send parts and keep the
// list of nodes.
func TestRPCScriptsThatKeepLists(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	method, nodes, about := "{"+k+"}:m:x", "{"+k+"}:nodes", "{"+k+"}:about"
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "dead"}, redis.Z{Score: lab.Future,
		Member: "unreachable"}).Err())
	require.NoError(t, c.ZAdd(ctx, method, redis.Z{Member: "dead"}, redis.Z{Member: "unreachable"}).Err())
	for _, node := range []string{"n", "dead"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+node))
	}
	gather := gen.RPCGatherParams{Nodes: nodes, Method: method, Gather: "{" + k + "}:g:9", Frame: []byte("f"),
		Caller: k, Outbox: k,
		Timeout: time.Minute, Keep: time.Hour}
	rows, err := gen.RPCGather(ctx, c, gather)
	require.NoError(t, err)
	require.ElementsMatch(t, []gen.RPCGatherRow{{Node: "n", Subscribed: true}, {Node: "unreachable"}}, rows,
		"a dead node is not asked, an unreachable one not expected")
	repeated, err := gen.RPCGather(ctx, c, gather)
	require.NoError(t, err)
	require.ElementsMatch(t, rows, repeated, "a repeat reports the same receivers")
	require.Equal(t, -4.0, c.ZScore(ctx, method, "n").Val(), "and asks no node again")
	cast, err := gen.RPCCast(ctx, c, gen.RPCCastParams{Nodes: nodes, Method: method, Frame: []byte("f"), Outbox: k,
		Timeout: time.Minute, All: true})
	require.NoError(t, err)
	require.Equal(t, int64(1), cast.Sent, "neither the dead nor the unreachable")

	large := "d" + strings.Repeat("x", 600_000)
	require.NoError(t, c.HSet(ctx, gather.Gather, "n:a", large, "n:b", large, "n:c", large).Err())
	parts, err := gen.RPCParts(ctx, c, gen.RPCPartsParams{Gather: gather.Gather, Wants: []string{"a", "b", "c", "n"}})
	require.NoError(t, err)
	require.Len(t, parts, 2, "a megabyte, and the rest later")

	binding := "{" + k + "}:k:9"
	bound, err := gen.RPCBind(ctx, c, gen.RPCBindParams{Binding: binding, Nodes: nodes, Node: "n",
		From: lua.Some("other"), Keep: time.Hour})
	require.NoError(t, err)
	require.False(t, bound.Bound, "taken from a node that does not own it")
	require.NoError(t, c.Set(ctx, binding, "n", time.Hour).Err())
	mine, err := gen.RPCUnbind(ctx, c, gen.RPCUnbindParams{Binding: binding, Node: "other"})
	require.NoError(t, err)
	require.False(t, mine)

	require.NoError(t, scriptcase.Asked(ctx, c, k))
	record := "{" + k + "}:r:1"
	chunk := func(node string, attempt int64) gen.RPCChunkState {
		r, err := gen.RPCChunk(ctx, c, gen.RPCChunkParams{Record: record, Chunks: "{" + k + "}:s:9", Node: node,
			Attempt: attempt, Seq: 1,
			Frame: []byte("f"), Outbox: k, Keep: time.Hour})
		require.NoError(t, err)
		return r.State
	}
	require.Equal(t, gen.RPCChunkStateStale, chunk("other", 1))
	require.Equal(t, gen.RPCChunkStateStale, chunk("n", 2))
	require.Equal(t, gen.RPCChunkStateAccepted, chunk("n", 1))
	require.NoError(t, c.Set(ctx, record, "x", time.Hour).Err())
	require.Equal(t, gen.RPCChunkStateMissing, chunk("n", 1), "given up")

	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "n"}).Err())
	_, err = gen.RPCJoin(ctx, c, gen.RPCJoinParams{Nodes: nodes, About: about, Node: "n", Lease: time.Minute,
		Stay: time.Hour, Text: "{}", Outbox: k, Notice: []byte("P")})
	require.NoError(t, err)
	require.Equal(t, []string{"n", "unreachable"}, c.ZRange(ctx, nodes, 0, -1).Val(),
		"a node that comes back late is listed, the dead are not")
	for _, stay := range []bool{true, false} {
		_, err = gen.RPCLeave(ctx, c, gen.RPCLeaveParams{Nodes: nodes, About: about, Methods: []string{method}, Node: "n",
			Stay: stay})
		require.NoError(t, err)
		require.Equal(t, stay, c.ZScore(ctx, nodes, "n").Err() == nil, "it stays until its handlers are done")
		require.ErrorIs(t, c.ZScore(ctx, method, "n").Err(), redis.Nil)
	}
}
