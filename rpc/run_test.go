package rpc_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

func TestCallWithoutRunSaysSo(t *testing.T) {
	t.Parallel()
	b, err := rpc.New(luatomictest.Client(t), luatomictest.Namespace(t),
		&rpc.Options{Timeout: 20 * time.Millisecond})
	require.NoError(t, err)
	_, err = lab.Echo.Call(t.Context(), b, "", nil)
	require.ErrorContains(t, err, "is its Run running?")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, rpc.NewMethod[string, string]("a{b").Serve(b, lab.Upper, nil), lua.ErrBadName)
}

func TestRunWithdrawsTheNode(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b, err := rpc.New(c, name, &rpc.Options{Node: "web-1", Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	nodes := lab.Must(c.ZRange(t.Context(), "rpc:{"+name+"}:nodes", 0, -1).Result())
	require.Len(t, nodes, 1)
	require.True(t, strings.HasPrefix(nodes[0], "web-1."))
	start := time.Now()
	stop()
	require.Less(t, time.Since(start), 20*time.Second, "less than a lease")
	require.Empty(t, lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}*").Result()), "nothing stays")
	_, err = lab.Echo.Call(soon(t), b, "", nil)
	require.ErrorContains(t, err, "it has ended")
	lab.RunBus(t, b) // and once more
	luatomictest.Eventually(t, 20*time.Second, "it answers again", func() bool {
		out, err := lab.Echo.Call(t.Context(), b, "x", nil)
		return err == nil && out == "X"
	})
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
		b, err := rpc.New(c, name, &rpc.Options{Grace: time.Minute, Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, lab.Echo.Serve(b, handler, nil))
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
				if _, err := lab.Echo.Call(ctx, caller, "", nil); err != nil {
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
	b, err := rpc.New(&twoWays{Client: c, sub: sub}, name, &rpc.Options{Grace: time.Minute, Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
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
		return c.ZCard(ctx, "rpc:{"+name+"}:methods").Val() == 0
	})
	time.Sleep(500 * time.Millisecond) // so late
	proxy.Blackhole(false)
	out := <-called
	require.NoError(t, out.err)
	require.Equal(t, "X", out.out)
	<-stopped
}

// A server that is slow to withdraw a node does so within its grace. A node that cannot withdraw reports it.
func TestASlowServerWithdrawsANodeWithinTheGrace(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{time.Minute, -1} {
		t.Run(grace.String(), func(t *testing.T) {
			t.Parallel()
			c, name := luatomictest.Client(t), luatomictest.Namespace(t)
			lua.Direct(c) // the hook sees no shared round trip
			c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.LeaveScript), Do: func(run func() error) error {
				time.Sleep(1500 * time.Millisecond)
				return run()
			}})
			reported := make(chan error, 9)
			opts := &rpc.Options{Grace: grace, Lease: time.Hour, OnError: func(err error) { reported <- err }}
			b, err := rpc.New(c, name, opts)
			require.NoError(t, err)
			stop := lab.RunBus(t, b)
			require.NoError(t, b.Ready(t.Context()))
			stop()
			left := c.Exists(t.Context(), "rpc:{"+name+"}:nodes").Val() == 0
			require.Equal(t, grace > 0, left)
			if !left {
				require.ErrorContains(t, lab.Soon(t, 20*time.Second, "the report", reported), "leave bus")
			}
		})
	}
}

// When the grace is over the handlers' contexts end, and their answers go out.
func TestGraceIsBounded(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	began := make(chan struct{})
	b := lab.NewBus(t, c, name, &rpc.Options{Grace: 300 * time.Millisecond})
	require.NoError(t, lab.Echo.Serve(b, func(ctx context.Context, _ string) (string, error) {
		close(began)
		<-ctx.Done()
		return "cut short", nil
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	answer := make(chan string)
	go func() {
		out, err := lab.Echo.Call(ctx, caller, "", nil)
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

// An answer that the server does not take holds up the end of Run for a lease, and not until the caller's deadline.
func TestRunEndsWhileTheServerTakesNoAnswer(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	tried := make(chan struct{}, 1)
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReplyScript), Do: func(func() error) error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return io.EOF
	}})
	node, err := rpc.New(own, name, &rpc.Options{Lease: 300 * time.Millisecond, Grace: -1})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(node, lab.Upper, nil))
	running, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- node.Run(running) }()
	require.NoError(t, node.Ready(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	caller := lab.OpenBus(t, c, name, nil)
	go func() { // again where the node's lease was over for a moment
		_, _ = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Retry: 1000})
	}()
	lab.Soon(t, 20*time.Second, "the answer", tried)
	stop()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Run", done), context.Canceled)
}

// Two loops would receive each message twice, and a cast would run twice.
func TestBusRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := lab.NewBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	require.ErrorContains(t, b.Run(ctx), "runs already")
	_, err := lab.Echo.Call(ctx, b, "x", nil)
	require.NoError(t, err)
	stop()
	_, err = lab.Echo.Call(soon(t), b, "x", nil)
	require.ErrorContains(t, err, "it has ended")
	lab.RunBus(t, b)
	luatomictest.Eventually(t, 20*time.Second, "it runs again", func() bool {
		out, err := lab.Echo.Call(ctx, b, "x", nil)
		return err == nil && out == "X"
	})
}

// A node that leaves finishes what it has begun, and its callers know that the other calls are lost
// as soon as it has left.
func TestRPCLeavingNodeAnswersAndIsGone(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered := make(chan struct{}, 2)
	b := lab.NewBus(t, c, name, nil)
	require.NoError(t, lab.Echo.Serve(b, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "what I had", nil
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 20 * time.Second})
	go func() {
		<-entered
		stop()
	}()
	out, err := lab.Echo.Call(t.Context(), caller, "", nil)
	require.NoError(t, err)
	require.Equal(t, "what I had", out)
	_, err = lab.Echo.Call(t.Context(), caller, "", nil)
	require.ErrorIs(t, err, rpc.ErrNoResponders)
}

// Run is called again while the server hangs through the end of the first one, and while a call still waits: the second
// Run is another node, and what the first one had runs no second time.
func TestSecondRunInheritsNothing(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	client, proxy := through(t)
	b, err := rpc.New(client, name, &rpc.Options{Grace: -1, Lease: 5 * time.Second})
	require.NoError(t, err)
	var ran atomic.Int64
	entered := make(chan struct{}, 10)
	require.NoError(t, lab.Echo.Serve(b, func(ctx context.Context, _ string) (string, error) {
		ran.Add(1)
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	first := b.Node()
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: 20 * time.Second, Timeout: time.Minute})
	called := startCall(t, lab.Echo, caller, "x")
	lab.Soon(t, 20*time.Second, "the handler", entered)
	proxy.Blackhole(true)
	stop()
	proxy.Blackhole(false)
	lab.RunBus(t, b)
	luatomictest.Eventually(t, 20*time.Second, "it is another node", func() bool { return b.Node() != first })
	out := <-called
	require.ErrorIs(t, out.err, rpc.ErrNodeLost)
	require.Equal(t, int64(1), ran.Load())
}

// A call that waits when its bus ends has an outcome then: no reply can reach it any more.
func TestCallsEndWithTheirBus(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, told := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		close(entered)
		<-ctx.Done()
		close(told)
		return "", nil
	})
	b := lab.NewBus(t, c, name, &rpc.Options{Timeout: time.Hour})
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	called := startCall(t, lab.Echo, b, "x")
	<-entered
	stop()
	require.ErrorContains(t, (<-called).err, "it has ended; the handler may have run")
	lab.Soon(t, 30*time.Second, "the handler's context ends", told)
}
