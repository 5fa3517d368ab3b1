package luatomic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

var rpcScripts = []*lua.Script{
	&gen.RPCAttachScript, &gen.RPCBindScript, &gen.RPCCallScript, &gen.RPCCancelScript, &gen.RPCCastScript, &gen.RPCChunkScript,
	&gen.RPCCollectScript, &gen.RPCDirectScript, &gen.RPCGatherScript, &gen.RPCJoinScript, &gen.RPCLeaveScript, &gen.RPCNodesScript,
	&gen.RPCPartScript, &gen.RPCPartsScript, &gen.RPCReadScript, &gen.RPCReplyScript, &gen.RPCRescueScript, &gen.RPCUnbindScript,
}

// announced puts node "n" on the bus, serving method x with room for five calls.
func announced(ctx context.Context, c *redis.Client, k string) error {
	c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: future, Member: "n"})
	c.HSet(ctx, "{"+k+"}:about", "n", "{}")
	return c.ZAdd(ctx, "{"+k+"}:m:x", redis.Z{Score: -5, Member: "n"}).Err()
}

// asked puts a pending request of caller k at node "n".
func asked(ctx context.Context, c *redis.Client, k string) error {
	if err := announced(ctx, c, k); err != nil {
		return err
	}
	return c.Set(ctx, "{"+k+"}:r:1", "p1 n\n"+k+"\nframe", time.Hour).Err()
}

// orphaned puts a pending request at a node whose lease is over, beside a live one.
func orphaned(ctx context.Context, c *redis.Client, k string) error {
	if err := announced(ctx, c, k); err != nil {
		return err
	}
	c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: past, Member: "old"})
	c.ZAdd(ctx, "{"+k+"}:m:x", redis.Z{Score: 0, Member: "old"})
	return c.Set(ctx, "{"+k+"}:r:1", "p1 old\n"+k+"\nframe", time.Hour).Err()
}

func gathered(ctx context.Context, c *redis.Client, k string) error {
	if err := announced(ctx, c, k); err != nil {
		return err
	}
	c.HSet(ctx, "{"+k+"}:g:1", "c", k, "f", "frame", "n:n", "p", "n:o", "dreply")
	return c.Expire(ctx, "{"+k+"}:g:1", time.Hour).Err()
}

func streamed(ctx context.Context, c *redis.Client, k string) error {
	if err := asked(ctx, c, k); err != nil {
		return err
	}
	c.HSet(ctx, "{"+k+"}:s:1", "1", "one", "2", "two")
	return c.Expire(ctx, "{"+k+"}:s:1", time.Hour).Err()
}

func owned(ctx context.Context, c *redis.Client, k string) error {
	if err := announced(ctx, c, k); err != nil {
		return err
	}
	return c.Set(ctx, "{"+k+"}:k:1", "n", time.Hour).Err()
}

