package rpc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A node follows its slot later than the caller. What is sent meanwhile is kept for it
// and not refused: it was silent for a moment, and is not dead.
func TestRPCNodeThatFollowsItsSlotLate(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 2 * time.Minute, Timeout: 29 * time.Second} // no check comes in time
	var d door
	node := lab.Serving(t, lab.Echo, d.client(cluster), "late", opts, lab.Upper)
	caller := lab.OpenBus(t, cluster.Client(), "late", opts)
	_, err := lab.Echo.Call(ctx, caller, "before", nil)
	require.NoError(t, err)

	d.set(true)
	_, from := home(t, cluster, "late")
	moveSlot(t, cluster, "late")
	luatomictest.Eventually(t, 20*time.Second, "the caller has followed", func() bool {
		return len(lab.Must(cluster.Nodes()[(from+1)%3].Client().PubSubShardChannels(ctx, "*").Result())) == 2
	})
	results := make(chan error, 3)
	call := func(f func() (string, error)) {
		go func() {
			out, err := f()
			if err == nil && out != "X" {
				err = errors.New(out)
			}
			results <- err
		}()
	}
	call(func() (string, error) { return lab.Echo.Call(ctx, caller, "x", nil) })
	call(func() (string, error) {
		return lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Node: node.Node()})
	})
	call(func() (out string, err error) {
		for p, e := range lab.Echo.Gather(ctx, caller, "x") {
			out, err = p.Result, e
		}
		return out, err
	})
	select {
	case err := <-results:
		t.Fatalf("it has an answer already: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	d.set(false)
	for range 3 {
		require.NoError(t, <-results)
	}
}

// A migration that stalls: the keys are there, and the subscribers are here. What was
// sent before has its answer, and the nodes do not subscribe anew all the time.
func TestRPCWhileAMigrationStandsStill(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 6 * time.Second, Timeout: time.Minute}
	entered, leave := make(chan struct{}), make(chan struct{})
	node := lab.Serving(t, hold, cluster.Client(), "still", opts, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return "done", nil
	})
	require.NoError(t, lab.Echo.Serve(node, lab.Upper, nil))
	caller := lab.OpenBus(t, cluster.Client(), "still", opts)
	require.NoError(t, caller.Ready(ctx))
	answer := make(chan error, 1)
	go func() {
		_, err := hold.Call(ctx, caller, "x", nil)
		answer <- err
	}()
	<-entered
	slot, from := home(t, cluster, "still")
	m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
	require.NoError(t, err)
	for {
		n, err := m.Move(ctx, 100)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	close(leave)
	require.NoError(t, <-answer)

	source := cluster.Nodes()[from].Client()
	before := lab.CommandCalls(t, source)["ssubscribe"]
	luatomictest.Eventually(t, 30*time.Second, "they find that they have no subscriber", func() bool {
		return lab.CommandCalls(t, source)["ssubscribe"] >= before+4
	})
	<-time.After(2 * time.Second)
	require.Less(t, lab.CommandCalls(t, source)["ssubscribe"], before+60, "each twice as late, then once a heartbeat")
	require.ErrorIs(t, lab.Echo.Cast(ctx, caller, "x"), rpc.ErrNoResponders, "a cast is not kept")
	luatomictest.Eventually(t, 20*time.Second, "it leaves its link alone",
		func() bool { return node.ResetBackoff() >= 100*time.Millisecond })
	require.NoError(t, m.Finish(ctx))
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
	luatomictest.Eventually(t, 30*time.Second, "the next time it starts from the shortest wait",
		func() bool { return node.ResetBackoff() == 0 })
}
