package rpc_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// guest is a node that joins, stays for a moment, and leaves; an early one leaves after
// that moment although it may not have joined.
func guest(ctx context.Context, t *testing.T, c *redis.Client, name string, early bool, stay time.Duration) {
	b, err := rpc.New(c, name, nil)
	if err == nil {
		err = lab.Echo.Serve(b, lab.Upper, nil)
	}
	if err != nil {
		t.Error(err)
		return
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Run(run)
	}()
	if !early {
		_ = b.Ready(run)
	}
	select {
	case <-run.Done():
	case <-time.After(stay):
	}
	stop()
	<-done
}

// A gather among nodes that come and go: its answers are those of nodes that were
// there, each once, and it ends by itself.
func TestRPCGatherWhileNodesComeAndGo(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	steady := make(map[string]bool)
	for range 2 {
		steady[lab.Serving(t, lab.Echo, c, name, nil, lab.Upper).Node()] = true
	}
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var nodes sync.WaitGroup
	defer nodes.Wait()
	defer cancel()
	for i := range 2 {
		nodes.Go(func() {
			for early := i == 0; ctx.Err() == nil; early = !early {
				guest(ctx, t, c, name, early, 10*time.Millisecond)
			}
		})
	}
	guests, gathers := 0, 0
	gather := func() {
		seen := make(map[string]bool)
		for p, err := range lab.Echo.Gather(t.Context(), caller, "x") {
			require.NotEmpty(t, p.Node, "%v", err)
			require.False(t, seen[p.Node], "twice: %s", p.Node)
			seen[p.Node] = true
			if steady[p.Node] {
				require.NoError(t, err)
				require.Equal(t, "X", p.Result)
			} else {
				guests++
			}
		}
		for node := range steady {
			require.True(t, seen[node], "%s was there all the time", node)
		}
		gathers++
	}
	// A slow machine has few guests in a second: it goes on until it has seen some.
	for start := time.Now(); time.Since(start) < time.Second || guests < 10 && time.Since(start) < 30*time.Second; {
		gather()
	}
	t.Logf("%d gathers, %d answers of guests", gathers, guests)
	require.Positive(t, guests)
}

// A gather reports to its caller that a node was not asked. So it is not, and no request waits for it.
func TestRPCGatherDoesNotAskLater(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:nodes", redis.Z{Score: lab.Future, Member: "unreachable"}).Err())
	require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:methods", redis.Z{Member: "echo\x00unreachable"}).Err())
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	var refused, answers int
	for p, err := range lab.Echo.Gather(ctx, caller, "x") {
		if err != nil {
			require.ErrorIs(t, err, rpc.ErrNoResponders)
			require.Equal(t, "unreachable", p.Node)
			refused++
		} else {
			answers++
		}
	}
	require.Equal(t, []int{1, 1}, []int{refused, answers})
	luatomictest.Eventually(t, 20*time.Second, "no request waits for it", func() bool {
		return len(lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())) == 0
	})
}

// A gather loses no answer when connections are cut, and a node that dies is marked and
// not waited for.
func TestRPCGatherUnderFaults(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	name := luatomictest.Namespace(t)
	opts := &rpc.Options{Timeout: time.Minute, Lease: 8 * time.Second}
	entered, answer := make(chan struct{}, 10), make(chan struct{})
	dead := servingThrough(t, lab.Echo, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", nil
	})
	var nodes []silenced
	for range 3 {
		nodes = append(nodes, servingThrough(t, lab.Echo, name, opts,
			func(_ context.Context, s string) (string, error) {
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

// A gather that cannot list the nodes has called none: it says so, although the fate of the list is not known.
func TestAGatherWithoutAListHasNotRun(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	client, proxy := through(t)
	caller := lab.OpenBus(t, client, name, nil)
	require.NoError(t, caller.Ready(t.Context()))
	proxy.Blackhole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for part, err := range lab.Echo.Gather(ctx, caller, "x") {
		require.Empty(t, part)
		require.ErrorIs(t, err, lua.ErrNotExecuted)
		require.NotErrorIs(t, err, lua.ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	proxy.Blackhole(false)
}
