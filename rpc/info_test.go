package rpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

func TestHandlersKnowTheirCall(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	calls := make(chan rpc.CallInfo, 4)
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, s string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		info, ok := rpc.CallFrom(ctx)
		if ok {
			calls <- info
		}
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, nil)
	for range 2 {
		_, err := lab.Echo.Call(ctx, caller, "")
		require.NoError(t, err)
	}
	first, second := <-calls, <-calls
	require.NotEqual(t, first.ID, second.ID)
	require.Equal(t, rpc.CallInfo{ID: first.ID, Method: "echo", Attempt: 1}, first)
	_, err := lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, rpc.CallInfo{ID: "k4:echo:kK", Method: "echo", Attempt: 1}, <-calls)
	require.NoError(t, lab.Echo.Cast(ctx, caller, ""))
	require.Equal(t, rpc.CallInfo{Method: "echo"}, <-calls)
	_, ok := rpc.CallFrom(ctx)
	require.False(t, ok)
}

// A node with a grace answers what it has, and a caller is never the worse for its
// leaving: rolling restarts lose no call.
func TestRunDrainsWithinTheGrace(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	handler := func(ctx context.Context, s string) (string, error) {
		select {
		case <-time.After(time.Millisecond):
			return s, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	start := func() (stop func()) {
		b, err := rpc.NewBus(c, name, &rpc.Options{Grace: time.Minute})
		require.NoError(t, err)
		require.NoError(t, lab.Echo.Serve(b, handler))
		stop = lab.RunBus(t, b)
		require.NoError(t, b.Ready(ctx))
		return stop
	}
	stop := start()
	ended, failures := make(chan struct{}), make(chan error, 8)
	for range 8 {
		go func() {
			for {
				select {
				case <-ended:
					failures <- nil
					return
				default:
				}
				if _, err := lab.Echo.Call(ctx, caller, ""); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	for range 30 {
		next := start()
		stop()
		stop = next
	}
	close(ended)
	for range 8 {
		require.NoError(t, <-failures)
	}
}

// A node whose grace lasts takes what was sent to it before it left, however late the
// server or the network brings it.
func TestRunWaitsForWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	sub, proxy := through(t)
	b, err := rpc.NewBus(&twoWays{Client: c, sub: sub}, name, &rpc.Options{Grace: time.Minute, Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(ctx))
	proxy.Blackhole(true)
	called := startCall(t, lab.Echo, caller, "x")
	luatomictest.Eventually(t, 20*time.Second, "it is sent", func() bool {
		return c.Exists(ctx, "rpc:{"+name+"}:r:"+caller.Node()+".1").Val() == 1
	})
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	luatomictest.Eventually(t, 20*time.Second, "the method is withdrawn", func() bool {
		return c.ZCard(ctx, "rpc:{"+name+"}:m:echo").Val() == 0
	})
	time.Sleep(500 * time.Millisecond) // so late
	proxy.Blackhole(false)
	out := <-called
	require.NoError(t, out.err)
	require.Equal(t, "X", out.out)
	<-stopped
}

// When the grace is over the handlers' contexts end, and their answers go out.
func TestGraceIsBounded(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	began := make(chan struct{})
	b, err := rpc.NewBus(c, name, &rpc.Options{Grace: 300 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, func(ctx context.Context, _ string) (string, error) {
		close(began)
		<-ctx.Done()
		return "cut short", nil
	}))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	answer := make(chan string)
	go func() {
		out, err := lab.Echo.Call(ctx, caller, "")
		if err != nil {
			out = err.Error()
		}
		answer <- out
	}()
	<-began
	start := time.Now()
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	require.Equal(t, "cut short", <-answer)
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	<-stopped
	require.Less(t, time.Since(start), 30*time.Second)
}

// A gather that ends early names the nodes that have not answered.
func TestGatherNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	quick := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	slow := lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "", nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answered []string
	var missing *rpc.MissingError
	for p, err := range lab.Echo.Gather(ctx, caller, "x") {
		if err != nil {
			require.ErrorAs(t, err, &missing)
			continue
		}
		answered = append(answered, p.Node)
		cancel()
	}
	require.Equal(t, []string{quick.Node()}, answered)
	require.NotNil(t, missing)
	require.Equal(t, []string{slow.Node()}, missing.Nodes)
	require.ErrorIs(t, missing, context.Canceled)
	require.Equal(t, "echo", missing.Method)
}

func TestNodesCountTheirMethods(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	fail := rpc.NewMethod[string, string]("fail")
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	node, err := rpc.NewBus(c, name, &rpc.Options{Lease: nodeLease})
	require.NoError(t, err)
	require.NoError(t, rpc.NewMethod[string, string]("never").Serve(node, lab.Upper))
	require.NoError(t, fail.Serve(node, func(context.Context, string) (string, error) { return "", context.Canceled }))
	require.NoError(t, lab.Echo.Serve(node, func(_ context.Context, s string) (string, error) {
		if s == "wait" {
			<-release
		}
		return s, nil
	}))
	lab.RunBus(t, node)
	t.Cleanup(end) // before the bus stops, which waits for handlers
	require.NoError(t, node.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	_, err = fail.Call(ctx, caller, "")
	require.Error(t, err)
	for range 3 {
		_, err := lab.Echo.Call(ctx, caller, "")
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, "wait")
		done <- err
	}()
	want := map[string]rpc.MethodCounts{"echo": {Running: 1, Handled: 3}, "fail": {Handled: 1, Failed: 1}}
	luatomictest.Eventually(t, 30*time.Second, "the counts are there", func() bool {
		nodes, err := caller.Nodes(ctx)
		require.NoError(t, err)
		for _, n := range nodes {
			if n.Node == node.Node() {
				for name, counts := range n.Counts {
					counts.Took = 0
					n.Counts[name] = counts
				}
				return len(n.Counts) == 2 && n.Counts["echo"] == want["echo"] && n.Counts["fail"] == want["fail"]
			}
		}
		return false
	})
	end()
	require.NoError(t, <-done)
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
			node := lab.Serving(t, lab.Echo, luatomictest.Client(t), bus, &rpc.Options{Concurrency: 1, Lease: time.Minute}, func(_ context.Context, s string) (string, error) {
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
