package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// counting counts the runs of a script.
type counting struct {
	lab.Around
	n atomic.Int64
}

// The server lists a thousand nodes. On a bus with more of them one that is not listed
// is not taken for dead.
func TestGatherOnACrowdedBus(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	hook := &counting{}
	hook.Around = lab.Around{Sha: gen.RPCNodesScript.SHA, Do: func(run func() error) error {
		hook.n.Add(1)
		return run()
	}}
	asking := luatomictest.Client(t)
	asking.AddHook(hook)
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, s string) (string, error) {
		for start := hook.n.Load(); hook.n.Load() < start+2; {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return lab.Upper(ctx, s)
	})
	caller := lab.OpenBus(t, asking, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(ctx))
	crowd := make([]redis.Z, 5000) // the announcements forget a hundred at a time
	for i := range crowd {
		crowd[i] = redis.Z{Score: 1, Member: fmt.Sprint("n", i)}
	}
	require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:nodes", crowd...).Err())
	n := 0
	for part, err := range lab.Echo.Gather(ctx, caller, "x") {
		require.NoError(t, err)
		require.Equal(t, "X", part.Result)
		n++
	}
	require.Equal(t, 1, n)
}

// The guards of rpc_rescue, rpc_cancel, rpc_attach, rpc_collect and rpc_part.
func TestRPCScriptsThatDecide(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	record, method, nodes := "{"+k+"}:r:1", "{"+k+"}:m:x", "{"+k+"}:nodes"
	rescue := func(again bool) gen.RPCRescueResult {
		r, err := gen.RPCRescue(ctx, c, gen.RPCRescueParams{Nodes: nodes, Method: method, Record: record, Again: again,
			Outbox: k, Notice: []byte("L"), Grace: time.Second, Keep: time.Minute})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, gen.RPCRescueOutcomeMissing, rescue(true).Outcome)
	require.NoError(t, scriptcase.Asked(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeAlive, rescue(true).Outcome, "its lease is good")
	require.NoError(t, scriptcase.Orphaned(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(false).Outcome, "it may not run twice")
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(true).Outcome, "what is lost stays lost")
	reply := func(node string, attempt int64) gen.RPCReplyResult {
		out, err := gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: record, Method: method, Node: node, Attempt: attempt,
			Frame: []byte("r"), Outbox: k, Keep: time.Minute})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, gen.RPCReplyResultStale, reply("old", 1), "the reply to a lost call")
	require.NoError(t, scriptcase.Orphaned(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(true).Outcome, "no subscriber")
	require.NoError(t, lab.Subscribe(ctx, t, c, k+"n"))
	require.NoError(t, scriptcase.Orphaned(ctx, c, k))
	require.Equal(t, gen.RPCRescueOutcomeLost, rescue(false).Outcome,
		"it may not run twice, although another node is there")
	known, err := gen.RPCAttach(ctx, c, gen.RPCAttachParams{Record: record, Caller: "me"})
	require.NoError(t, err)
	require.Equal(t, gen.RPCAttachStateLost, known.State)
	require.Zero(t, c.Exists(ctx, record).Val(), "a call with the same key may be made anew")
	require.NoError(t, scriptcase.Orphaned(ctx, c, k))
	require.NoError(t, c.ZAdd(ctx, method, redis.Z{Score: -9, Member: "dead too"}).Err())
	require.NoError(t, lab.Subscribe(ctx, t, c, k+"dead too"))
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
		out, err := gen.RPCCancel(ctx, c, gen.RPCCancelParams{Record: record, Method: method, Outbox: k, Notice: []byte("X"),
			Mark: mark})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, gen.RPCCancelResultDone, cancel(0))
	require.Zero(t, c.Exists(ctx, record).Val(), "a reply that no caller reads")
	require.Equal(t, gen.RPCCancelResultMissing, cancel(time.Minute))
	sent, err := gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: nodes, Method: method, Record: record,
		Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
	require.NoError(t, err)
	require.Equal(t, gen.RPCCallOutcomeKnown, sent.Outcome, "it comes after it was given up")
	require.Equal(t, gen.RPCReplyResultMissing, reply("n", 1))

	// Seventeen callers: the first is notified, sixteen with it, and the last checks by itself.
	require.NoError(t, scriptcase.Asked(ctx, c, k))
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

	require.NoError(t, scriptcase.Gathered(ctx, c, k))
	for i, want := range []gen.RPCPartResult{gen.RPCPartResultAccepted, gen.RPCPartResultDuplicate,
		gen.RPCPartResultStale} {
		out, err := gen.RPCPart(ctx, c, gen.RPCPartParams{Gather: "{" + k + "}:g:1", Method: method, Node: []string{"n",
			"n", "stranger"}[i], Frame: []byte("f"), Outbox: k})
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
}

// C16: a subscriber that reads slowly is disconnected by the server when its output buffer grows
// too large. So large replies are not published, and all arrive.
func TestRPCLargeRepliesUnderAnOutputLimit(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	require.NoError(t, c.ConfigSet(t.Context(), "client-output-buffer-limit", "pubsub 1mb 256kb 1").Err())
	lab.Serving(t, lab.Echo, c, "b", &rpc.Options{Concurrency: 500}, func(context.Context, string) (string,
		error) {
		return strings.Repeat("x", 100_000), nil
	})
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: 2 * time.Minute})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			out, err := lab.Echo.Call(t.Context(), caller, "")
			require.NoError(t, err)
			require.Len(t, out, 100_000)
		})
	}
	wg.Wait()
}
