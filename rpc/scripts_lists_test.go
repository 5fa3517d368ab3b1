package rpc_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// The guards of the scripts that ask many, own connections, send parts and keep the
// list of nodes.
func TestRPCScriptsThatKeepLists(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	method, nodes, about := "{"+k+"}:m:x", "{"+k+"}:nodes", "{"+k+"}:about"
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "dead"}, redis.Z{Score: lab.Future, Member: "deaf"}).Err())
	require.NoError(t, c.ZAdd(ctx, method, redis.Z{Member: "dead"}, redis.Z{Member: "deaf"}).Err())
	for _, node := range []string{"n", "dead"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+node))
	}
	gather := gen.RPCGatherParams{Nodes: nodes, Method: method, Gather: "{" + k + "}:g:9", Frame: []byte("f"), Caller: k, Outbox: k,
		Timeout: time.Minute, Keep: time.Hour}
	rows, err := gen.RPCGather(ctx, c, gather)
	require.NoError(t, err)
	require.ElementsMatch(t, []gen.RPCGatherRow{{Node: "n", Heard: true}, {Node: "deaf"}}, rows, "a dead one is not asked, a deaf one not expected")
	repeated, err := gen.RPCGather(ctx, c, gather)
	require.NoError(t, err)
	require.ElementsMatch(t, rows, repeated, "a repeat says who heard")
	require.Equal(t, -4.0, c.ZScore(ctx, method, "n").Val(), "and asks nobody again")
	cast, err := gen.RPCCast(ctx, c, gen.RPCCastParams{Nodes: nodes, Method: method, Frame: []byte("f"), Outbox: k, Timeout: time.Minute, All: true})
	require.NoError(t, err)
	require.Equal(t, int64(1), cast.Sent, "neither the dead nor the deaf")

	large := "d" + strings.Repeat("x", 600_000)
	require.NoError(t, c.HSet(ctx, gather.Gather, "n:a", large, "n:b", large, "n:c", large).Err())
	parts, err := gen.RPCParts(ctx, c, gen.RPCPartsParams{Gather: gather.Gather, Wants: []string{"a", "b", "c", "n"}})
	require.NoError(t, err)
	require.Len(t, parts, 2, "a megabyte, and the rest later")

	binding := "{" + k + "}:k:9"
	bound, err := gen.RPCBind(ctx, c, gen.RPCBindParams{Binding: binding, Nodes: nodes, Node: "n", From: lua.Some("other"), Keep: time.Hour})
	require.NoError(t, err)
	require.False(t, bound.Bound, "taken from somebody who does not own it")
	require.NoError(t, c.Set(ctx, binding, "n", time.Hour).Err())
	mine, err := gen.RPCUnbind(ctx, c, gen.RPCUnbindParams{Binding: binding, Node: "other"})
	require.NoError(t, err)
	require.False(t, mine)

	require.NoError(t, scriptcase.Asked(ctx, c, k))
	record := "{" + k + "}:r:1"
	chunk := func(node string, attempt int64) gen.RPCChunkState {
		r, err := gen.RPCChunk(ctx, c, gen.RPCChunkParams{Record: record, Chunks: "{" + k + "}:s:9", Node: node, Attempt: attempt, Seq: 1,
			Frame: []byte("f"), Outbox: k, Keep: time.Hour})
		require.NoError(t, err)
		return r.State
	}
	require.Equal(t, gen.RPCChunkStateStale, chunk("other", 1))
	require.Equal(t, gen.RPCChunkStateStale, chunk("n", 2))
	require.Equal(t, gen.RPCChunkStateAccepted, chunk("n", 1))
	require.NoError(t, c.Set(ctx, record, "x", time.Hour).Err())
	require.Equal(t, gen.RPCChunkStateGone, chunk("n", 1), "given up")

	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "n"}).Err())
	_, err = gen.RPCJoin(ctx, c, gen.RPCJoinParams{Nodes: nodes, About: about, Node: "n", Lease: time.Minute, Stay: time.Hour, Text: "{}", Outbox: k, Word: []byte("P")})
	require.NoError(t, err)
	require.Equal(t, []string{"n", "deaf"}, c.ZRange(ctx, nodes, 0, -1).Val(), "one that comes back late is there, the dead are not")
	for _, stay := range []bool{true, false} {
		_, err = gen.RPCLeave(ctx, c, gen.RPCLeaveParams{Nodes: nodes, About: about, Methods: []string{method}, Node: "n", Stay: stay})
		require.NoError(t, err)
		require.Equal(t, stay, c.ZScore(ctx, nodes, "n").Err() == nil, "it stays until its handlers are done")
		require.ErrorIs(t, c.ZScore(ctx, method, "n").Err(), redis.Nil)
	}
}

