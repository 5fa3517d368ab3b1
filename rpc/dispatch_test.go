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

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lua"
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
			got, err := lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Node: bus.Node()})
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	_, err := lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Node: "nobody"})
	require.ErrorContains(t, err, "no lease")
	_, err = lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Node: caller.Node()})
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
	_, err := lab.Echo.CallWith(short, callers[0], "a", opts)
	cancel()
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(1), ran.Load(), "it goes on")

	opts = &rpc.CallOptions{Key: "order 2"}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			out, err := lab.Echo.CallWith(ctx, callers[i%2], "b", opts)
			require.NoError(t, err)
			require.Equal(t, "b2", out)
		})
	}
	luatomictest.Eventually(t, 20*time.Second, "it runs", func() bool { return ran.Load() == 2 })
	close(leave)
	wg.Wait()
	out, err := lab.Echo.CallWith(ctx, callers[1], "c", opts)
	require.NoError(t, err)
	require.Equal(t, "b2", out, "its result stays")
	for range 2 {
		_, err = lab.Echo.CallWith(ctx, callers[1], "fail", &rpc.CallOptions{Key: "order 3"})
		require.ErrorContains(t, err, "declined", "a handler's error is a result")
	}
	require.Equal(t, int64(3), ran.Load())
	out, err = lab.Echo.CallWith(ctx, callers[0], "d", &rpc.CallOptions{Key: "order 2", Node: node.Node()})
	require.NoError(t, err)
	require.Equal(t, "b2", out, "also where the call names a node")
	other := rpc.NewMethod[string, string]("other")
	_, err = other.CallWith(ctx, callers[0], "", opts)
	require.ErrorIs(t, err, rpc.ErrNoResponders, "a key belongs to its method")
}

// A call costs two commands of clients, its two scripts; at most 13 inside them; and at
// most 500 bytes out of the server.
func TestRPCCost(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	opts := &rpc.Options{Lease: 5 * time.Minute} // no heartbeat, and no check, while it counts
	lab.Serving(t, lab.Echo, c, "orders", opts, lab.Upper)
	caller := lab.OpenBus(t, c, "orders", opts)
	const calls = 1000
	run := func() {
		for range calls {
			_, err := lab.Echo.Call(ctx, caller, "a request of 32 bytes, and no more")
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
	require.LessOrEqual(t, inner, 13*calls)
	require.Less(t, out, 500*calls)
	clients := lab.Must(c.ClientList(ctx).Result())
	require.Equal(t, 2, strings.Count(clients, "flags=P"), "one subscriber connection for each bus")
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
			node := lab.Serving(t, lab.Echo, luatomictest.Client(t), bus, &rpc.Options{Concurrency: 1, Lease: time.Minute},
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
			out, err := lab.Echo.CallWith(ctx, caller, "x", opts(node))
			require.NoError(t, err)
			require.Equal(t, "x", out)
			_, err = lab.Echo.CallWith(ctx, caller, "y", opts(node))
			require.NoError(t, err)
		})
	}
}

// The guards of the scripts that send: a node that is full is known before anything is
// published, an unreachable node is asked last, and one that is named is not replaced.
func TestRPCScriptsThatSend(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Announced(ctx, c, k))
	require.NoError(t, lab.Subscribe(ctx, t, c, k+"n"))
	p := gen.RPCCallParams{Nodes: "{" + k + "}:nodes", Method: "{" + k + "}:m:x", Record: "{" + k + "}:r:1",
		Frame: []byte("f"), Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour}
	for score, want := range map[float64]gen.RPCCallOutcome{
		-1: gen.RPCCallOutcomeSent, 0: gen.RPCCallOutcomeOverloaded, 7: gen.RPCCallOutcomeOverloaded,
		999_999: gen.RPCCallOutcomeSent,
	} {
		require.NoError(t, c.ZAdd(ctx, p.Method, redis.Z{Score: score, Member: "n"}).Err())
		require.NoError(t, c.Del(ctx, p.Record).Err())
		r, err := gen.RPCCall(ctx, c, p)
		require.NoError(t, err)
		require.Equal(t, want, r.Outcome, score)

		require.NoError(t, c.ZAdd(ctx, p.Method, redis.Z{Score: score, Member: "n"}).Err())
		require.NoError(t, c.Del(ctx, p.Record).Err())
		d, err := gen.RPCDirect(ctx, c, gen.RPCDirectParams{Nodes: p.Nodes, Method: p.Method, Record: p.Record,
			Target: lua.Some("n"),
			Frame:  p.Frame, Caller: k, Outbox: k, Timeout: time.Minute, Keep: time.Hour})
		require.NoError(t, err)
		require.Equal(t, want.String(), d.Outcome.String(), score)
	}
	// A node without a subscriber gets it where its lease suffices, and is passed over otherwise.
	require.NoError(t, c.Del(ctx, p.Record).Err())
	require.NoError(t, c.ZAdd(ctx, p.Method, redis.Z{Score: -2, Member: "far"}, redis.Z{Score: -1, Member: "n"}).Err())
	require.NoError(t, c.ZAdd(ctx, p.Nodes, redis.Z{Score: lab.Future, Member: "far"}).Err())
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
