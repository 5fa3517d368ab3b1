package rpc_test

import (
	"context"
	"fmt"
	"strconv"
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
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// answering answers with that name.
func answering(name string) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) { return name, nil }
}

func TestRPCToANode(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	a := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Node: "a"}, answering("a"))
	b := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Node: "b"}, answering("b"))
	caller := lab.OpenBus(t, c, name, nil)
	for range 5 {
		for want, bus := range map[string]*rpc.Bus{"a": a, "b": b} {
			got, err := lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Node: bus.Node()})
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	_, err := lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Node: "nobody"})
	require.ErrorContains(t, err, "no lease")
	_, err = lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Node: caller.Node()})
	require.ErrorContains(t, err, "no node serves it")
	nodes, err := caller.Nodes(ctx)
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	for _, n := range nodes {
		require.Positive(t, n.Lease)
		if n.Node != caller.Node() {
			require.Equal(t, []string{"echo"}, n.Methods)
			require.Equal(t, 64, n.Concurrency)
		}
	}
}

// A key makes one call of many: those made while it runs, and after it, get its
// result, and it continues when its caller gives up.
func TestRPCIdempotencyKeys(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int64
	leave := make(chan struct{})
	node := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		n := ran.Add(1)
		<-leave
		if s == "fail" {
			return "", &rpc.RemoteError{Code: "declined"}
		}
		return fmt.Sprint(s, n), nil
	})
	long := &rpc.Options{Timeout: time.Minute}
	callers := []*rpc.Bus{lab.OpenBus(t, c, name, long), lab.OpenBus(t, c, name, long)}
	opts := &rpc.CallOptions{Key: "order 1"}
	short, cancel := context.WithCancel(ctx)
	go func() {
		for ran.Load() == 0 && short.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err := lab.Echo.Call(short, callers[0], "a", opts)
	cancel()
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(1), ran.Load(), "it goes on")

	opts = &rpc.CallOptions{Key: "order 2"}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			out, err := lab.Echo.Call(ctx, callers[i%2], "b", opts)
			require.NoError(t, err)
			require.Equal(t, "b2", out)
		})
	}
	luatomictest.Eventually(t, 20*time.Second, "it runs", func() bool { return ran.Load() == 2 })
	close(leave)
	wg.Wait()
	out, err := lab.Echo.Call(ctx, callers[1], "b", opts)
	require.NoError(t, err)
	require.Equal(t, "b2", out, "its result stays")
	for range 2 {
		_, err = lab.Echo.Call(ctx, callers[1], "fail", &rpc.CallOptions{Key: "order 3"})
		require.ErrorContains(t, err, "declined", "a handler's error is a result")
	}
	require.Equal(t, int64(3), ran.Load())
	out, err = lab.Echo.Call(ctx, callers[0], "b", &rpc.CallOptions{Key: "order 2", Node: node.Node()})
	require.NoError(t, err)
	require.Equal(t, "b2", out, "also where the call names a node")
	_, err = lab.Echo.Call(ctx, callers[0], "other", opts)
	require.ErrorIs(t, err, rpc.ErrKeyReused)
	other := rpc.NewMethod[string, string]("other")
	_, err = other.Call(ctx, callers[0], "", opts)
	require.ErrorIs(t, err, rpc.ErrNoResponders, "a key belongs to its method")
}

