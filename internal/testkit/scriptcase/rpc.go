package scriptcase

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

var RpcScripts = []*lua.Script{
	&rpcscript.BindScript, &rpcscript.CallScript, &rpcscript.CancelScript, &rpcscript.CastScript,
	&rpcscript.ChunkScript,
	&rpcscript.CollectScript, &rpcscript.DecideScript, &rpcscript.FindScript, &rpcscript.JoinScript,
	&rpcscript.LeaveScript,
	&rpcscript.NodesScript,
	&rpcscript.ReadScript, &rpcscript.ReplyScript,
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
func GivenTo(k, node string) rpcscript.DecideParams {
	return rpcscript.DecideParams{
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
		{&rpcscript.JoinScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := rpcscript.Join(ctx, c, rpcscript.JoinParams{
				Nodes: nodes(k), About: about(k), Methods: methods(k), Serves: serves(k), Node: "n", Lease: time.Minute,
				Load: 7, Text: "{}", Outbox: k, Notice: []byte("P"), Stay: time.Hour, Names: []string{"x"},
			})
			return "", err
		}, None, nil},
		{&rpcscript.LeaveScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := rpcscript.Leave(ctx, c, rpcscript.LeaveParams{
				Nodes: nodes(k), About: about(k), Methods: methods(k), Serves: serves(k), Node: "n",
				Names: []string{"x"},
			})
			return "", err
		}, Announced, nil},
		{&rpcscript.NodesScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := rpcscript.Nodes(ctx, c, rpcscript.NodesParams{Nodes: nodes(k), About: about(k),
				Names: []string{"n"}})
			return fmt.Sprint(len(v)), err
		}, Announced, nil},
		{&rpcscript.FindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Find(ctx, c, rpcscript.FindParams{
				Nodes: nodes(k), Methods: methods(k), Method: "x", Caller: k, Outbox: k,
			}))
		}, Orphaned, nil},
		{&rpcscript.CallScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := GivenTo(k, "n")
			return show(rpcscript.Call(ctx, c, rpcscript.CallParams{
				Nodes: p.Nodes, Record: p.Record, Node: p.Node, Caller: k, Outbox: k, Frame: p.Frame, Left: p.Left,
				Ends: p.Ends,
				Keep: p.Keep,
			}))
		}, Announced, []string{"record"}}, // its node has no subscriber
		{&rpcscript.DecideScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := rpcscript.Decide(ctx, c, GivenTo(k, "n"))
			return v.Outcome.String(), err
		}, Announced, nil},
		{&rpcscript.DecideScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			p := GivenTo(k, "n")
			p.Again, p.Trust = true, true
			v, err := rpcscript.Decide(ctx, c, p)
			return v.Outcome.String(), err
		}, Orphaned, nil},
		{&rpcscript.ReplyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Reply(ctx, c, rpcscript.ReplyParams{
				Record: record(k), Node: "n", Attempt: 1, State: "d", Frame: []byte("f"), Outbox: k, Keep: time.Minute,
			}))
		}, Asked, nil},
		{&rpcscript.CollectScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := rpcscript.Collect(ctx, c, rpcscript.CollectParams{Records: []string{record(k)},
				Node: lua.Some("n")})
			return fmt.Sprint(len(v)), err
		}, func(ctx context.Context, c *redis.Client, k string) error { // no TTL: the reply has the remaining time
			return c.Set(ctx, record(k), "p1 n\n\t"+k+"\nframe", 0).Err()
		}, nil},
		{&rpcscript.CancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Cancel(ctx, c, rpcscript.CancelParams{Record: record(k), Outbox: k,
				Notice: []byte("X"),
				Mark:   time.Minute}))
		}, Asked, nil},
		{&rpcscript.CastScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Cast(ctx, c, rpcscript.CastParams{
				Nodes: nodes(k), Methods: methods(k), Method: "x", Frame: []byte("f"), Outbox: k, Timeout: time.Minute,
			}))
		}, Announced, nil},
		{&rpcscript.BindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Bind(ctx, c, rpcscript.BindParams{
				Binding: "{" + k + "}:k:1", Nodes: nodes(k), Node: "other", From: lua.Some("n"), Keep: time.Hour,
			}))
		}, Owned, nil},
		{&rpcscript.BindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := rpcscript.Bind(ctx, c, rpcscript.BindParams{Binding: "{" + k + "}:k:1", Nodes: nodes(k),
				Node: "n"})
			return "", err
		}, Owned, nil},
		{&rpcscript.ChunkScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Chunk(ctx, c, rpcscript.ChunkParams{
				Record: record(k), Chunks: "{" + k + "}:s:1", Node: "n", Attempt: 1, Seq: 3,
				Frame: []byte("f"), Outbox: k, Keep: time.Hour,
			}))
		}, Streamed, nil},
		{&rpcscript.ReadScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(rpcscript.Read(ctx, c, rpcscript.ReadParams{
				Chunks: "{" + k + "}:s:1", Read: 2, Count: 2, Notice: []byte("K"), Channel: k,
			}))
		}, Streamed, nil},
	}
}
