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

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The guards of rpc_reply and rpc_collect for a request that another node has now.
func TestRPCScriptsThatDecide(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	record := "{" + k + "}:r:1"
	reply := func(node string, attempt int64, state string) rpcscript.ReplyResult {
		return lab.Must(rpcscript.Reply(ctx, c, rpcscript.ReplyParams{Record: record, Node: node, Attempt: attempt,
			State: state,
			Frame: []byte("r"), Outbox: k, Keep: time.Minute}))
	}
	for _, lost := range []string{"l1 old\n\n", "p2 n\n\tk\nf"} {
		require.NoError(t, c.Set(ctx, record, lost, time.Hour).Err())
		require.Equal(t, rpcscript.ReplyResultStale, reply("old", 1, "d"), lost)
		require.Equal(t, lost, c.Get(ctx, record).Val())
	}
	require.Equal(t, rpcscript.ReplyResultStale, reply("n", 1, "d"), "the attempt counts")
	// A refused request keeps its callers, for the next node; a done one its digest, for the next caller.
	for state, want := range map[string]string{"r": "r2 n\nabc\tk\nr", "d": "d2 n\nabc\nr", "l": "l2 n\nabc\nr"} {
		require.NoError(t, c.Set(ctx, record, "p2 n\nabc\tk\nf", time.Hour).Err())
		require.Equal(t, rpcscript.ReplyResultAccepted, reply("n", 2, state))
		require.Equal(t, want, c.Get(ctx, record).Val())
		require.NotEqual(t, rpcscript.ReplyResultAccepted, reply("n", 2, state))
	}
	out, err := rpcscript.Reply(ctx, c, rpcscript.ReplyParams{Record: record, Node: "n", Attempt: 2, State: "p",
		Outbox: k})
	require.Error(t, err, out)

	// A node gets its own requests, a caller only replies, and neither more than a megabyte.
	large := strings.Repeat("x", 600_000)
	var records []string
	for i := range 4 {
		records = append(records, fmt.Sprint(record, i))
		require.NoError(t, c.Set(ctx, records[i], "p1 n\n\t"+k+"\n"+large, time.Hour).Err())
	}
	collect := func(node lua.Opt[string]) (states []rpcscript.CollectState) {
		for _, r := range lab.Must(rpcscript.Collect(ctx, c, rpcscript.CollectParams{Records: records, Node: node})) {
			states = append(states, r.State)
		}
		return states
	}
	const pending, later = rpcscript.CollectStatePending, rpcscript.CollectStateLater
	require.Equal(t, []rpcscript.CollectState{pending, pending, pending, pending}, collect(lua.Opt[string]{}))
	require.Equal(t, []rpcscript.CollectState{pending, pending, later, later}, collect(lua.Some("n")))
	require.Equal(t, make([]rpcscript.CollectState, 4), collect(lua.Some("other")))
	for i, value := range []string{"d1 n\n\none", "r1 n\n\tk\ntwo", "l1 n\n\n", "x"} {
		require.NoError(t, c.Set(ctx, records[i], value, time.Hour).Err())
	}
	rows := lab.Must(rpcscript.Collect(ctx, c, rpcscript.CollectParams{Records: records}))
	require.Equal(t, []string{"done one", "refused two", "lost ", "missing "}, []string{
		rows[0].State.String() + " " + string(rows[0].Frame), rows[1].State.String() + " " + string(rows[1].Frame),
		rows[2].State.String() + " " + string(rows[2].Frame), rows[3].State.String() + " " + string(rows[3].Frame)})
}

// That a node is dead is kept for the calls with a key that follow, but not for one that may run again. The end that a
// node has sent is kept for each of them.
func TestALostCallThatMayRunAgain(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	record := "{" + k + "}:r:1"
	decide := func(value string, again bool) rpcscript.DecideResult {
		require.NoError(t, c.Set(ctx, record, value, time.Hour).Err())
		p := scriptcase.GivenTo(k, "n")
		p.Again, p.Trust = again, true
		return lab.Must(rpcscript.Decide(ctx, c, p))
	}
	require.Equal(t, rpcscript.DecideOutcomeLost, decide("l1 old\n\n", false).Outcome)
	require.Equal(t, rpcscript.DecideOutcomeLost, decide("l1 old\n\nend", true).Outcome)
	require.Equal(t, rpcscript.DecideOutcomeSent, decide("l1 old\n\n", true).Outcome)
	require.Equal(t, "p2 n\n\t"+k+"\nf", c.Get(ctx, record).Val())
}

