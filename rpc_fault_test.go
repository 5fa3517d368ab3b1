package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// through is a client of the test's server by way of a proxy.
func through(t testing.TB) (*redis.Client, *luatomictest.LossyProxy) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c, proxy
}

// every calls f again and again until stop.
func every(d time.Duration, f func()) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// faultCalls is how many calls are made under faults.
func faultCalls() int {
	if os.Getenv("LUATOMIC_DRILL") != "" {
		return 10_000
	}
	return 2000
}

// callMany makes that many calls of echo, 16 at a time, and wants the result of each.
// "No responder" is a definite answer, too: it was not sent, and is made anew.
func callMany(t *testing.T, caller *luatomic.Bus, calls int, refused *atomic.Int64) {
	t.Helper()
	var lost atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range calls / 16 {
				in := fmt.Sprint("x", i, ".", j)
				out, err := echo.Call(t.Context(), caller, in)
				for refused != nil && errors.Is(err, luatomic.ErrNoResponders) {
					refused.Add(1)
					time.Sleep(time.Millisecond)
					out, err = echo.Call(t.Context(), caller, in)
				}
				if err != nil || out != strings.ToUpper(in) {
					lost.Add(1)
					t.Logf("call %s: %q, %v", in, out, err)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, lost.Load(), "calls without their result")
}

// C3 and C4: all connections of the caller, of the node, of both are cut every 20 ms.
// Every call has its result, and each ran once.
func TestRPCLosesNothingWhenConnectionsAreCut(t *testing.T) {
	for _, who := range []string{"caller", "node", "both"} {
		t.Run(who, func(t *testing.T) {
			name := luatomictest.Namespace(t)
			nodeClient, nodeProxy := through(t)
			callerClient, callerProxy := through(t)
			var ran sync.Map
			var doubles atomic.Int64
			node := serving(t, echo, nodeClient, name, nil, func(_ context.Context, s string) (string, error) {
				if _, known := ran.LoadOrStore(s, true); known {
					doubles.Add(1)
				}
				return strings.ToUpper(s), nil
			})
			caller := openBus(t, callerClient, name, &luatomic.BusOptions{Timeout: 2 * time.Minute})
			require.NoError(t, caller.Ready(t.Context()))
			stop := every(20*time.Millisecond, func() {
				if who != "node" {
					callerProxy.CutAll()
				}
				if who != "caller" {
					nodeProxy.CutAll()
				}
			})
			start, refused := time.Now(), atomic.Int64{}
			callMany(t, caller, faultCalls(), &refused)
			stop()
			t.Logf("%d calls in %v, %d times no responder, caller %+v, node %+v", faultCalls(), time.Since(start), refused.Load(), caller.Stats(), node.Stats())
			require.Zero(t, doubles.Load(), "double executions")
		})
	}
}

// gone makes a node's network fall silent, which is what a dead machine looks like.
type gone struct {
	*luatomic.Bus
	proxy *luatomictest.LossyProxy
}

func servingThrough(t *testing.T, m luatomic.Method[string, string], name string, opts *luatomic.BusOptions, h func(context.Context, string) (string, error)) gone {
	t.Helper()
	client, proxy := through(t)
	b := serving(t, m, client, name, opts, h)
	t.Cleanup(func() { proxy.Blackhole(false) }) // before its Run is stopped
	return gone{b, proxy}
}

// C1: a node that is not subscribed yet is not asked: the call is answered at once.
func TestRPCNodeThatIsNotSubscribedYet(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	client, proxy := through(t)
	proxy.Blackhole(true)
	b, err := luatomic.NewBus(client, name, nil)
	require.NoError(t, err)
	require.NoError(t, echo.Serve(b, upper))
	runBus(t, b)
	caller := openBus(t, luatomictest.Client(t), name, nil)
	require.NoError(t, caller.Ready(ctx))
	open := time.AfterFunc(200*time.Millisecond, func() { proxy.Blackhole(false) })
	defer open.Stop()
	for {
		out, err := echo.Call(ctx, caller, "x")
		if err == nil {
			require.Equal(t, "X", out)
			return
		}
		require.ErrorIs(t, err, luatomic.ErrNoResponders)
		time.Sleep(time.Millisecond)
	}
}

// slowAnswer lets the reply of a call come before the answer to sending it.
type slowAnswer struct{ recorder }

func (slowAnswer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" {
			time.Sleep(2 * time.Millisecond)
		}
		return err
	}
}

