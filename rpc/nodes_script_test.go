package rpc_test

import (
	"context"
	"strings"
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

// These are the branches of rpc/join.lua, rpc/leave.lua, rpc/cast.lua and rpc/find.lua that a bus repairs by itself,
// with its next heartbeat or its next look.

func joinOf(k string) rpcscript.JoinParams {
	return rpcscript.JoinParams{Nodes: "{" + k + "}:nodes", About: "{" + k + "}:about", Methods: "{" + k + "}:methods",
		Serves: "{" + k + "}:serves", Node: "n", Lease: time.Minute, Text: "{}", Outbox: k, Notice: []byte("P")}
}

// The methods and descriptions stay as long as the node says. A heartbeat that says nothing leaves them as they are.
func TestAHeartbeatLeavesTheMethodsAsTheyAre(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	join := joinOf(k)
	keys := []string{join.About, join.Methods, join.Serves}
	join.Stay, join.Names = time.Hour, []string{"x"}
	lab.Must(rpcscript.Join(ctx, c, join))
	for _, key := range keys {
		require.Greater(t, c.PTTL(ctx, key).Val(), 50*time.Minute, key)
		require.NoError(t, c.PExpire(ctx, key, 30*time.Minute).Err())
	}
	join.Stay, join.Names = 0, nil
	require.False(t, lab.Must(rpcscript.Join(ctx, c, join)).Fresh)
	for _, key := range keys {
		left := c.PTTL(ctx, key).Val()
		require.Greater(t, left, 20*time.Minute, key)
		require.LessOrEqual(t, left, 30*time.Minute, key)
	}
}

// All nodes share the keys, and each renews them for a time of its own: that of a node with a short lease takes none of
// another node's.
func TestAHeartbeatShortensNoKeyOfOtherNodes(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	long := joinOf(luatomictest.Namespace(t))
	long.Lease, long.Stay, long.Names = time.Hour, 2*time.Hour, []string{"x"}
	short := long
	short.Node, short.Lease, short.Stay = "o", time.Minute, time.Minute
	keys := []string{long.Nodes, long.About, long.Methods, long.Serves}
	for _, first := range []rpcscript.JoinParams{long, short} {
		require.NoError(t, c.Del(ctx, keys...).Err())
		for _, join := range []rpcscript.JoinParams{first, long, short} {
			lab.Must(rpcscript.Join(ctx, c, join))
			for _, key := range keys {
				require.Positive(t, c.PTTL(ctx, key).Val(), "%s, by the first heartbeat", key)
			}
		}
		for _, key := range keys {
			left := c.PTTL(ctx, key).Val()
			require.Greater(t, left, time.Hour, key)
			require.LessOrEqual(t, left, 2*time.Hour, key)
		}
	}
}

// Where the key of the methods holds something else, a node that would write it announces nothing. A heartbeat without
// methods does not need it.
func TestANodeThatCannotAnnounceItsMethodsAnnouncesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dead  bool
		stay  time.Duration
		names []string
		fails bool
	}{
		"a heartbeat":                   {},
		"a heartbeat after a dead node": {dead: true, fails: true},
		"methods":                       {stay: time.Hour, names: []string{"x"}, fails: true},
	} {
		ctx, c, join := t.Context(), luatomictest.Client(t), joinOf(luatomictest.Namespace(t))
		require.NoError(t, c.Set(ctx, join.Methods, "text", time.Hour).Err())
		if test.dead {
			require.NoError(t, c.ZAdd(ctx, join.Nodes, redis.Z{Score: lab.Past, Member: "dead"}).Err())
		}
		join.Stay, join.Names = test.stay, test.names
		_, err := rpcscript.Join(ctx, c, join)
		if !test.fails {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "WRONGTYPE", name)
		require.ErrorIs(t, c.ZScore(ctx, join.Nodes, "n").Err(), redis.Nil, name)
		require.Zero(t, c.Exists(ctx, join.About).Val(), name)
	}
}

// A node that finishes its calls takes no more, as its load says. One that withdraws one method takes those of the
// others, and one that is not announced does not become so.
func TestANodeThatLeavesTakesNoMore(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	join := joinOf(k)
	leave := rpcscript.LeaveParams{Nodes: join.Nodes, About: join.About, Methods: join.Methods, Serves: join.Serves,
		Node: "n", Stay: true, Names: []string{"x"}}
	require.True(t, lab.Must(rpcscript.Leave(ctx, c, leave)))
	require.Equal(t, float64(lab.Future), c.ZScore(ctx, leave.Nodes, "n").Val())
	leave.Names = nil
	require.True(t, lab.Must(rpcscript.Leave(ctx, c, leave)))
	require.InDelta(t, lab.Future+0.999, c.ZScore(ctx, leave.Nodes, "n").Val(), 0.0005)
	leave.Node = "gone"
	require.False(t, lab.Must(rpcscript.Leave(ctx, c, leave)))
	require.ErrorIs(t, c.ZScore(ctx, leave.Nodes, "gone").Err(), redis.Nil)
}

