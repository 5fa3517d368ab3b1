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
	&gen.RPCAttachScript, &gen.RPCBindScript, &gen.RPCCallScript, &gen.RPCCancelScript, &gen.RPCCastScript, &gen.RPCChunkScript,
	&gen.RPCCollectScript, &gen.RPCDirectScript, &gen.RPCGatherScript, &gen.RPCJoinScript, &gen.RPCLeaveScript, &gen.RPCNodesScript,
	&gen.RPCPartScript, &gen.RPCPartsScript, &gen.RPCReadScript, &gen.RPCReplyScript, &gen.RPCRescueScript, &gen.RPCUnbindScript,
}

// Announced stores node "n", which serves method x with a concurrency of five.
func Announced(ctx context.Context, c *redis.Client, k string) error {
	c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: lab.Future, Member: "n"})
	c.HSet(ctx, "{"+k+"}:about", "n", "{}")
	return c.ZAdd(ctx, "{"+k+"}:m:x", redis.Z{Score: -5, Member: "n"}).Err()
}

// Asked stores a pending request of caller k at node "n".
func Asked(ctx context.Context, c *redis.Client, k string) error {
	if err := Announced(ctx, c, k); err != nil {
		return err
	}
	return c.Set(ctx, "{"+k+"}:r:1", "p1 n\n"+k+"\nframe", time.Hour).Err()
}

// Orphaned stores a pending request at a node whose lease has expired, and a live node.
func Orphaned(ctx context.Context, c *redis.Client, k string) error {
	if err := Announced(ctx, c, k); err != nil {
		return err
	}
	c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: lab.Past, Member: "old"})
	c.ZAdd(ctx, "{"+k+"}:m:x", redis.Z{Score: 0, Member: "old"})
	return c.Set(ctx, "{"+k+"}:r:1", "p1 old\n"+k+"\nframe", time.Hour).Err()
}

func Gathered(ctx context.Context, c *redis.Client, k string) error {
	if err := Announced(ctx, c, k); err != nil {
		return err
	}
	c.HSet(ctx, "{"+k+"}:g:1", "c", k, "f", "frame", "n:n", "p", "n:o", "dreply")
	return c.Expire(ctx, "{"+k+"}:g:1", time.Hour).Err()
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

// RpcCalls are the calls of the scripts of a bus.
func RpcCalls() []ScriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	nodes := func(k string) string { return "{" + k + "}:nodes" }
	about := func(k string) string { return "{" + k + "}:about" }
	method := func(k string) string { return "{" + k + "}:m:x" }
	record := func(k string) string { return "{" + k + "}:r:1" }
	return []ScriptCall{
		{&gen.RPCJoinScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCJoin(ctx, c, gen.RPCJoinParams{Nodes: nodes(k), About: about(k), Methods: []string{method(k)}, Node: "n",
				Lease: time.Minute, Stay: time.Hour, Load: -7, Text: "{}", Outbox: k, Notice: []byte("P")})
			return "", err
		}, None, nil},
		{&gen.RPCLeaveScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCLeave(ctx, c, gen.RPCLeaveParams{Nodes: nodes(k), About: about(k), Methods: []string{method(k)}, Node: "n"})
			return "", err
		}, Announced, nil},
		{&gen.RPCNodesScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCNodes(ctx, c, gen.RPCNodesParams{Nodes: nodes(k), About: about(k), Texts: true})
			return fmt.Sprint(len(v)), err
		}, Announced, nil},
		{&gen.RPCCallScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: nodes(k), Method: method(k), Record: record(k), Discards: []string{"{" + k + "}:r:0"},
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return v.Outcome.String(), err
		}, Announced, []string{"discard"}},
		{&gen.RPCDirectScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCDirect(ctx, c, gen.RPCDirectParams{Nodes: nodes(k), Method: method(k), Record: record(k), Bindings: []string{"{" + k + "}:k:1"},
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return v.Outcome.String(), err
		}, Owned, nil},
		{&gen.RPCReplyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: record(k), Method: method(k), Node: "n", Attempt: 1,
				Frame: []byte("f"), Outbox: k, Keep: time.Minute}))
		}, Asked, nil},
		{&gen.RPCCollectScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCCollect(ctx, c, gen.RPCCollectParams{Records: []string{record(k)}, Node: lua.Some("n")})
			return fmt.Sprint(len(v)), err
		}, func(ctx context.Context, c *redis.Client, k string) error { // no TTL: the reply has the remaining time
			return c.Set(ctx, record(k), "p1 n\n"+k+"\nframe", 0).Err()
		}, nil},
		{&gen.RPCAttachScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCAttach(ctx, c, gen.RPCAttachParams{Record: record(k), Caller: "me"}))
		}, Asked, nil},
		{&gen.RPCRescueScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCRescue(ctx, c, gen.RPCRescueParams{Nodes: nodes(k), Method: method(k), Record: record(k), Again: true,
				Outbox: k, Notice: []byte("L"), Grace: time.Second, Keep: time.Minute, Caller: k, Trust: true}))
		}, Orphaned, nil},
		{&gen.RPCCancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: record(k), Method: method(k), Outbox: k, Notice: []byte("X")}))
		}, Asked, nil},
		{&gen.RPCGatherScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCGather(ctx, c, gen.RPCGatherParams{Nodes: nodes(k), Method: method(k), Gather: "{" + k + "}:g:1",
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return fmt.Sprint(len(v)), err
		}, Announced, nil},
		{&gen.RPCGatherScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCGather(ctx, c, gen.RPCGatherParams{Nodes: nodes(k), Method: method(k), Gather: "{" + k + "}:g:1",
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return fmt.Sprint(len(v)), err
		}, Gathered, nil},
		{&gen.RPCPartScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCPart(ctx, c, gen.RPCPartParams{Gather: "{" + k + "}:g:1", Method: method(k), Node: "n", Frame: []byte("f"), Outbox: k}))
		}, Gathered, nil},
		{&gen.RPCPartsScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCParts(ctx, c, gen.RPCPartsParams{Gather: "{" + k + "}:g:1", Wants: []string{"n", "o"}}))
		}, Gathered, nil},
		{&gen.RPCCastScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCCast(ctx, c, gen.RPCCastParams{Nodes: nodes(k), Method: method(k), Frame: []byte("f"), Outbox: k, Timeout: time.Minute}))
		}, Announced, nil},
		{&gen.RPCBindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCBind(ctx, c, gen.RPCBindParams{Binding: "{" + k + "}:k:1", Nodes: nodes(k), Node: "other", From: lua.Some("n"), Keep: time.Hour}))
		}, Owned, nil},
		{&gen.RPCUnbindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCUnbind(ctx, c, gen.RPCUnbindParams{Binding: "{" + k + "}:k:1", Node: "n"}))
		}, Owned, nil},
		{&gen.RPCChunkScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCChunk(ctx, c, gen.RPCChunkParams{Record: record(k), Chunks: "{" + k + "}:s:1", Node: "n", Attempt: 1, Seq: 3,
				Frame: []byte("f"), Outbox: k, Keep: time.Hour}))
		}, Streamed, nil},
		{&gen.RPCReadScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCRead(ctx, c, gen.RPCReadParams{Chunks: "{" + k + "}:s:1", Read: 2, Count: 2, Notice: []byte("K"), Channel: k}))
		}, Streamed, nil},
	}
}