// C2: a reply that is faster than the answer to the call finds its waiter.
func TestRPCReplyBeforeTheCallIsAnswered(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	serving(t, echo, luatomictest.Client(t), name, nil, upper)
	c := luatomictest.Client(t)
	c.AddHook(&slowAnswer{})
	caller := openBus(t, c, name, nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 50 {
				_, err := echo.Call(t.Context(), caller, "x")
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
}

// C5 and C13: the node goes silent with the call in hand. The answer is that it is
// lost, by the end of its lease and not of the call.
func TestRPCDeadNodeIsLost(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	entered := make(chan struct{}, 1)
	opts := &luatomic.BusOptions{Lease: 600 * time.Millisecond}
	node := servingThrough(t, echo, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	caller := openBus(t, luatomictest.Client(t), name, &luatomic.BusOptions{Lease: 600 * time.Millisecond, Timeout: 30 * time.Second})
	go func() {
		<-entered
		node.proxy.Blackhole(true)
	}()
	start := time.Now()
	_, err := echo.Call(t.Context(), caller, "x")
	require.ErrorIs(t, err, luatomic.ErrNodeLost)
	require.ErrorContains(t, err, node.Node())
	require.Less(t, time.Since(start), 600*time.Millisecond+2*time.Second)

	// The server still counts its subscription, so a call is sent while its lease is
	// good, and nobody is there after that.
	_, err = echo.Call(t.Context(), caller, "x")
	require.ErrorContains(t, err, "no ")
	require.ErrorIs(t, err, luatomic.ErrNoResponders)
}

// C6: a node freezes, another one gets the call and answers; what the first one says
// when it wakes is stale.
func TestRPCLateReplyOfADeadNodeIsStale(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	again := luatomic.NewMethod[string, string]("again").Idempotent()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	opts := &luatomic.BusOptions{Lease: 600 * time.Millisecond}
	frozen := servingThrough(t, again, name, opts, func(context.Context, string) (string, error) {
		entered <- struct{}{}
		<-leave
		return "frozen", nil
	})
	caller := openBus(t, luatomictest.Client(t), name, &luatomic.BusOptions{Lease: 600 * time.Millisecond, Timeout: 30 * time.Second})
	var ran atomic.Int64
	go func() {
		<-entered
		frozen.proxy.Blackhole(true)
		b, err := luatomic.NewBus(luatomictest.Client(t), name, opts)
		require.NoError(t, err)
		require.NoError(t, again.Serve(b, func(context.Context, string) (string, error) {
			ran.Add(1)
			return "second", nil
		}))
		runBus(t, b)
	}()
	out, err := again.Call(t.Context(), caller, "x")
	require.NoError(t, err)
	require.Equal(t, "second", out)
	require.Equal(t, int64(1), ran.Load())
	frozen.proxy.Blackhole(false)
	close(leave)
	luatomictest.Eventually(t, 10*time.Second, "the old reply is refused", func() bool {
		s := frozen.Stats()
		return s.Stale+s.Late == 1 // late when the record was taken away already
	})
}

// C7: what timed out leaves nothing behind.
func TestRPCTimeoutsLeaveNothing(t *testing.T) {
	t.Parallel()
	const calls = 1000
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node, err := luatomic.NewBus(c, name, &luatomic.BusOptions{Concurrency: 1024})
	require.NoError(t, err)
	require.NoError(t, echo.Serve(node, func(ctx context.Context, s string) (string, error) {
		if s == "slow" {
			<-ctx.Done()
		}
		return "", ctx.Err()
	}))
	stop := runBus(t, node)
	require.NoError(t, node.Ready(ctx))
	caller, err := luatomic.NewBus(c, name, nil)
	require.NoError(t, err)
	stopCaller := runBus(t, caller)
	require.NoError(t, caller.Ready(ctx))
	var wg sync.WaitGroup
	var timeouts atomic.Int64
	for i := range 100 {
		wg.Go(func() {
			for j := range calls / 100 {
				in, d := "", 10*time.Second
				if (i+j)%10 == 0 {
					in, d = "slow", 20*time.Millisecond
				}
				ctx, cancel := context.WithTimeout(ctx, d)
				_, err := echo.Call(ctx, caller, in)
				cancel()
				if in == "" {
					require.NoError(t, err)
					continue
				}
				require.Error(t, err)
				timeouts.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(calls/10), timeouts.Load())
	luatomictest.Eventually(t, 15*time.Second, "no call is kept in the processes", func() bool {
		return node.Waiting() == 0 && caller.Waiting() == 0
	})
	luatomictest.Eventually(t, 20*time.Second, "no record is left", func() bool {
		return len(must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())) == 0
	})
	load := must(c.ZScore(ctx, "rpc:{"+name+"}:m:echo", node.Node()).Result())
	require.InDelta(t, -1024, load, 5, "calls in flight")
	stopCaller()
	stop()
	require.Empty(t, must(c.Keys(ctx, "rpc:{"+name+"}*").Result()))
}

// C8: the answers to the call are lost: it runs once.
func TestRPCLostAnswersDoNotRunItTwice(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	var ran atomic.Int64
	serving(t, echo, luatomictest.Client(t), name, nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	})
	client, proxy := through(t)
	caller := openBus(t, client, name, nil)
	require.NoError(t, caller.Ready(t.Context()))
	for i := range 20 {
		proxy.Drop(1+i%3, luatomictest.Command("EVALSHA"))
		_, err := echo.Call(t.Context(), caller, "")
		require.NoError(t, err)
		require.Equal(t, int64(i+1), ran.Load())
	}
}

// C12: the fourth of the reasons for no answer, a node that is deaf without knowing
// it, mends itself: it does not hear its own word.
func TestRPCDeafNodeSubscribesAnew(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	// Only the node's subscription goes through the proxy.
	sub, proxy := through(t)
	client := &twoWays{Client: c, sub: sub}
	b, err := luatomic.NewBus(client, name, &luatomic.BusOptions{Lease: 600 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, echo.Serve(b, upper))
	runBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := openBus(t, c, name, &luatomic.BusOptions{Timeout: 20 * time.Second, Lease: 600 * time.Millisecond})
	_, err = echo.Call(ctx, caller, "")
	require.NoError(t, err)
	luatomictest.Eventually(t, 5*time.Second, "it hears itself", b.Hears)

	proxy.Blackhole(true) // the server's side of the connection stays
	client.sub = c        // a new one does not lead there
	out, err := echo.Call(ctx, caller, "through the wall")
	require.NoError(t, err)
	require.Equal(t, "THROUGH THE WALL", out)
	require.Equal(t, int64(1), b.Stats().Fetched)
}

// twoWays subscribes on another client.
type twoWays struct {
	*redis.Client
	sub *redis.Client
}

func (c *twoWays) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.sub.Subscribe(ctx, channels...)
}

// C14: the caller gives up at any moment. The handler's context ends at once, and there
// is one end.
func TestRPCCancel(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, told := make(chan struct{}, 1), make(chan time.Time, 1)
	// What was given up counts as in flight until the node has heard of it.
	node := serving(t, echo, c, name, &luatomic.BusOptions{Concurrency: 1000}, func(ctx context.Context, s string) (string, error) {
		if s == "now" {
			return s, nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		told <- time.Now()
		return "", context.Cause(ctx)
	})
	caller := openBus(t, c, name, nil)
	for range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := make(chan time.Time, 1)
		go func() {
			<-entered
			stopped <- time.Now()
			cancel(errStopped)
		}()
		_, err := echo.Call(ctx, caller, "wait")
		require.ErrorIs(t, err, errStopped)
		require.Less(t, (<-told).Sub(<-stopped), time.Second)
	}
	// In any order with start and reply.
	ended := [2]int{}
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
		out, err := echo.Call(ctx, caller, "now")
		timer.Stop()
		cancel()
		if err == nil {
			require.Equal(t, "now", out)
			ended[0]++
		} else {
			require.ErrorIs(t, err, context.Canceled)
			ended[1]++
		}
	}
	t.Logf("%d answered, %d given up; node %+v", ended[0], ended[1], node.Stats())
	luatomictest.Eventually(t, 30*time.Second, "nothing is left", func() bool {
		return node.Waiting() == 0 && caller.Waiting() == 0 && len(must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result())) == 0
	})
}

var errStopped = errors.New("stopped")

// C16: a subscriber that reads slowly is cut off by the server when its output grows
// too large. So large replies are not pushed, and all arrive.
func TestRPCLargeRepliesUnderAnOutputLimit(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	require.NoError(t, c.ConfigSet(t.Context(), "client-output-buffer-limit", "pubsub 1mb 256kb 1").Err())
	serving(t, echo, c, "b", &luatomic.BusOptions{Concurrency: 500}, func(context.Context, string) (string, error) { return strings.Repeat("x", 100_000), nil })
	caller := openBus(t, c, "b", &luatomic.BusOptions{Timeout: 30 * time.Second})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			out, err := echo.Call(t.Context(), caller, "")
			require.NoError(t, err)
			require.Len(t, out, 100_000)
		})
	}
	wg.Wait()
}