// rpcCalls are the calls of the scripts of a bus.
func rpcCalls() []scriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	nodes := func(k string) string { return "{" + k + "}:nodes" }
	about := func(k string) string { return "{" + k + "}:about" }
	method := func(k string) string { return "{" + k + "}:m:x" }
	record := func(k string) string { return "{" + k + "}:r:1" }
	return []scriptCall{
		{&gen.RPCJoinScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCJoin(ctx, c, gen.RPCJoinParams{Nodes: nodes(k), About: about(k), Methods: []string{method(k)}, Node: "n",
				Lease: time.Minute, Stay: time.Hour, Load: -7, Text: "{}", Outbox: k, Word: []byte("P")})
			return "", err
		}, none, nil},
		{&gen.RPCLeaveScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.RPCLeave(ctx, c, gen.RPCLeaveParams{Nodes: nodes(k), About: about(k), Methods: []string{method(k)}, Node: "n"})
			return "", err
		}, announced, nil},
		{&gen.RPCNodesScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCNodes(ctx, c, gen.RPCNodesParams{Nodes: nodes(k), About: about(k), Texts: true})
			return fmt.Sprint(len(v)), err
		}, announced, nil},
		{&gen.RPCCallScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: nodes(k), Method: method(k), Record: record(k), Discards: []string{"{" + k + "}:r:0"},
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return v.Outcome.String(), err
		}, announced, []string{"discard"}},
		{&gen.RPCDirectScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCDirect(ctx, c, gen.RPCDirectParams{Nodes: nodes(k), Method: method(k), Record: record(k), Bindings: []string{"{" + k + "}:k:1"},
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return v.Outcome.String(), err
		}, owned, nil},
		{&gen.RPCReplyScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: record(k), Method: method(k), Node: "n", Attempt: 1,
				Frame: []byte("f"), Outbox: k, Keep: time.Minute}))
		}, asked, nil},
		{&gen.RPCCollectScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCCollect(ctx, c, gen.RPCCollectParams{Records: []string{record(k)}, Node: lua.Some("n")})
			return fmt.Sprint(len(v)), err
		}, func(ctx context.Context, c *redis.Client, k string) error { // no TTL: what is left of it is in the reply
			return c.Set(ctx, record(k), "p1 n\n"+k+"\nframe", 0).Err()
		}, nil},
		{&gen.RPCAttachScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCAttach(ctx, c, gen.RPCAttachParams{Record: record(k), Caller: "me"}))
		}, asked, nil},
		{&gen.RPCRescueScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCRescue(ctx, c, gen.RPCRescueParams{Nodes: nodes(k), Method: method(k), Record: record(k), Again: true,
				Outbox: k, Word: []byte("L"), Grace: time.Second, Keep: time.Minute, Caller: k, Trust: true}))
		}, orphaned, nil},
		{&gen.RPCCancelScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: record(k), Method: method(k), Outbox: k, Word: []byte("X")}))
		}, asked, nil},
		{&gen.RPCGatherScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCGather(ctx, c, gen.RPCGatherParams{Nodes: nodes(k), Method: method(k), Gather: "{" + k + "}:g:1",
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return fmt.Sprint(len(v)), err
		}, announced, nil},
		{&gen.RPCGatherScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.RPCGather(ctx, c, gen.RPCGatherParams{Nodes: nodes(k), Method: method(k), Gather: "{" + k + "}:g:1",
				Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
			return fmt.Sprint(len(v)), err
		}, gathered, nil},
		{&gen.RPCPartScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCPart(ctx, c, gen.RPCPartParams{Gather: "{" + k + "}:g:1", Method: method(k), Node: "n", Frame: []byte("f"), Outbox: k}))
		}, gathered, nil},
		{&gen.RPCPartsScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCParts(ctx, c, gen.RPCPartsParams{Gather: "{" + k + "}:g:1", Wants: []string{"n", "o"}}))
		}, gathered, nil},
		{&gen.RPCCastScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCCast(ctx, c, gen.RPCCastParams{Nodes: nodes(k), Method: method(k), Frame: []byte("f"), Outbox: k, Timeout: time.Minute}))
		}, announced, nil},
		{&gen.RPCBindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCBind(ctx, c, gen.RPCBindParams{Binding: "{" + k + "}:k:1", Nodes: nodes(k), Node: "other", From: lua.Some("n"), Keep: time.Hour}))
		}, owned, nil},
		{&gen.RPCUnbindScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCUnbind(ctx, c, gen.RPCUnbindParams{Binding: "{" + k + "}:k:1", Node: "n"}))
		}, owned, nil},
		{&gen.RPCChunkScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCChunk(ctx, c, gen.RPCChunkParams{Record: record(k), Chunks: "{" + k + "}:s:1", Node: "n", Attempt: 1, Seq: 3,
				Frame: []byte("f"), Outbox: k, Keep: time.Hour}))
		}, streamed, nil},
		{&gen.RPCReadScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.RPCRead(ctx, c, gen.RPCReadParams{Chunks: "{" + k + "}:s:1", Read: 2, Count: 2, Word: []byte("K"), Channel: k}))
		}, streamed, nil},
	}
}