// A cast reaches one node, or all of them, as a plain message outside a cluster.
func TestACastReachesOneNodeOrAll(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	cast := rpcscript.CastParams{Nodes: "{" + k + "}:nodes", Methods: "{" + k + "}:methods", Method: "x",
		Frame:  []byte("f"),
		Outbox: k, Timeout: time.Minute}
	require.NoError(t, c.ZAdd(ctx, cast.Nodes, redis.Z{Score: lab.Future, Member: "o"}).Err())
	require.NoError(t, c.ZAdd(ctx, cast.Methods, redis.Z{Member: "x\x00o"}).Err())
	require.NoError(t, lab.Subscribe(ctx, t, c, k+"n"))
	require.NoError(t, lab.Subscribe(ctx, t, c, k+"o"))
	for all, want := range map[bool][]string{false: {"0 60000 1\nf"}, true: {"0 60000 1\nf", "0 60000 1\nf"}} {
		cast.All = all
		require.Equal(t, want, published(t, c, k, func() {
			require.Equal(t, int64(len(want)), lab.Must(rpcscript.Cast(ctx, c, cast)).Sent)
		}))
	}
}

// A replica says what it knows: a node that is subscribed at the replica gets a cast, and is found.
func TestReplicaSaysThatANodeIsThere(t *testing.T) {
	t.Parallel()
	pair, k := lab.StartPair(t), "k"
	master, c := pair.Master.Client(), pair.Replica.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, scriptcase.Announced(ctx, master, k))
	lab.Replicated(t, master)
	require.NoError(t, lab.Subscribe(ctx, t, c, k+"n"))
	find := rpcscript.FindParams{Nodes: "{k}:nodes", Methods: "{k}:methods", Method: "x", Caller: "me", Outbox: k}
	require.Equal(t, []rpcscript.FindRow{{Node: "n", State: rpcscript.FindStateAlive}}, lab.Must(rpcscript.Find(ctx,
		c, find)))
	require.Equal(t, int64(1), lab.Must(rpcscript.Cast(ctx, c, rpcscript.CastParams{Nodes: find.Nodes,
		Methods: find.Methods,
		Method:  "x", Frame: []byte("f"), Outbox: k, Timeout: time.Minute, All: true})).Sent)
}

// A node whose lease had ended is to give its methods again: a search has removed what it served.
func TestANodeThatComesBackGivesItsMethods(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	join := joinOf(k)
	join.Stay, join.Names = time.Hour, []string{"x"}
	lab.Must(rpcscript.Join(ctx, c, join))
	heartbeat := join
	heartbeat.Stay, heartbeat.Names = 0, nil
	require.False(t, lab.Must(rpcscript.Join(ctx, c, heartbeat)).Fresh)
	find := rpcscript.FindParams{Nodes: join.Nodes, Methods: join.Methods, Method: "x", Caller: "me", Outbox: k}
	for _, end := range []func() error{
		func() error { return c.ZAdd(ctx, join.Nodes, redis.Z{Score: lab.Past, Member: "n"}).Err() },
		func() error { return c.Del(ctx, join.Nodes).Err() },
	} {
		require.NoError(t, end())
		require.Equal(t, []rpcscript.FindRow{{Node: "n"}}, lab.Must(rpcscript.Find(ctx, c, find)))
		require.True(t, lab.Must(rpcscript.Join(ctx, c, heartbeat)).Fresh)
		require.False(t, lab.Must(rpcscript.Join(ctx, c, join)).Fresh)
		require.Len(t, lab.Must(rpcscript.Find(ctx, c, find)), 1)
	}
}

// Large reports of many nodes come in several replies, so that no script holds up the server.
func TestLargeReportsComeInSeveralReplies(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lua.Direct(c) // the hook sees no shared round trip
	require.NoError(t, lua.Preload(ctx, c, &rpcscript.NodesScript))
	b := lab.Must(rpc.New(c, name, nil))
	nodes, about := "rpc:{"+name+"}:nodes", "rpc:{"+name+"}:about"
	text := `{"methods":["` + strings.Repeat("x", 400_000) + `"]}`
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Future, Member: node}).Err())
		require.NoError(t, c.HSet(ctx, about, node, text).Err())
	}
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Score: lab.Past, Member: "dead"}).Err())
	replies := 0
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.NodesScript), Do: func(run func() error) error {
		replies++
		return run()
	}})
	var names []string
	for _, node := range lab.Must(b.Nodes(ctx)) {
		require.Positive(t, node.Lease)
		require.Len(t, node.Methods, 1, node.Node)
		names = append(names, node.Node)
	}
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, names)
	require.Equal(t, 2, replies)
}
