package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// A request whose connection breaks is sent again and answered. The first copy arrives later: soon, when the record of
// the call could have been removed, or after the call's time, when it has expired. It does not run.
func TestRequestThatLingersDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"soon": 150 * time.Millisecond, "late": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
			var ran atomic.Int64
			lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
				ran.Add(1)
				return s, nil
			})
			client, h := lab.HoldUp(t, &rpcscript.CallScript, after)
			caller := lab.OpenBus(t, client, name, &rpc.Options{Timeout: 20 * time.Second})
			require.NoError(t, caller.Ready(ctx))
			first, cancel := context.WithTimeout(ctx, 5*time.Second) // its record is to expire
			defer cancel()
			_, err := lab.Echo.Call(first, caller, "x", nil)
			require.NoError(t, err)
			for range 299 { // more than are removed in one command
				_, err := lab.Echo.Call(ctx, caller, "x", nil)
				require.NoError(t, err)
			}
			require.Equal(t, int64(300), ran.Load())
			<-h.Arrived
			_, err = lab.Echo.Call(ctx, caller, "x", nil)
			require.NoError(t, err)
			require.Equal(t, int64(301), ran.Load())
		})
	}
}

// A call with a key runs once while its key is kept, also for other callers, after the deadline
// of the first one, and where many nodes could run it. Its handler's context lasts longer than the first caller.
func TestKeyedCallRunsOnceWhateverItsFirstCallerDoes(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int64
	release := make(chan struct{})
	for range 2 {
		lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, s string) (string, error) {
			n := ran.Add(1)
			select {
			case <-release:
				return fmt.Sprint(s, n), nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	}
	opts := &rpc.CallOptions{Key: "k"}
	callers := []*rpc.Bus{lab.OpenBus(t, c, name, nil), lab.OpenBus(t, c, name, nil)}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	require.NoError(t, callers[0].Ready(ctx))
	_, err := lab.Echo.Call(short, callers[0], "x", opts)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(1300 * time.Millisecond) // longer than the record of a call without a key lives
	time.AfterFunc(300*time.Millisecond, func() { close(release) })
	for _, caller := range callers {
		out, err := lab.Echo.Call(ctx, caller, "x", opts)
		require.NoError(t, err)
		require.Equal(t, "x1", out)
	}
	require.Equal(t, int64(1), ran.Load())
}

// stopped starts a node whose handler waits for the end of its context, has it called, and stops it in order.
func stopped(t *testing.T, m rpc.Method[string, string], c *redis.Client, name string, opts *rpc.CallOptions) result {
	t.Helper()
	b := lab.NewBus(t, c, name, &rpc.Options{Grace: -1})
	entered := make(chan struct{}, 1)
	require.NoError(t, m.Serve(b, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	done := make(chan result, 1)
	go func() {
		out, err := m.Call(t.Context(), caller, "x", opts)
		done <- result{out, err}
	}()
	<-entered
	lab.Serving(t, m, c, name, nil, answering("second"))
	stop()
	return <-done
}

// A node that stops in order is no worse than one that is killed: an idempotent call goes to another node, any other is
// lost. The end of the handler's context is never the outcome, and is not kept as that of a key.
func TestOrderlyStopHandsOver(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	again := rpc.NewMethod[string, string]("again").Idempotent()
	out := stopped(t, again, c, name, nil)
	require.NoError(t, out.err)
	require.Equal(t, "second", out.out)
	out = stopped(t, lab.Echo, c, name, nil)
	require.ErrorIs(t, out.err, rpc.ErrNodeLost)

	key := &rpc.CallOptions{Key: "k"}
	out = stopped(t, rpc.NewMethod[string, string]("keyed"), c, name, key)
	require.ErrorIs(t, out.err, rpc.ErrNodeLost)
	caller := lab.OpenBus(t, c, name, nil)
	_, err := rpc.NewMethod[string, string]("keyed").Call(ctx, caller, "x", key)
	require.ErrorIs(t, err, rpc.ErrNodeLost, "it may have run, so it does not run while the key is kept")
	out = stopped(t, rpc.NewMethod[string, string]("keyed again").Idempotent(), c, name, key)
	require.NoError(t, out.err)
	require.Equal(t, "second", out.out)
}

// The handler of a node that stops gives its call up before the grace is over, because it uses the program's context or
// knows the end by other means: that is no outcome of the call either. An error of its own is one.
func TestAHandlerThatStopsWithItsNodeGivesNoAnswer(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	cause := errors.New("shutdown")
	for name, row := range map[string]struct {
		err  error
		left bool
	}{
		"cancelled":   {fmt.Errorf("query: %w", context.Canceled), true},
		"the cause":   {fmt.Errorf("query: %w", cause), true},
		"left":        {&rpc.RemoteError{Code: rpc.CodeLeft, Message: "no time"}, true},
		"its own":     {errors.New("no"), false},
		"chosen":      {&rpc.RemoteError{Code: "busy", Message: "no"}, false},
		"its own end": {context.DeadlineExceeded, false},
	} {
		for _, m := range []rpc.Method[string, string]{lab.Echo, rpc.NewMethod[string, string]("again").Idempotent()} {
			t.Run(name+" "+m.Name(), func(t *testing.T) {
				t.Parallel()
				name := luatomictest.Namespace(t)
				caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
				b := lab.NewBus(t, c, name, &rpc.Options{Grace: time.Minute})
				running, end := context.WithCancelCause(ctx)
				entered, release := make(chan bool), make(chan bool)
				require.NoError(t, m.Serve(b, func(context.Context, string) (string, error) {
					close(entered)
					<-release
					end(cause)
					return "", row.err
				}, nil))
				ended := make(chan error, 1)
				go func() { ended <- b.Run(running) }()
				require.NoError(t, b.Ready(ctx))
				answer := make(chan error, 1)
				go func() {
					_, err := m.Call(ctx, caller, "x", nil)
					answer <- err
				}()
				<-entered
				if m.Name() == "again" {
					lab.Serving(t, m, c, name, nil, answering("second"))
				}
				close(release)
				err := <-answer
				require.ErrorIs(t, <-ended, cause)
				switch {
				case !row.left:
					require.ErrorAs(t, err, new(*rpc.RemoteError))
				case m.Name() == "again":
					require.NoError(t, err)
				default:
					require.ErrorIs(t, err, rpc.ErrNodeLost)
				}
			})
		}
	}
}

// Any number of dead nodes hides no live one: neither those that the server lists, nor those that die when the caller
// has listed them.
func TestDeadNodesHideNoLiveOne(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	const live, dead = 4, 1000
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for range live {
		lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	}
	nodes, methods, serves := make([]redis.Z, dead), make([]redis.Z, dead), make(map[string]string)
	for i := range nodes {
		node := fmt.Sprintf("%d-killed", i)
		nodes[i] = redis.Z{Score: lab.Future, Member: node}
		methods[i] = redis.Z{Member: "echo\x00" + node}
		serves[node+"\x000"] = "echo"
	}
	kill := func(n int) {
		for i := range nodes[:n] {
			nodes[i].Score = 1
		}
		// In one piece: a heartbeat in between would remove nodes whose methods come after it.
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.ZAdd(ctx, "rpc:{"+name+"}:nodes", nodes[:n]...)
			p.ZAdd(ctx, "rpc:{"+name+"}:methods", methods[:n]...)
			p.HSet(ctx, "rpc:{"+name+"}:serves", serves)
			return nil
		})
		require.NoError(t, err)
	}
	for _, n := range []int{8, 24, 100, dead} {
		kill(n)
		_, err := lab.Echo.Call(ctx, caller, "x", nil)
		require.NoError(t, err, n)
		kill(n)
		answers := 0
		for _, err := range lab.Echo.Gather(ctx, caller, "x") {
			require.NoError(t, err)
			answers++
		}
		require.Equal(t, live, answers)
		kill(n)
		sent, err := lab.Echo.CastAll(ctx, caller, "x")
		require.NoError(t, err)
		require.Equal(t, live, sent)
		kill(n)
		require.NoError(t, lab.Echo.Cast(ctx, caller, "x"))
	}
	luatomictest.Eventually(t, 30*time.Second, "the dead leave nothing behind", func() bool {
		return c.ZCard(ctx, "rpc:{"+name+"}:methods").Val() == live
	})
}

// A node that is full refuses, and an idle one gets the call.
func TestNoCallIsRefusedWhileANodeIsIdle(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	release := make(chan struct{})
	var full atomic.Int64
	for range 3 {
		b := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1, Lease: time.Minute}, lab.Upper)
		require.NoError(t, hold.Serve(b, func(context.Context, string) (string, error) {
			full.Add(1)
			<-release
			return "", nil
		}, nil))
	}
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	luatomictest.Eventually(t, 20*time.Second, "the method is announced", func() bool {
		return c.ZCard(ctx, "rpc:{"+name+"}:methods").Val() == 6
	})
	first, second := startCall(t, hold, caller, ""), startCall(t, hold, caller, "")
	luatomictest.Eventually(t, 20*time.Second, "two are full", func() bool { return full.Load() == 2 })
	for range 500 {
		out, err := lab.Echo.Call(ctx, caller, "x", nil)
		require.NoError(t, err)
		require.Equal(t, "X", out)
	}
	third := startCall(t, hold, caller, "")
	luatomictest.Eventually(t, 20*time.Second, "all are full", func() bool { return full.Load() == 3 })
	_, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.ErrorIs(t, err, rpc.ErrOverloaded)
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote)
	require.NotEmpty(t, remote.Node)
	close(release)
	for _, done := range []<-chan result{first, second, third} {
		require.NoError(t, (<-done).err)
	}
	require.Equal(t, int64(3), full.Load(), "what a node refused ran once")
}

