package scriptcase

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
)

var RpcScripts = []*lua.Script{
	&gen.RPCBindScript, &gen.RPCCallScript, &gen.RPCCancelScript, &gen.RPCCastScript, &gen.RPCChunkScript,
	&gen.RPCCollectScript, &gen.RPCDecideScript, &gen.RPCFindScript, &gen.RPCJoinScript, &gen.RPCLeaveScript,
	&gen.RPCNodesScript,
	&gen.RPCReadScript, &gen.RPCReplyScript,
}

// FutureMilli is a time that no test lives to see, in ms.
const FutureMilli = 4_000_000_000_000

// Announced stores node "n", which serves method x.
func Announced(ctx context.Context, c *redis.Client, k string) error {
	c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: lab.Future, Member: "n"})
	c.HSet(ctx, "{"+k+"}:about", "n", "{}")
	c.HSet(ctx, "{"+k+"}:serves", "n\x000", "x")
	return c.ZAdd(ctx, "{"+k+"}:methods", redis.Z{Member: "x\x00n"}).Err()
}

// Asked stores a pending request of caller k at node "n".
func Asked(ctx context.Context, c *redis.Client, k string) error {
	if err := Announced(ctx, c, k); err != nil {
		return err
	}
	return c.Set(ctx, "{"+k+"}:r:1", "p1 n\n\t"+k+"\nframe", time.Hour).Err()
}

// Orphaned stores a pending request at a node whose lease has expired, and a live node.
func Orphaned(ctx context.Context, c *redis.Client, k string) error {
	if err := Announced(ctx, c, k); err != nil {
		return err
	}
	c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: lab.Past, Member: "old"})
	c.HSet(ctx, "{"+k+"}:serves", "old\x000", "x")
	c.ZAdd(ctx, "{"+k+"}:methods", redis.Z{Member: "x\x00old"})
	return c.Set(ctx, "{"+k+"}:r:1", "p1 old\n\t"+k+"\nframe", time.Hour).Err()
}

func Streamed(ctx context.Context, c *redis.Client, k string) error {
	if err := Asked(ctx, c, k); err != nil {
		return err
	}
	c.HSet(ctx, "{"+k+"}:s:1", "1", "one", "2", "two")
	return c.Expire(ctx, "{"+k+"}:s:1", time.Hour).Err()
}

func Owned(ctx context.Context, c *redis.Client, k string) error {
	if err := Announced(ctx, c, k); err != nil {
		return err
	}
	return c.Set(ctx, "{"+k+"}:k:1", "n", time.Hour).Err()
}

// GivenTo is a request of caller k for node "n" on the keys of the tag k.
func GivenTo(k, node string) gen.RPCDecideParams {
	return gen.RPCDecideParams{
		Nodes: "{" + k + "}:nodes", Record: "{" + k + "}:r:1", Node: node, Others: "o", Caller: k, Outbox: k,
		Frame: []byte("f"), Left: time.Minute, Ends: FutureMilli, Keep: time.Hour,
	}
}

// rpcCalls are the calls of the scripts of a bus.
func rpcCalls() []ScriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	nodes := func(k string) string { return "{" + k + "}:nodes" }
	about := func(k string) string { return "{" + k + "}:about" }
	methods := func(k string) string { return "{" + k + "}:methods" }
	serves := func(k string) string { return "{" + k + "}:serves" }
	record := func(k string) string { return "{" + k + "}:r:1" }
	return []ScriptCall{
		{&gen.RPCJoinScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCJoin(ctx, c, gen.RPCJoinParams{
				Nodes: nodes(k), About: about(k), Methods: methods(k), Serves: serves(k), Node: "n", Lease: time.Minute,
				Load: 7, Text: "{}", Outbox: k, Notice: []byte("P"), Stay: time.Hour, Names: []string{"x"},
			})
			return "", err
		}, None, nil},
		{&gen.RPCLeaveScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCLeave(ctx, c, gen.RPCLeaveParams{
				Nodes: nodes(k), About: about(k), Methods: methods(k), Serves: serves(k), Node: "n",
				Names: []string{"x"},
			})
			return "", err
		}, Announced, nil},
		{&gen.RPCNodesScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCNodes(ctx, c, gen.RPCNodesParams{Nodes: nodes(k), About: about(k), Names: []string{"n"}})
			return fmt.Sprint(len(v)), err
		}, Announced, nil},
		{&gen.RPCFindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCFind(ctx, c, gen.RPCFindParams{
				Nodes: nodes(k), Methods: methods(k), Method: "x", Caller: k, Outbox: k,
			}))
		}, Orphaned, nil},
		{&gen.RPCCallScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := GivenTo(k, "n")
			return show(gen.RPCCall(ctx, c, gen.RPCCallParams{
				Nodes: p.Nodes, Record: p.Record, Node: p.Node, Caller: k, Outbox: k, Frame: p.Frame, Left: p.Left,
				Ends: p.Ends,
				Keep: p.Keep,
			}))
		}, Announced, []string{"record"}}, // its node has no subscriber
		{&gen.RPCDecideScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCDecide(ctx, c, GivenTo(k, "n"))
			return v.Outcome.String(), err
		}, Announced, nil},
		{&gen.RPCDecideScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := GivenTo(k, "n")
			p.Again, p.Trust = true, true
			v, err := gen.RPCDecide(ctx, c, p)
			return v.Outcome.String(), err
		}, Orphaned, nil},
		{&gen.RPCReplyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCReply(ctx, c, gen.RPCReplyParams{
				Record: record(k), Node: "n", Attempt: 1, State: "d", Frame: []byte("f"), Outbox: k, Keep: time.Minute,
			}))
		}, Asked, nil},
		{&gen.RPCCollectScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCCollect(ctx, c, gen.RPCCollectParams{Records: []string{record(k)}, Node: lua.Some("n")})
			return fmt.Sprint(len(v)), err
		}, func(ctx context.Context, c *redis.Client, k string) error { // no TTL: the reply has the remaining time
			return c.Set(ctx, record(k), "p1 n\n\t"+k+"\nframe", 0).Err()
		}, nil},
		{&gen.RPCCancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: record(k), Outbox: k, Notice: []byte("X"),
				Mark: time.Minute}))
		}, Asked, nil},
		{&gen.RPCCastScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCCast(ctx, c, gen.RPCCastParams{
				Nodes: nodes(k), Methods: methods(k), Method: "x", Frame: []byte("f"), Outbox: k, Timeout: time.Minute,
			}))
		}, Announced, nil},
		{&gen.RPCBindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCBind(ctx, c, gen.RPCBindParams{
				Binding: "{" + k + "}:k:1", Nodes: nodes(k), Node: "other", From: lua.Some("n"), Keep: time.Hour,
			}))
		}, Owned, nil},
		{&gen.RPCBindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCBind(ctx, c, gen.RPCBindParams{Binding: "{" + k + "}:k:1", Nodes: nodes(k), Node: "n"})
			return "", err
		}, Owned, nil},
		{&gen.RPCChunkScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCChunk(ctx, c, gen.RPCChunkParams{
				Record: record(k), Chunks: "{" + k + "}:s:1", Node: "n", Attempt: 1, Seq: 3,
				Frame: []byte("f"), Outbox: k, Keep: time.Hour,
			}))
		}, Streamed, nil},
		{&gen.RPCReadScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCRead(ctx, c, gen.RPCReadParams{
				Chunks: "{" + k + "}:s:1", Read: 2, Count: 2, Notice: []byte("K"), Channel: k,
			}))
		}, Streamed, nil},
	}
}
