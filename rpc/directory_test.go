package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A thousand nodes of a hundred methods each, as their heartbeats announce them. A heartbeat costs as much as without
// the others, a list has all of them, a gather names each of them once, and a call finds the one that can be reached.
func TestAThousandNodes(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	const nodes = 1000
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("method", i)
	}
	names[0] = "echo"
	beat := rpcscript.JoinParams{
		Nodes: "rpc:{b}:nodes", About: "rpc:{b}:about", Methods: "rpc:{b}:methods", Serves: "rpc:{b}:serves",
		Lease: time.Hour, Text: "{}", Outbox: "rpc:{b}:n:", Notice: []byte("P\x02"), Stay: time.Hour, Names: names,
	}
	for from := 0; from < nodes; from += 100 {
		batch := lua.NewBatch(c)
		for i := range 100 {
			beat.Node = fmt.Sprintf("node%04d", from+i)
			rpcscript.JoinIn(batch, beat)
		}
		require.NoError(t, batch.Exec(ctx))
	}
	require.NoError(t, c.ConfigResetStat(ctx).Err())
	beat.Stay, beat.Names = 0, nil
	lab.Must(rpcscript.Join(ctx, c, beat))
	total := 0
	for name, n := range lab.CommandCalls(t, c) {
		if name != "config|resetstat" && name != "info" {
			total += n
		}
	}
	require.LessOrEqual(t, total, 12, "commands of a heartbeat")

	live := lab.Serving(t, lab.Echo, c, "b", &rpc.Options{Lease: time.Minute}, lab.Upper)
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Lease: time.Minute, Timeout: time.Minute})
	require.NoError(t, caller.Ready(ctx))
	require.Len(t, lab.Must(caller.Nodes(ctx)), nodes, "as many as it lists at most")
	answers, unreachable := 0, 0
	for p, err := range lab.Echo.Gather(ctx, caller, "x") {
		switch {
		case err == nil && p.Node == live.Node():
			answers++
		case errors.Is(err, rpc.ErrNoResponders):
			unreachable++
		default:
			t.Errorf("%s: %v", p.Node, err)
		}
	}
	require.Equal(t, [2]int{1, nodes}, [2]int{answers, unreachable})
	sent, err := lab.Echo.CastAll(ctx, caller, "x")
	require.NoError(t, err)
	require.Equal(t, 1, sent)
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
}

// A gather is left after the first of two answers that have both come. The other one, which nobody reads, counts its
// node as no busier: the next calls go to both.
func TestAGatherThatIsLeftCountsNoCallAsInFlight(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for range 2 {
		lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	}
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for range 3 {
		for _, err := range lab.Echo.Gather(ctx, caller, "x") {
			require.NoError(t, err)
			luatomictest.Eventually(t, 20*time.Second, "both answers", func() bool { return caller.Waiting() == 0 })
			break
		}
		require.Zero(t, caller.InFlight())
	}
}

// However calls end, none counts as in flight once nobody waits.
func TestNoCallCountsAsInFlightOnceAllAreOver(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	slow := rpc.NewMethod[string, string]("slow")
	var last *rpc.Bus
	for range 3 {
		last = lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 4}, lab.Upper)
		require.NoError(t, slow.Serve(last, func(ctx context.Context, s string) (string, error) {
			<-ctx.Done()
			return s, nil
		}, nil))
		require.NoError(t, countTo.Serve(last, func(_ context.Context, n int, send func(int) error) (err error) {
			for i := 0; i < n && err == nil; i++ {
				err = send(i)
			}
			return err
		}))
		require.NoError(t, last.Ready(ctx))
	}
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	kinds := []func(context.Context, int){
		func(ctx context.Context, _ int) { _, _ = lab.Echo.Call(ctx, caller, "x", nil) },
		func(ctx context.Context, n int) {
			_, _ = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Key: fmt.Sprint("key", n%3), Retry: 1})
		},
		func(ctx context.Context, _ int) {
			_, _ = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Node: last.Node()})
		},
		func(ctx context.Context, n int) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*time.Millisecond)
			defer cancel()
			_, _ = slow.Call(ctx, caller, "x", nil)
		},
		func(ctx context.Context, n int) {
			for range lab.Echo.Gather(ctx, caller, "x") {
				if n--; n%4 == 0 {
					break
				}
			}
		},
		func(ctx context.Context, n int) {
			for range countTo.Call(ctx, caller, 20) {
				if n--; n == 0 {
					break
				}
			}
		},
		func(ctx context.Context, _ int) { _ = lab.Echo.Cast(ctx, caller, "x") },
	}
	var all sync.WaitGroup
	for _, kind := range kinds {
		for range 2 {
			all.Go(func() {
				for n := range 30 {
					kind(ctx, n)
				}
			})
		}
	}
	all.Wait()
	require.Zero(t, caller.InFlight())
}

// A caller keeps nothing of method names that no node serves, and of others while they are called.
func TestACallerForgetsMethodsThatAreNotCalled(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, nil)
	for i := range 100 {
		_, err := rpc.NewMethod[string, string](fmt.Sprint("unknown", i)).Call(ctx, caller, "x", nil)
		require.ErrorIs(t, err, rpc.ErrNoResponders)
	}
	require.Zero(t, caller.Listings(0))
	_, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, 1, caller.Listings(time.Hour))
	require.NoError(t, hold.Serve(node, lab.Upper, nil))
	require.NoError(t, node.Ready(ctx))
	_, err = hold.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, 1, caller.Listings(0), "the one that is called")
}
