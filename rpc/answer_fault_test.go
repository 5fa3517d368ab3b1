package rpc_test

import (
	"context"
	"strings"
	"sync/atomic"
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

// callOf is the call of rpc_call with what GivenTo gives.
func callOf(p rpcscript.DecideParams) rpcscript.CallParams {
	return rpcscript.CallParams{
		Nodes: p.Nodes, Record: p.Record, Node: p.Node, Caller: p.Caller, Outbox: p.Outbox, Frame: p.Frame,
		Digest: p.Digest, Left: p.Left, Ends: p.Ends, Keep: p.Keep, Shard: p.Shard,
	}
}

// A request that the server does not let publish is not recorded: neither by the script of the usual case, nor where it
// goes on to another node, whose record stays as it was.
func TestRequestThatCannotBePublishedIsNotRecorded(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ctx, admin, k := t.Context(), server.Client(), "k"
	require.NoError(t, scriptcase.Orphaned(ctx, admin, k))
	require.NoError(t, lab.Subscribe(ctx, t, admin, k+"n"))
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels",
		"&luagen:*", "+@all").Err()) // where a script reports what it runs
	c := server.Client(func(o *redis.Options) { o.Username, o.Password = "mute", "pw" })

	p := scriptcase.GivenTo(k, "n")
	p.Again = true
	before := admin.Get(ctx, p.Record).Val()
	_, err := rpcscript.Decide(ctx, c, p)
	require.Error(t, err)
	require.Equal(t, before, admin.Get(ctx, p.Record).Val(), "it still belongs to its last node")
	p.Record = "{k}:r:new"
	_, err = rpcscript.Decide(ctx, c, p)
	require.Error(t, err)
	require.Zero(t, admin.Exists(ctx, p.Record).Val())
	_, err = rpcscript.Call(ctx, c, callOf(p))
	require.Error(t, err)
	require.Zero(t, admin.Exists(ctx, p.Record).Val())
}

// A reply that the server does not store is not published, and the request stays as it was: the node sends it again.
func TestReplyThatCannotBeStoredIsNotPublished(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ctx, c, k := t.Context(), server.Client(), "k"
	require.NoError(t, scriptcase.Asked(ctx, c, k))
	me := c.Subscribe(ctx, k+k)
	defer me.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(me.Receive(ctx)))
	p := rpcscript.ReplyParams{Record: "{k}:r:1", Node: "n", Attempt: 1, State: "d", Frame: []byte("f"), Outbox: k,
		Keep: time.Minute}
	// it is loaded
	_ = lab.Must(rpcscript.Reply(ctx, c, rpcscript.ReplyParams{Record: "{k}:none", Node: "n", Attempt: 1, State: "d"}))
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	before := c.Get(ctx, p.Record).Val()
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := rpcscript.Reply(short, c, p)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, c.Get(ctx, p.Record).Val())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "0").Err())
	require.Equal(t, rpcscript.ReplyResultAccepted, lab.Must(rpcscript.Reply(ctx, c, p)))
	require.Equal(t, "0 0 1\nf", lab.Must(me.ReceiveMessage(ctx)).Payload, "the first that comes")
	_, err = me.ReceiveTimeout(ctx, 50*time.Millisecond)
	require.Error(t, err, "and the only one")
}

// How long a reply stays: as long as the node says, or as long as the request was to be kept.
func TestReplyStaysAsLongAsItsNodeSays(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for keep, want := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute} {
		require.NoError(t, scriptcase.Asked(ctx, c, k))
		record := "{" + k + "}:r:1"
		require.Equal(t, rpcscript.ReplyResultAccepted, lab.Must(rpcscript.Reply(ctx, c, rpcscript.ReplyParams{
			Record: record, Node: "n", Attempt: 1, State: "d", Frame: []byte("f"), Outbox: k, Keep: keep,
		})))
		require.InDelta(t, want, c.PTTL(ctx, record).Val(), float64(30*time.Second))
	}
}

// The requests of one script for one node share the check of that node.
func TestRowsForANodeShareItsCheck(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.StartServer(t).Client(), "k"
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	node := c.Subscribe(ctx, k+"n")
	defer node.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(node.Receive(ctx)))
	text := lab.Text(c, &rpcscript.CallScript)
	var keys []string
	var args []any
	for i := range 64 {
		keys = append(keys, "{k}:nodes", "{k}:r:"+strings.Repeat("x", i))
		args = append(args, "n", "me", k, "f", "", "60000", int64(scriptcase.FutureMilli), "3600000", "0")
	}
	require.NoError(t, c.ConfigResetStat(ctx).Err())
	out, err := c.Eval(ctx, text, keys, args...).Int64Slice()
	require.NoError(t, err)
	require.NotContains(t, out, int64(0))
	calls := lab.CommandCalls(t, c)
	require.Equal(t, []int{1, 1, 1, 64}, []int{calls["time"], calls["zscore"], calls["pubsub|numsub"], calls["set"]})
	require.Equal(t, strings.Repeat("1 60000 1\nf", 64), lab.Must(node.ReceiveMessage(ctx)).Payload, "one message")
}

