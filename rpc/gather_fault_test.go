package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// guest is a node that joins, stays for a moment, and leaves; an early one leaves after
// that moment although it may not have joined.
func guest(ctx context.Context, t *testing.T, c *redis.Client, name string, early bool, stay time.Duration) {
	b, err := rpc.NewBus(c, name, nil)
	if err == nil {
		err = lab.Echo.Serve(b, lab.Upper)
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

// relink cuts the caller's link once its gather is sent, and waits until it is back before
// the caller has the answer.
type relink struct {
	holdJoin
	then func()
}

func (h *relink) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if len(cmd.Args()) > 1 && fmt.Sprint(cmd.Args()[1]) == gen.RPCGatherSHA && err == nil {
			h.once.Do(h.then)
		}
		return err
	}
}

// A gather reports to its caller that a node was not asked. So it is not, although the caller's
// link broke meanwhile and it names the request to those that were.
func TestRPCGatherDoesNotAskLater(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	c := server.Client()
	asked := make(chan struct{}, 10)
	lab.Serving(t, lab.Echo, c, "bus", nil, func(_ context.Context, s string) (string, error) {
		asked <- struct{}{}
		return s, nil
	})
	require.NoError(t, c.ZAdd(ctx, "rpc:{bus}:nodes", redis.Z{Score: lab.Future, Member: "unreachable"}).Err())
	require.NoError(t, c.ZAdd(ctx, "rpc:{bus}:m:echo", redis.Z{Score: -5, Member: "unreachable"}).Err())
	require.NoError(t, lua.Preload(ctx, c, luatomic.Scripts()...))
	var caller *rpc.Bus
	var unreachable *redis.PubSub
	own := server.Client()
	own.AddHook(&relink{then: func() {
		unreachable = c.Subscribe(ctx, "rpc:{bus}:n:unreachable")
		_, err := unreachable.Receive(ctx)
		require.NoError(t, err)
		before := caller.Resubscribed()
		killed, err := c.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		require.NoError(t, err)
		require.Equal(t, 3, killed, "the node's, the caller's, and the unreachable one, which comes back too")
		luatomictest.Eventually(t, 20*time.Second, "the links are back",
			func() bool { return caller.Resubscribed() >= before+2 })
		_, err = unreachable.Receive(ctx)
		require.Error(t, err)
		_, err = unreachable.Receive(ctx)
		require.NoError(t, err, "it is subscribed again")
	}})
	caller = lab.Must(rpc.NewBus(own, "bus", &rpc.Options{Timeout: time.Minute}))
	stop := lab.RunBus(t, caller)
	require.NoError(t, caller.Ready(ctx))
	var refused, answers int
	for _, err := range lab.Echo.Gather(ctx, caller, "x") {
		if err != nil {
			require.ErrorIs(t, err, rpc.ErrNoResponders)
			refused++
		} else {
			answers++
		}
	}
	require.Equal(t, []int{1, 1}, []int{refused, answers})
	defer unreachable.Close()
	stop() // what it has to say is said
	require.NoError(t, c.Publish(ctx, "rpc:{bus}:n:unreachable", "last").Err())
	m, err := unreachable.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "last", m.Payload, "no earlier message")
}

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
	var nodes []silenced
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
