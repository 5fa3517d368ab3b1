package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A gather loses no answer when connections are cut, and a node that dies is marked and
// not waited for.
func TestRPCGatherUnderFaults(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	opts := &rpc.Options{Timeout: time.Minute}
	entered, answer := make(chan struct{}, 10), make(chan struct{})
	dead := servingThrough(t, lab.Echo, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", nil
	})
	var nodes []gone
	for range 3 {
		nodes = append(nodes, servingThrough(t, lab.Echo, name, opts, func(_ context.Context, s string) (string, error) {
			entered <- struct{}{}
			<-answer
			return s, nil
		}))
	}
	client, proxy := through(t)
	caller := lab.OpenBus(t, client, name, opts)
	require.NoError(t, caller.Ready(t.Context()))
	// Once all have the request the connections are cut, for less than a lease, and the
	// answers come in the midst of it.
	var faults sync.WaitGroup
	faults.Go(func() {
		for range 4 {
			select {
			case <-entered:
			case <-t.Context().Done():
				return
			}
		}
		dead.proxy.Blackhole(true)
		for i := range 25 {
			if i == 2 {
				close(answer)
			}
			proxy.CutAll()
			for _, n := range nodes {
				n.proxy.CutAll()
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	t.Cleanup(faults.Wait)
	start, answers, lost := time.Now(), 0, 0
	for p, err := range lab.Echo.Gather(t.Context(), caller, "x") {
		switch {
		case err == nil:
			answers++
		case errors.Is(err, rpc.ErrNodeLost):
			lost++
			require.Equal(t, dead.Node(), p.Node)
		default:
			t.Errorf("%s: %v", p.Node, err)
		}
	}
	require.Equal(t, []int{3, 1}, []int{answers, lost})
	require.Less(t, time.Since(start), 30*time.Second, "by the end of its lease, and not of the gather")
}

// C10 and C11: who is asked is fixed when the request goes out; the sequence ends with
// the last of them.
func TestRPCGather(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for _, err := range lab.Echo.Gather(ctx, caller, "") {
		require.ErrorIs(t, err, rpc.ErrNoResponders)
	}
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	want := make(map[string]bool)
	for i := range 5 {
		b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
			entered <- struct{}{}
			<-leave
			if i == 0 {
				return "", errors.New("not me")
			}
			return fmt.Sprint(s, i), nil
		})
		want[b.Node()] = true
	}
	go func() {
		for range 5 {
			<-entered
		}
		// A node that comes now is not asked, and one that is deaf is not waited for.
		late, err := rpc.NewBus(c, name, nil)
		require.NoError(t, err)
		require.NoError(t, lab.Echo.Serve(late, sayer("late")))
		lab.RunBus(t, late)
		require.NoError(t, late.Ready(ctx))
		close(leave)
	}()
	start, failed := time.Now(), 0
	for p, err := range lab.Echo.Gather(ctx, caller, "r") {
		require.True(t, want[p.Node], "%q answers twice, or was not asked: %v", p.Node, err)
		delete(want, p.Node)
		if err != nil {
			require.ErrorContains(t, err, "not me")
			failed++
		} else {
			require.True(t, strings.HasPrefix(p.Result, "r"))
		}
	}
	require.Empty(t, want)
	require.Equal(t, 1, failed)
	require.Less(t, time.Since(start), 30*time.Second, "half of its time")

	for range lab.Echo.Gather(ctx, caller, "r") {
		break // the rest is told
	}
	require.Zero(t, caller.Waiting())
}

func TestRPCGatherEndsWithItsTime(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, told := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		close(entered)
		<-ctx.Done()
		close(told)
		return "", ctx.Err()
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	n := 0
	for p, err := range lab.Echo.Gather(ctx, caller, "") {
		require.Empty(t, p.Node)
		require.ErrorIs(t, err, context.Canceled)
		n++
	}
	require.Equal(t, 1, n)
	lab.Soon(t, 30*time.Second, "the handler is told, long before its deadline", told)
}