// Names that no bus has are refused before anything is written, so that no record is longer than its readers read.
func TestScriptsRefuseLongNames(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	long := strings.Repeat("x", 1001)
	p := scriptcase.GivenTo(k, "n")
	p.Caller = long
	find := rpcscript.FindParams{Nodes: p.Nodes, Methods: "{" + k + "}:methods", Method: "x", Caller: long}
	cast := rpcscript.CastParams{Nodes: p.Nodes, Methods: find.Methods, Method: long, Timeout: time.Minute}
	join := rpcscript.JoinParams{Nodes: p.Nodes, Methods: find.Methods, About: "{" + k + "}:about",
		Serves: "{" + k + "}:serves", Node: long, Lease: time.Minute}
	leave := rpcscript.LeaveParams{Nodes: p.Nodes, Methods: find.Methods, About: join.About,
		Serves: join.Serves, Node: long}
	others := scriptcase.GivenTo(k, "n")
	others.Others = strings.Repeat("x\n", 2001)
	for name, call := range map[string]func() error{
		"call":   func() error { _, err := rpcscript.Call(ctx, c, callOf(p)); return err },
		"decide": func() error { _, err := rpcscript.Decide(ctx, c, p); return err },
		"others": func() error { _, err := rpcscript.Decide(ctx, c, others); return err },
		"find":   func() error { _, err := rpcscript.Find(ctx, c, find); return err },
		"cast":   func() error { _, err := rpcscript.Cast(ctx, c, cast); return err },
		"join":   func() error { _, err := rpcscript.Join(ctx, c, join); return err },
		"leave":  func() error { _, err := rpcscript.Leave(ctx, c, leave); return err },
	} {
		err := call()
		require.ErrorContains(t, err, "at most", name)
		require.NotErrorIs(t, err, lua.ErrTooLarge, "the script itself says so: %s", name)
	}
	require.Empty(t, c.Keys(ctx, "{"+k+"}*").Val())
}

// refusal is an error that the server answers with.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// The headers of an answer are those that the handler has set when it returns. What sets one later, while the answer is
// sent, changes nothing.
func TestHeadersEndWithTheHandler(t *testing.T) {
	t.Parallel()
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	handlers := make(chan context.Context, 1)
	name := luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, own, name, nil, func(ctx context.Context, s string) (string, error) {
		rpc.ReplyHeader(ctx, "in", "time")
		handlers <- ctx
		return s, nil
	})
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReplyScript), Do: func(run func() error) error {
		select {
		case ctx := <-handlers: // the first attempt fails, and the second one encodes the answer again
			rpc.ReplyHeader(ctx, "late", "")
			return refusal("OOM")
		default:
			return run()
		}
	}})
	var who rpc.Answered
	_, err := lab.Echo.Call(t.Context(), node, "x", &rpc.CallOptions{Answered: &who})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"in": "time"}, who.Headers)
}

// A caller whose answer from the server is lost sends its request again. The reply is kept until then, also where the
// result of the key is kept for less: no handler runs again for the call.
func TestAShortKeepRunsNoCallAgain(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int32
	// One handler: what comes after the repeat finds it busy, or has it after the repeat.
	lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1}, func(_ context.Context, s string) (string, error) {
		ran.Add(1)
		return strings.ToUpper(s), nil
	})
	own, proxy := through(t)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute, Lease: time.Hour})
	_, err := lab.Echo.Call(ctx, caller, "warm", nil)
	require.NoError(t, err)
	var sent atomic.Int32
	repeated := make(chan struct{})
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.CallScript), Do: func(run func() error) error {
		err := run()
		switch sent.Add(1) {
		case 1:
			awaitStoredReply(ctx, t, c, "rpc:{"+name+"}:r:k*")
		case 2:
			close(repeated)
		}
		return err
	}})
	proxy.Drop(1, lab.Sent(&rpcscript.CallScript))
	out, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Key: "order", Keep: time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, "X", out)
	lab.Soon(t, 20*time.Second, "the repeat", repeated)
	_, err = lab.Echo.Call(ctx, caller, "after the repeat", nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, ran.Load(), "handlers")
}

// awaitStoredReply waits until the reply to a call is stored. One that is kept for a moment is gone then.
func awaitStoredReply(ctx context.Context, t *testing.T, c *redis.Client, record string) {
	luatomictest.Eventually(t, 20*time.Second, "the reply", func() bool {
		keys := c.Keys(ctx, record).Val()
		return len(keys) == 0 || c.GetRange(ctx, keys[0], 0, 0).Val() == "d" && c.PTTL(ctx, keys[0]).Val() > time.Second
	})
}