// In a cluster: who listens is asked of the shard's own channels. Where the caller does not
// listen either, the slot is on its way, and the lease suffices, but for a cast.
func TestRPCScriptsOfACluster(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	method, nodes, record, gather := "{"+k+"}:m:x", "{"+k+"}:nodes", "{"+k+"}:r:1", "{"+k+"}:g:1"
	send := func() (out []string) {
		require.NoError(t, c.Del(ctx, record, gather).Err())
		require.NoError(t, scriptcase.Announced(ctx, c, k))
		call := lab.Must(gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: nodes, Method: method, Record: record, Frame: []byte("f"), Caller: "me", Outbox: k,
			Timeout: time.Minute, Keep: time.Hour, Shard: true}))
		require.NoError(t, c.Del(ctx, record).Err())
		require.NoError(t, scriptcase.Announced(ctx, c, k))
		direct := lab.Must(gen.RPCDirect(ctx, c, gen.RPCDirectParams{Nodes: nodes, Method: method, Record: record, Frame: []byte("f"), Caller: "me", Outbox: k,
			Timeout: time.Minute, Keep: time.Hour, Shard: true, Target: lua.Some("n")}))
		rows := lab.Must(gen.RPCGather(ctx, c, gen.RPCGatherParams{Nodes: nodes, Method: method, Gather: gather, Frame: []byte("f"), Caller: "me", Outbox: k,
			Timeout: time.Minute, Keep: time.Hour, Shard: true}))
		cast := lab.Must(gen.RPCCast(ctx, c, gen.RPCCastParams{Nodes: nodes, Method: method, Frame: []byte("f"), Outbox: k, Timeout: time.Minute, Shard: true}))
		require.NoError(t, scriptcase.Orphaned(ctx, c, k))
		rescue := lab.Must(gen.RPCRescue(ctx, c, gen.RPCRescueParams{Nodes: nodes, Method: method, Record: record, Again: true, Outbox: k, Word: []byte("L"),
			Keep: time.Minute, Caller: "me", Shard: true}))
		return []string{call.Outcome.String(), direct.Outcome.String(), fmt.Sprint(rows[0].Heard), cast.Reason.String(), rescue.Outcome.String()}
	}
	listen := func(channel string) *redis.PubSub {
		ps := c.SSubscribe(ctx, channel)
		require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
		return ps
	}
	for _, classic := range []string{"n", "me"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+classic), "of other channels")
	}
	require.Equal(t, []string{"sent", "sent", "true", "no_subscriber", "moved"}, send(), "nobody is here")
	me := listen(k + "me")
	defer me.Close()
	require.Equal(t, []string{"no_subscriber", "no_subscriber", "false", "no_subscriber", "lost"}, send(), "the node is not")
	require.Equal(t, "u", c.HGet(ctx, gather, "n:n").Val())
	node := listen(k + "n")
	defer node.Close()
	require.Equal(t, []string{"sent", "sent", "true", "sent", "moved"}, send())
	for range 5 {
		require.IsType(t, &redis.Message{}, lab.Must(node.ReceiveTimeout(ctx, 5*time.Second)), "one of each")
	}
}