// One caller, and few calls at a time: the nodes share them.
func TestFewCallsSpreadOverIdleNodes(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var ran [5]atomic.Int64
	for i := range ran {
		lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
			ran[i].Add(1)
			return "", nil
		})
	}
	caller := lab.OpenBus(t, c, name, nil)
	for range 500 {
		_, err := lab.Echo.Call(t.Context(), caller, "", nil)
		require.NoError(t, err)
	}
	for i := range ran {
		require.Greater(t, ran[i].Load(), int64(40), "node %d", i)
	}
}

// Redis loses the record of a call. No reply can be accepted any more, so the call is lost then, and not at its
// deadline.
func TestCallWhoseRecordIsLostEnds(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, release := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		close(entered)
		<-release
		return "", nil
	})
	defer close(release)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: 600 * time.Millisecond, Timeout: time.Minute})
	called := startCall(t, lab.Echo, caller, "x")
	<-entered
	luatomictest.Eventually(t, 10*time.Second, "the call knows its node", func() bool {
		return c.Del(ctx, "rpc:{"+name+"}:r:"+caller.Node()+".1").Val() == 1
	})
	start := time.Now()
	out := <-called
	require.ErrorIs(t, out.err, rpc.ErrNodeLost)
	require.ErrorContains(t, out.err, "its record is lost")
	require.Less(t, time.Since(start), 30*time.Second)
}