// A call costs two commands of clients, its two scripts; at most 9 inside them; and at
// most 500 bytes out of the server.
func TestRPCCost(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	opts := &rpc.Options{Lease: 5 * time.Minute} // no heartbeat, and no check, while it counts
	lab.Serving(t, lab.Echo, c, "orders", opts, lab.Upper)
	caller := lab.OpenBus(t, c, "orders", opts)
	const calls = 1000
	run := func() {
		for range calls {
			_, err := lab.Echo.Call(ctx, caller, "a request of 32 bytes, and no more", nil)
			require.NoError(t, err)
		}
	}
	run()
	require.NoError(t, c.ConfigResetStat(ctx).Err())
	run()
	scripts, inner := 0, 0
	var text strings.Builder
	for name, n := range lab.CommandCalls(t, c) {
		switch name {
		case "evalsha":
			scripts = n
		case "info", "config|resetstat", "hlen", "hset", "pexpire": // of the beat
		default:
			inner += n
			fmt.Fprintf(&text, " %s %d", name, n)
		}
	}
	info := lab.Must(c.Info(ctx, "stats").Result())
	_, after, _ := strings.Cut(info, "total_net_output_bytes:")
	out, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\r\n", 2)[0]))
	require.NoError(t, err)
	t.Logf("per call: %.2f scripts, %.2f commands inside, %d bytes out;%s", float64(scripts)/calls,
		float64(inner)/calls, out/calls, text.String())
	require.InDelta(t, 2*calls, scripts, 20, "client commands")
	require.LessOrEqual(t, inner, 9*calls)
	require.Less(t, out, 500*calls)
	clients := lab.Must(c.ClientList(ctx).Result())
	require.Equal(t, 1, strings.Count(clients, "flags=P"), "one subscriber connection for all buses of a client")
}

// A call whose answer was lost is known when it is sent again, although its node has
// no room for it any more, or left its method, since it has it.
func TestRPCCallThatIsKnownIsNotRefused(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]func(*rpc.Bus) *rpc.CallOptions{
		"any":    func(*rpc.Bus) *rpc.CallOptions { return nil },
		"direct": func(b *rpc.Bus) *rpc.CallOptions { return &rpc.CallOptions{Node: b.Node()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, bus := t.Context(), luatomictest.Namespace(t)
			release := make(chan struct{})
			// Its lease is long, so that no announcement says that it has no room when it has.
			node := lab.Serving(t, lab.Echo, luatomictest.Client(t), bus,
				&rpc.Options{Concurrency: 1, Lease: time.Minute},
				func(_ context.Context, s string) (string, error) {
					<-release
					return s, nil
				})
			end := sync.OnceFunc(func() { close(release) })
			t.Cleanup(end)
			client, proxy := through(t)
			caller := lab.OpenBus(t, client, bus, &rpc.Options{Timeout: time.Minute})
			require.NoError(t, caller.Ready(ctx))
			proxy.Drop(1, luatomictest.Command("EVALSHA"))
			time.AfterFunc(300*time.Millisecond, end)
			out, err := lab.Echo.Call(ctx, caller, "x", opts(node))
			require.NoError(t, err)
			require.Equal(t, "x", out)
			_, err = lab.Echo.Call(ctx, caller, "y", opts(node))
			require.NoError(t, err)
		})
	}
}

