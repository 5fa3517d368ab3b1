package rpc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// gate is opened once, at the end of the test at the latest.
func gate(t *testing.T) (gate chan struct{}, open func()) {
	gate = make(chan struct{})
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return gate, open
}

// leaving runs a node whose one handler waits for answer. leave has the node withdraw meanwhile.
func leaving(t *testing.T, c *redis.Client, name string) (entered <-chan struct{}, leave, answer func()) {
	ctx, running, finish := t.Context(), make(chan struct{}), make(chan struct{})
	b, err := rpc.New(luatomictest.Client(t), name, &rpc.Options{Grace: time.Minute, Lease: 15 * time.Second})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, func(context.Context, string) (string, error) {
		close(running)
		<-finish
		return "done", nil
	}, nil))
	stop, answer := lab.RunBus(t, b), sync.OnceFunc(func() { close(finish) })
	t.Cleanup(answer) // before the bus stops, which waits for handlers
	require.NoError(t, b.Ready(ctx))
	leave = func() {
		go stop()
		luatomictest.Eventually(t, 20*time.Second, "it has withdrawn", func() bool {
			return c.ZCard(ctx, "rpc:{"+name+"}:methods").Val() == 0
		})
	}
	return running, leave, answer
}

// asks reports when the script that decides about a call has an answer for the client.
func asks(c *redis.Client) <-chan struct{} {
	asked := make(chan struct{}, 100)
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.DecideScript), Do: func(run func() error) error {
		defer func() { asked <- struct{}{} }()
		return run()
	}})
	return asked
}

// callWithKey makes a call with a key and returns its result when it is there.
func callWithKey(t *testing.T, b *rpc.Bus) <-chan result {
	require.NoError(t, b.Ready(t.Context()))
	done := make(chan result, 1)
	go func() {
		out, err := lab.Echo.Call(t.Context(), b, "x", &rpc.CallOptions{Key: "order"})
		done <- result{out, err}
	}()
	return done
}

// A node has refused a call with a key, and one of its callers has given it to another node. That has withdrawn when
// the next caller looks for a node, and runs the call: it is not refused.
func TestACallOfAKeyThatAnotherCallerHasPlacedIsNotRefused(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	full, busy, finish := luatomictest.Client(t), make(chan struct{}), make(chan struct{})
	lua.Direct(full) // the hook sees no shared round trip
	node := lab.Serving(t, lab.Echo, full, name, &rpc.Options{Concurrency: 1},
		func(context.Context, string) (string, error) {
			close(busy)
			<-finish
			return "busy", nil
		})
	t.Cleanup(sync.OnceFunc(func() { close(finish) }))
	long := &rpc.Options{Timeout: time.Minute, Lease: time.Hour}
	first := lab.OpenBus(t, luatomictest.Client(t), name, long)
	own := luatomictest.Client(t)
	lua.Direct(own)
	second := lab.OpenBus(t, own, name, long)
	_ = startCall(t, lab.Echo, first, "busy")
	lab.Soon(t, 20*time.Second, "the handler", busy)

	refuse, letRefuse := gate(t)
	full.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReplyScript), Do: func(run func() error) error {
		<-refuse
		return run()
	}})
	one, two := callWithKey(t, first), callWithKey(t, second)
	luatomictest.Eventually(t, 20*time.Second, "the record has both callers", func() bool {
		return strings.Count(c.Get(ctx, "rpc:{"+name+"}:r:k4:echo:orderK").Val(), "\t") == 2
	})
	look, letLook := gate(t)
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.FindScript), Do: func(run func() error) error {
		<-look
		return run()
	}})
	entered, leave, answer := leaving(t, c, name)
	asked := asks(own)
	letRefuse()
	lab.Soon(t, 20*time.Second, "the first caller gives it to the other node", entered)
	require.NoError(t, lab.Echo.Unserve(ctx, node))
	leave()
	letLook()
	select {
	case early := <-two:
		require.NoError(t, early.err, "the call runs")
	case <-asked:
	}
	answer()
	for _, done := range []<-chan result{one, two} {
		require.Equal(t, result{out: "done"}, lab.Soon(t, 20*time.Second, "the answer", done))
	}
}