// staleLeases answers each look at leases that there is none.
type staleLeases chan struct{}

func (staleLeases) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (staleLeases) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h staleLeases) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if lease, ok := cmds[0].(*redis.FloatCmd); ok {
			lease.SetVal(0)
			select {
			case h <- struct{}{}:
			default:
			}
		}
		return err
	}
}

// Only the script that decides ends the call of a node, also where no other node could take it: what was read before is
// old by then.
func TestANodeThatIsBackKeepsItsCall(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	leave := make(chan struct{})
	release := sync.OnceFunc(func() { close(leave) })
	lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		<-leave
		return s, nil
	})
	t.Cleanup(release)
	own, looked := luatomictest.Client(t), make(staleLeases, 1)
	own.AddHook(looked)
	caller := lab.OpenBus(t, own, name, &rpc.Options{Lease: 300 * time.Millisecond, Timeout: time.Minute})
	called := startCall(t, lab.Echo, caller, "x")
	for range 2 { // the second look is after the decision
		select {
		case <-looked:
		case out := <-called:
			require.NoError(t, out.err)
		}
	}
	release()
	out := lab.Soon(t, 20*time.Second, "the result", called)
	require.NoError(t, out.err)
	require.Equal(t, "x", out.out)
}

// C16: a subscriber that reads slowly is disconnected by the server when its output buffer grows
// too large. So large replies are not published, and all arrive.
func TestRPCLargeRepliesUnderAnOutputLimit(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	require.NoError(t, c.ConfigSet(t.Context(), "client-output-buffer-limit", "pubsub 1mb 256kb 1").Err())
	lab.Serving(t, lab.Echo, c, "b", &rpc.Options{Concurrency: 500, Lease: time.Minute},
		func(context.Context, string) (string,
			error) {
			return strings.Repeat("x", 100_000), nil
		})
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: 2 * time.Minute})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			out, err := lab.Echo.Call(t.Context(), caller, "", nil)
			require.NoError(t, err)
			require.Len(t, out, 100_000)
		})
	}
	wg.Wait()
}

// Open streams are asked about once, together, and cost nothing while no part is sent: what they would cost delays the
// decision about dead nodes.
func TestIdleStreamsAreAskedAboutOnceAndTogether(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	name, ticks := luatomictest.Namespace(t), rpc.NewStreamMethod[string, string]("ticks")
	const streams = 100
	node := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Concurrency: streams, Lease: time.Minute})
	require.NoError(t, ticks.Serve(node, func(ctx context.Context, _ string, send func(string) error) error {
		err := send("x")
		<-ctx.Done()
		return err
	}))
	require.NoError(t, node.Ready(ctx))
	own := luatomictest.Client(t)
	var asked, roundTrips, reads, heartbeats atomic.Int64
	own.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		for i, cmd := range cmds {
			switch {
			case cmd.Name() == "hexists":
				asked.Add(1)
				if i == 0 {
					roundTrips.Add(1)
				}
			case lab.OfScript(cmd, lab.Digest(&rpcscript.ReadScript)):
				reads.Add(1)
			case lab.OfScript(cmd, lab.Digest(&rpcscript.JoinScript)):
				heartbeats.Add(1)
			}
		}
	}))
	var unanswered atomic.Int64
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute, Lease: quick.Lease,
		OnError: func(err error) {
			if strings.Contains(err.Error(), "look for parts of streams") {
				unanswered.Add(1)
			}
		}})
	require.NoError(t, caller.Ready(ctx))
	subscribed := caller.Resubscribed()
	var came, all sync.WaitGroup
	came.Add(streams)
	for range streams {
		all.Go(func() {
			for _, err := range ticks.Call(ctx, caller, "") {
				if err == nil {
					came.Done()
				}
			}
		})
	}
	came.Wait()
	luatomictest.Eventually(t, 20*time.Second, "each is asked about", func() bool { return asked.Load() >= streams })
	later := heartbeats.Load() + 4
	luatomictest.Eventually(t, 20*time.Second, "later heartbeats", func() bool { return heartbeats.Load() >= later })
	// On a machine that stands still a question has no answer in time, or a subscription is replaced: they are asked
	// about anew.
	anew := unanswered.Load() + caller.Resubscribed() - subscribed
	require.LessOrEqual(t, asked.Load(), streams*(1+anew))
	require.Zero(t, reads.Load())
	require.Less(t, roundTrips.Load(), asked.Load()/4)
	cancel()
	all.Wait()
}