// The guards of the scripts that send: a node that is full is known before anything is
// published, one that did not hear is asked last, and one that is named is not replaced.
func TestRPCScriptsThatSend(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, announced(ctx, c, k))
	require.NoError(t, subscribe(ctx, t, c, k+"n"))
	p := gen.RPCCallParams{Nodes: "{" + k + "}:nodes", Method: "{" + k + "}:m:x", Record: "{" + k + "}:r:1",
		Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour}
	for score, want := range map[float64]gen.RPCCallOutcome{
		-1: gen.RPCCallOutcomeSent, 0: gen.RPCCallOutcomeOverloaded, 7: gen.RPCCallOutcomeOverloaded, 999_999: gen.RPCCallOutcomeSent,
	} {
		require.NoError(t, c.ZAdd(ctx, p.Method, redis.Z{Score: score, Member: "n"}).Err())
		require.NoError(t, c.Del(ctx, p.Record).Err())
		r, err := gen.RPCCall(ctx, c, p)
		require.NoError(t, err)
		require.Equal(t, want, r.Outcome, score)

		require.NoError(t, c.ZAdd(ctx, p.Method, redis.Z{Score: score, Member: "n"}).Err())
		require.NoError(t, c.Del(ctx, p.Record).Err())
		d, err := gen.RPCDirect(ctx, c, gen.RPCDirectParams{Nodes: p.Nodes, Method: p.Method, Record: p.Record, Target: lua.Some("n"),
			Frame: p.Frame, Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
		require.NoError(t, err)
		require.Equal(t, want.String(), d.Outcome.String(), score)
	}
	// One that does not listen is given it where its lease suffices, and passed over else.
	require.NoError(t, c.Del(ctx, p.Record).Err())
	require.NoError(t, c.ZAdd(ctx, p.Method, redis.Z{Score: -2, Member: "far"}, redis.Z{Score: -1, Member: "n"}).Err())
	require.NoError(t, c.ZAdd(ctx, p.Nodes, redis.Z{Score: future, Member: "far"}).Err())
	p.Trust = true
	r, err := gen.RPCCall(ctx, c, p)
	require.NoError(t, err)
	require.Equal(t, "far", r.Node)
	p.Trust, p.Record = false, p.Record+"2"
	r, err = gen.RPCCall(ctx, c, p)
	require.NoError(t, err)
	require.Equal(t, "n", r.Node)
	require.Greater(t, c.ZScore(ctx, p.Method, "far").Val(), 900_000.0, "it is asked last from now on")
}

// The guards of rpc_rescue, rpc_cancel, rpc_attach, rpc_collect and rpc_part.
func TestRPCScriptsThatDecide(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	record, method, nodes := "{"+k+"}:r:1", "{"+k+"}:m:x", "{"+k+"}:nodes"
	rescue := func(again bool) gen.RPCRescueResult {
		r, err := gen.RPCRescue(ctx, c, gen.RPCRescueParams{Nodes: nodes, Method: method, Record: record, Again: again,
			Outbox: k, Word: []byte("L"), Grace: time.Second, Keep: time.Minute})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, gen.RPCRescueOutcomeGone, rescue(true).Outcome)
	require.NoError(t, asked(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeAlive, rescue(true).Outcome, "its lease is good")
	require.NoError(t, orphaned(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(false).Outcome, "it may not run twice")
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(true).Outcome, "what is lost stays lost")
	reply := func(node string, attempt int64) gen.RPCReplyResult {
		out, err := gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: record, Method: method, Node: node, Attempt: attempt, Frame: []byte("r"), Outbox: k, Keep: time.Minute})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, gen.RPCReplyResultStale, reply("old", 1), "the reply to a lost call")
	require.NoError(t, orphaned(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(true).Outcome, "nobody hears it")
	require.NoError(t, subscribe(ctx, t, c, k+"n"))
	require.NoError(t, orphaned(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(false).Outcome, "it may not run twice, although another node is there")
	known, err := gen.RPCAttach(ctx, c, gen.RPCAttachParams{Record: record, Caller: "me"})
	require.NoError(t, err)
	require.Equal(t, gen.RPCAttachStateLost, known.State)
	require.Zero(t, c.Exists(ctx, record).Val(), "a call with the same key may be made anew")
	require.NoError(t, orphaned(ctx, c, k))
	require.NoError(t, c.ZAdd(ctx, method, redis.Z{Score: -9, Member: "dead too"}).Err())
	require.NoError(t, subscribe(ctx, t, c, k+"dead too"))
	moved := rescue(true)
	require.Equal(t, "n", moved.Node, "not the one whose lease is over")
	require.Equal(t, gen.RPCRescueOutcomeMoved, moved.Outcome)
	require.Equal(t, gen.RPCReplyResultStale, reply("old", 1))
	require.Equal(t, gen.RPCReplyResultStale, reply("n", 1), "the attempt counts")
	require.Equal(t, gen.RPCReplyResultAccepted, reply("n", 2))
	done := rescue(true)
	require.Equal(t, gen.RPCRescueOutcomeDone, done.Outcome)
	require.Equal(t, "r", string(done.Frame))

	cancel := func(mark time.Duration) gen.RPCCancelResult {
		out, err := gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: record, Method: method, Outbox: k, Word: []byte("X"), Mark: mark})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, gen.RPCCancelResultDone, cancel(0))
	require.Zero(t, c.Exists(ctx, record).Val(), "a reply that nobody reads")
	require.Equal(t, gen.RPCCancelResultGone, cancel(time.Minute))
	sent, err := gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: nodes, Method: method, Record: record,
		Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
	require.NoError(t, err)
	require.Equal(t, gen.RPCCallOutcomeKnown, sent.Outcome, "it comes after it was given up")
	require.Equal(t, gen.RPCReplyResultGone, reply("n", 1))

	// Seventeen callers: the first is told, sixteen with it, and the last looks itself.
	require.NoError(t, asked(ctx, c, k))
	states := make(map[gen.RPCAttachState]int)
	for i := range 17 {
		for range 2 {
			r, err := gen.RPCAttach(ctx, c, gen.RPCAttachParams{Record: record, Caller: fmt.Sprint("caller", i)})
			require.NoError(t, err)
			states[r.State]++
		}
	}
	require.Equal(t, map[gen.RPCAttachState]int{gen.RPCAttachStatePending: 30, gen.RPCAttachStateFull: 4}, states)
	require.Equal(t, gen.RPCReplyResultAccepted, reply("n", 1))

	// A node gets its own requests, a caller only replies, and neither more than a megabyte.
	large := strings.Repeat("x", 600_000)
	var records []string
	for i := range 4 {
		records = append(records, fmt.Sprint(record, i))
		require.NoError(t, c.Set(ctx, records[i], "p1 n\n"+k+"\n"+large, time.Hour).Err())
	}
	collect := func(node lua.Opt[string]) (states []gen.RPCCollectState) {
		rows, err := gen.RPCCollect(ctx, c, gen.RPCCollectParams{Records: records, Node: node})
		require.NoError(t, err)
		for _, r := range rows {
			states = append(states, r.State)
		}
		return states
	}
	const pending, later = gen.RPCCollectStatePending, gen.RPCCollectStateLater
	require.Equal(t, []gen.RPCCollectState{pending, pending, pending, pending}, collect(lua.Opt[string]{}))
	require.Equal(t, []gen.RPCCollectState{pending, pending, later, later}, collect(lua.Some("n")))
	require.Equal(t, make([]gen.RPCCollectState, 4), collect(lua.Some("other")))

	require.NoError(t, gathered(ctx, c, k))
	for i, want := range []gen.RPCPartResult{gen.RPCPartResultAccepted, gen.RPCPartResultDuplicate, gen.RPCPartResultStale} {
		out, err := gen.RPCPart(ctx, c, gen.RPCPartParams{Gather: "{" + k + "}:g:1", Method: method, Node: []string{"n", "n", "stranger"}[i], Frame: []byte("f"), Outbox: k})
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
}