// A request is sent again, because the server's answer is lost. Its node has refused the first one meanwhile and takes
// the second: the call runs, and is not refused.
func TestACallThatRunsWhenItIsSentAgainIsNotRefused(t *testing.T) {
	t.Parallel()
	c, name, entered := luatomictest.Client(t), luatomictest.Namespace(t), make(chan string, 2)
	free, letBusyEnd := make(chan struct{}), make(chan struct{})
	answer, busyEnds := sync.OnceFunc(func() { close(free) }), sync.OnceFunc(func() { close(letBusyEnd) })
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1}, func(_ context.Context, s string) (string,
		error) {
		entered <- s
		if s == "busy" {
			<-letBusyEnd
		} else {
			<-free
		}
		return s, nil
	})
	t.Cleanup(func() { busyEnds(); answer() }) // before the bus stops, which waits for handlers
	own, proxy := through(t)
	long := &rpc.Options{Timeout: time.Minute, Lease: time.Hour}
	caller := lab.OpenBus(t, lua.Direct(own), name, long)
	busy := startCall(t, lab.Echo, lab.OpenBus(t, c, name, long), "busy")
	lab.Soon(t, 20*time.Second, "the handler", entered)
	_, err := lab.Echo.Call(t.Context(), caller, "warm", nil)
	require.ErrorIs(t, err, rpc.ErrOverloaded)
	var once sync.Once
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.CallScript), Do: func(run func() error) error {
		err := run()
		once.Do(func() {
			luatomictest.Eventually(t, 20*time.Second, "the refusal", func() bool { return caller.Refusals() == 1 })
			busyEnds()
			luatomictest.Eventually(t, 20*time.Second, "the node is free", func() bool { return node.Waiting() == 0 })
		})
		return err
	}})
	asked := asks(own)
	proxy.Drop(1, lab.Sent(&rpcscript.CallScript))
	called := startCall(t, lab.Echo, caller, "x")
	require.Equal(t, "x", lab.Soon(t, 20*time.Second, "the handler", entered))
	for range 2 { // the request is sent, and the record is asked
		select {
		case early := <-called:
			require.NoError(t, early.err, "the call runs")
		case <-asked:
		}
	}
	answer()
	require.Equal(t, result{out: "x"}, lab.Soon(t, 20*time.Second, "the answer", called))
	require.NoError(t, lab.Soon(t, 20*time.Second, "the busy call", busy).err)
}

// A caller that comes with a key while no node serves the method any more waits for the call in progress, or reads its
// result.
func TestACallOfAKnownKeyNeedsNoNode(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave, answer := leaving(t, c, name)
	open := func() (*rpc.Bus, <-chan struct{}) {
		own := luatomictest.Client(t)
		b := lab.OpenBus(t, lua.Direct(own), name, &rpc.Options{Timeout: time.Minute})
		return b, asks(own)
	}
	first, _ := open()
	one := callWithKey(t, first)
	lab.Soon(t, 20*time.Second, "the handler", entered)
	leave()
	second, asked := open()
	two := callWithKey(t, second)
	select {
	case early := <-two:
		require.NoError(t, early.err, "the call runs")
	case <-asked:
	}
	answer()
	third, _ := open()
	for _, done := range []<-chan result{one, two, callWithKey(t, third)} {
		require.Equal(t, result{out: "done"}, lab.Soon(t, 20*time.Second, "the answer", done))
	}
	_, err := lab.Echo.Call(t.Context(), third, "x", &rpc.CallOptions{Key: "another"})
	require.ErrorIs(t, err, rpc.ErrNoResponders)
}