// C17: handlers and callers that never come back do not hold up the others.
func TestRPCSlowOnesHoldNobodyUp(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	leave := make(chan struct{})
	serving(t, echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		if s == "slow" {
			<-leave
		}
		return s, nil
	})
	caller := openBus(t, c, name, &luatomic.BusOptions{Timeout: 30 * time.Second})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := echo.Call(t.Context(), caller, "slow")
			require.NoError(t, err)
		})
	}
	for range 500 {
		start := time.Now()
		_, err := echo.Call(t.Context(), caller, "fast")
		require.NoError(t, err)
		require.Less(t, time.Since(start), 5*time.Second)
	}
	close(leave)
	wg.Wait()
}

// C18: the server forgets its scripts again and again.
func TestRPCWhileScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	var ran atomic.Int64
	serving(t, echo, c, "b", nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	})
	caller := openBus(t, c, "b", nil)
	require.NoError(t, caller.Ready(t.Context()))
	stop := every(time.Millisecond, func() { c.ScriptFlush(t.Context()) })
	defer stop()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, err := echo.Call(t.Context(), caller, "x")
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(800), ran.Load())
}

// A node that leaves finishes what it has begun, and its callers know of the rest at
// once.
func TestRPCLeavingNodeAnswersAndIsGone(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered := make(chan struct{}, 2)
	b, err := luatomic.NewBus(c, name, nil)
	require.NoError(t, err)
	require.NoError(t, echo.Serve(b, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "what I had", nil
	}))
	stop := runBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	caller := openBus(t, c, name, &luatomic.BusOptions{Timeout: 20 * time.Second})
	go func() {
		<-entered
		stop()
	}()
	out, err := echo.Call(t.Context(), caller, "")
	require.NoError(t, err)
	require.Equal(t, "what I had", out)
	_, err = echo.Call(t.Context(), caller, "")
	require.ErrorIs(t, err, luatomic.ErrNoResponders)
}