// The guards of rpc_call: which node gets a request, and what a record that exists decides.
func TestRPCScriptThatSends(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	for node, lease := range map[string]float64{"far": lab.Future, "n2": lab.Future, "dead": lab.Past} {
		require.NoError(t, c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: lease, Member: node}).Err())
	}
	for _, node := range []string{"n", "n2", "dead"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+node))
	}
	const frame = "60000 1\nf"
	for name, test := range map[string]struct {
		record, node, others string
		change               func(p *rpcscript.DecideParams)
		outcome              rpcscript.DecideOutcome
		at, left             string
	}{
		"the first one":        {"", "n", "n2", nil, rpcscript.DecideOutcomeSent, "n", "p1 n\n\tk\nf"},
		"the next one":         {"", "dead", "far\nn2", nil, rpcscript.DecideOutcomeSent, "n2", "p1 n2\n\tk\nf"},
		"dead":                 {"", "dead", "none", nil, rpcscript.DecideOutcomeNoLease, "", ""},
		"without a subscriber": {"", "dead", "far", nil, rpcscript.DecideOutcomeNoSubscriber, "", ""},
		"trusted": {"", "far", "n", func(p *rpcscript.DecideParams) { p.Trust = true },
			rpcscript.DecideOutcomeSent, "far", "p1 far\n\tk\nf"},
		"late": {"", "n", "", func(p *rpcscript.DecideParams) { p.Ends = 1 }, rpcscript.DecideOutcomeLate,
			"", ""},
		"pending":        {"p1 n\n\tk\nold", "n2", "", nil, rpcscript.DecideOutcomeKnown, "n", "p1 n\n\tk\nold"},
		"another caller": {"p3 n\n\tx\nold", "n2", "", nil, rpcscript.DecideOutcomeKnown, "n", "p3 n\n\tx\tk\nold"},
		"done":           {"d2 n\n\nreply", "n2", "", nil, rpcscript.DecideOutcomeDone, "n", "d2 n\n\nreply"},
		"lost":           {"l1 n\n\n", "n2", "", nil, rpcscript.DecideOutcomeLost, "n", "l1 n\n\n"},
		"cancelled":      {"x", "n2", "", nil, rpcscript.DecideOutcomeCancelled, "", "x"},
		"another request": {"p1 n\nabc\tx\nold", "n2", "", nil, rpcscript.DecideOutcomeOtherRequest, "n",
			"p1 n\nabc\tx\nold"},
		"the same request": {"d1 n\nabc\nreply", "n2", "", func(p *rpcscript.DecideParams) { p.Digest = "abc" },
			rpcscript.DecideOutcomeDone, "n", "d1 n\nabc\nreply"},
		"refused": {"r1 n\n\tx\nold", "n2", "n", nil, rpcscript.DecideOutcomeSent, "n2",
			"p2 n2\n\tx\tk\nf"},
		"refused, and no other node": {"r1 n\n\tk\nold", "n", "", nil, rpcscript.DecideOutcomeSent, "n",
			"p2 n\n\tk\nf"},
		"orphaned": {"p1 dead\n\tk\nold", "n", "", nil, rpcscript.DecideOutcomeLost, "dead",
			"l1 dead\n\n"},
		"orphaned, and may run again": {"p1 dead\n\tk\nold", "n", "",
			func(p *rpcscript.DecideParams) { p.Again = true },
			rpcscript.DecideOutcomeSent, "n", "p2 n\n\tk\nf"},
		"orphaned, and no other node": {"p1 dead\n\tk\nold", "dead", "", func(p *rpcscript.DecideParams) {
			p.Again = true
		},
			rpcscript.DecideOutcomeLost, "dead", "l1 dead\n\n"},
		"too many callers": {"p1 n\n\t" + strings.Repeat("x", 3000) + "\nold", "n", "", nil,
			rpcscript.DecideOutcomeFull, "n", "p1 n\n\t" + strings.Repeat("x", 3000) + "\nold"},
	} {
		p := scriptcase.GivenTo(k, test.node)
		p.Others, p.Caller = test.others, "k"
		if test.change != nil {
			test.change(&p)
		}
		require.NoError(t, c.Del(ctx, p.Record).Err())
		if test.record != "" {
			require.NoError(t, c.Set(ctx, p.Record, test.record, time.Hour).Err())
		}
		r, err := rpcscript.Decide(ctx, c, p)
		require.NoError(t, err, name)
		require.Equal(t, []any{test.outcome.String(), test.at}, []any{r.Outcome.String(), r.Node}, name)
		require.Equal(t, test.left, c.Get(ctx, p.Record).Val(), name)
		if test.left != "" {
			require.Positive(t, c.PTTL(ctx, p.Record).Val(), name)
		}
		if test.outcome == rpcscript.DecideOutcomeDone {
			require.Equal(t, "reply", string(r.Frame), name)
		}
	}
	// What a node reads: the attempt, the remaining time, which the end bounds, and the length.
	ps := c.Subscribe(ctx, k+"n")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
	p := scriptcase.GivenTo(k, "n")
	require.NoError(t, c.Del(ctx, p.Record).Err())
	require.Equal(t, rpcscript.DecideOutcomeSent, lab.Must(rpcscript.Decide(ctx, c, p)).Outcome)
	require.Equal(t, "1 "+frame, lab.Must(ps.ReceiveMessage(ctx)).Payload)
	require.NoError(t, c.Del(ctx, p.Record).Err())
	p.Ends = c.Time(ctx).Val().Add(20 * time.Second).UnixMilli()
	require.Equal(t, rpcscript.DecideOutcomeSent, lab.Must(rpcscript.Decide(ctx, c, p)).Outcome)
	require.Regexp(t, "^1 (1[0-9]{4}|20000) 1\nf$", lab.Must(ps.ReceiveMessage(ctx)).Payload)
}