// Many processes wait for one key. Each gets its result when it is there.
func TestManyCallersOfOneKey(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	release := make(chan struct{})
	var ran atomic.Int64
	lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		<-release
		return "result", nil
	})
	const callers = 40
	record := "rpc:{" + name + "}:r:k4:echo:keyK"
	results := make(chan error, callers)
	for range callers {
		b := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute, Lease: time.Minute})
		go func() {
			out, err := lab.Echo.Call(ctx, b, "x", &rpc.CallOptions{Key: "key"})
			if err == nil && out != "result" {
				err = fmt.Errorf("got %q", out)
			}
			results <- err
		}()
	}
	luatomictest.Eventually(t, 20*time.Second, "all wait", func() bool {
		return bytes.Count([]byte(c.Get(ctx, record).Val()), []byte("\t")) == callers
	})
	start := time.Now()
	close(release)
	for range callers {
		require.NoError(t, <-results)
	}
	require.Less(t, time.Since(start), 15*time.Second, "a third of a lease")
	require.Equal(t, int64(1), ran.Load())
}

// A node's refusal can be faster than the server's answer to the script that sent the request. The next node has the
// call then as soon as that answer is there, and not when the caller looks after what has waited for long.
func TestARefusalBeforeTheServersAnswer(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1}, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return "", nil
	})
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute, Lease: time.Hour})
	_ = startCall(t, lab.Echo, caller, "busy")
	lab.Soon(t, 20*time.Second, "the handler", entered)
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	var first sync.Once
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.CallScript), Do: func(run func() error) error {
		err := run()
		first.Do(func() {
			luatomictest.Eventually(t, 20*time.Second, "the refusal", func() bool { return caller.Refusals() > 0 })
			time.Sleep(20 * time.Millisecond) // it is about to look for the next node
		})
		return err
	}})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
}