// A stream loses no part when connections are cut.
func TestRPCStreamsSurviveCutConnections(t *testing.T) {
	name := luatomictest.Namespace(t)
	nodeClient, nodeProxy := through(t)
	callerClient, callerProxy := through(t)
	b, err := luatomic.NewBus(nodeClient, name, nil)
	require.NoError(t, err)
	serveCount(t, b, 10)
	runBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	caller := openBus(t, callerClient, name, &luatomic.BusOptions{Timeout: 30 * time.Second})
	require.NoError(t, caller.Ready(t.Context()))
	defer every(50*time.Millisecond, func() {
		nodeProxy.CutAll()
		callerProxy.CutAll()
	})()
	for range 3 {
		i := 0
		var failed error
		for part, err := range count.Call(t.Context(), caller, 1000) {
			if failed = err; err == nil {
				require.True(t, strings.HasPrefix(part, fmt.Sprint(i, " ")), "part %d: %q", i, part)
				i++
			}
		}
		if errors.Is(failed, luatomic.ErrNoResponders) {
			continue // an answer, too
		}
		require.NoError(t, failed)
		require.Equal(t, 1000, i)
	}
}

// A gather loses no answer when connections are cut, and a node that dies is marked and
// not waited for.
func TestRPCGatherUnderFaults(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	lease := &luatomic.BusOptions{Lease: 600 * time.Millisecond, Timeout: 30 * time.Second}
	entered := make(chan struct{}, 100)
	dead := servingThrough(t, echo, name, lease, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", nil
	})
	go func() {
		<-entered
		dead.proxy.Blackhole(true)
	}()
	var nodes []gone
	for range 3 {
		nodes = append(nodes, servingThrough(t, echo, name, lease, func(_ context.Context, s string) (string, error) {
			time.Sleep(20 * time.Millisecond)
			return s, nil
		}))
	}
	client, proxy := through(t)
	caller := openBus(t, client, name, lease)
	require.NoError(t, caller.Ready(t.Context()))
	defer every(20*time.Millisecond, func() {
		proxy.CutAll()
		for _, n := range nodes {
			n.proxy.CutAll()
		}
	})()
	start, answers, lost := time.Now(), 0, 0
	for p, err := range echo.Gather(t.Context(), caller, "x") {
		switch {
		case err == nil:
			answers++
		case errors.Is(err, luatomic.ErrNodeLost):
			lost++ // the dead one, and any that was not subscribed at that moment
		default:
			t.Errorf("%s: %v", p.Node, err)
		}
	}
	require.Equal(t, 4, answers+lost)
	require.GreaterOrEqual(t, lost, 1)
	require.Less(t, time.Since(start), 10*time.Second)
}