// The guards of rpc_call and rpc_reply, row by row: each row has the outcome that it has alone, the rows of one
// receiver are one message, and a row that fails keeps no other from being published.
func TestRPCScriptsForMany(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	p := "{" + k + "}:"
	for node, lease := range map[string]float64{"a": lab.Future, "b": lab.Future, "dead": lab.Past, "far": lab.Future,
		"leaving": lab.Future + 0.999} {
		require.NoError(t, c.ZAdd(ctx, p+"nodes", redis.Z{Score: lease, Member: node}).Err())
	}
	for _, node := range []string{"b", "dead", "leaving"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+node))
	}
	a := c.Subscribe(ctx, k+"a")
	defer a.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(a.Receive(ctx)))
	require.NoError(t, c.Set(ctx, p+"r:known", "p1 a\n\tme\nx", time.Hour).Err())
	require.NoError(t, c.HSet(ctx, p+"r:wrong", "x", "y").Err())
	future, past := strconv.FormatInt(scriptcase.FutureMilli, 10), "1"
	type row struct{ record, node, frame, ends string }
	call := func(rows ...row) ([]int64, error) {
		var keys []string
		var args []any
		for _, r := range rows {
			keys = append(keys, p+"nodes", p+"r:"+r.record)
			args = append(args, r.node, "me", k, r.frame, "", "60000", r.ends, "3600000", "0")
		}
		return c.Eval(ctx, lab.Text(c, &rpcscript.CallScript), keys, args...).Int64Slice()
	}
	out, err := call(row{"1", "a", "one", future}, row{"2", "b", "f", future}, row{"3", "dead", "f", future},
		row{"known", "a", "f", future}, row{"4", "a", "f", past}, row{"5", "a", "five", future},
		row{"6", "far", "f", future}, row{"7", "leaving", "f", future})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1, 0, 0, 8, 1, 0, 0}, out)
	require.Equal(t, "1 60000 3\none1 60000 4\nfive", lab.Must(a.ReceiveMessage(ctx)).Payload)
	require.Equal(t, "p1 a\n\tme\nfive", c.Get(ctx, p+"r:5").Val())
	require.Equal(t, int64(3), c.Exists(ctx, p+"r:1", p+"r:2", p+"r:3", p+"r:4", p+"r:5", p+"r:6", p+"r:7").Val())
	_, err = call(row{"8", "a", "eight", future}, row{"wrong", "a", "f", future})
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Equal(t, "1 60000 5\neight", lab.Must(a.ReceiveMessage(ctx)).Payload)

	_, err = call(make([]row, 65)...)
	require.ErrorContains(t, err, "row: at most 64")

	me := c.Subscribe(ctx, k+"me")
	defer me.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(me.Receive(ctx)))
	reply := func(rows ...row) ([]int64, error) {
		var keys []string
		var args []any
		for _, r := range rows {
			keys = append(keys, p+"r:"+r.record)
			args = append(args, r.node, "1", "", "d", r.frame, k, "60000", "0")
		}
		return c.Eval(ctx, lab.Text(c, &rpcscript.ReplyScript), keys, args...).Int64Slice()
	}
	out, err = reply(row{"1", "a", "one", ""}, row{"2", "a", "f", ""}, row{"3", "a", "f", ""},
		row{"5", "a", "five", ""}, row{"1", "a", "again", ""})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 0, 1, 2}, out)
	require.Equal(t, "0 0 3\none0 0 4\nfive", lab.Must(me.ReceiveMessage(ctx)).Payload)
	require.Equal(t, "d1 a\n\none", c.Get(ctx, p+"r:1").Val())
	_, err = reply(make([]row, 65)...)
	require.ErrorContains(t, err, "row: at most 64")
	_, err = reply(row{"8", "a", "eight", ""}, row{"wrong", "a", "f", ""})
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Equal(t, "0 0 5\neight", lab.Must(me.ReceiveMessage(ctx)).Payload)
}
