package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// cutting calls cut again and again, at least d apart. A pause in which nothing got
// through is too short for the machine to connect in, so the next one is twice as long,
// and shorter again when something did.
func cutting(d time.Duration, through func() int64, cut func()) (stop func()) {
	const longest = 100
	pause, passed, last := 1, 0, int64(-1)
	return every(d, func() {
		if passed++; passed < pause {
			return
		}
		now := through()
		if now == last {
			pause = min(2*pause, longest)
		} else {
			pause = max(pause/2, 1)
		}
		passed, last = 0, now
		cut()
	})
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

// nothingStays wants all keys of a bus gone at once. Only records may stay: one of a call
// in doubt, or a mark that it was given up, until it expires.
func nothingStays(t *testing.T, c *redis.Client, name string) {
	t.Helper()
	keys := func() []string { return must(c.Keys(t.Context(), "rpc:{"+name+"}*").Result()) }
	for _, key := range keys() {
		require.Contains(t, key, "}:r:")
		require.NotEqual(t, time.Duration(-1), c.PTTL(t.Context(), key).Val(), "no TTL")
	}
	luatomictest.Eventually(t, time.Minute, "the records expire", func() bool { return len(keys()) == 0 })
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
			stop := cutting(20*time.Millisecond, func() int64 { return node.Stats().Handled }, func() {
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

// nodeLease is short, so that a dead node is found soon, and longer than a busy machine
// takes for a sign of life.
const nodeLease = 2 * time.Second

// C5 and C13: the node goes silent with the call in hand. The answer is that it is
// lost, by the end of its lease and not of the call.
func TestRPCDeadNodeIsLost(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	entered := make(chan struct{}, 1)
	opts := &luatomic.BusOptions{Lease: nodeLease}
	node := servingThrough(t, echo, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	caller := openBus(t, luatomictest.Client(t), name, &luatomic.BusOptions{Lease: nodeLease, Timeout: time.Minute})
	go func() {
		<-entered
		node.proxy.Blackhole(true)
	}()
	start := time.Now()
	_, err := echo.Call(t.Context(), caller, "x")
	require.ErrorIs(t, err, luatomic.ErrNodeLost)
	require.ErrorContains(t, err, node.Node())
	require.Less(t, time.Since(start), 30*time.Second)

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
	opts := &luatomic.BusOptions{Lease: nodeLease, Timeout: time.Minute}
	frozen := servingThrough(t, again, name, opts, func(context.Context, string) (string, error) {
		entered <- struct{}{}
		<-leave
		return "frozen", nil
	})
	caller := openBus(t, luatomictest.Client(t), name, opts)
	var ran atomic.Int64
	called := startCall(t, again, caller, "x")
	<-entered
	// It is there before the first one's lease is over: else the call were lost.
	serving(t, again, luatomictest.Client(t), name, opts, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "second", nil
	})
	frozen.proxy.Blackhole(true)
	got := <-called
	require.NoError(t, got.err)
	require.Equal(t, "second", got.out)
	require.Equal(t, int64(1), ran.Load())
	frozen.proxy.Blackhole(false)
	close(leave)
	luatomictest.Eventually(t, 30*time.Second, "the old reply is refused", func() bool {
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
				in, d := "", 15*time.Second
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
	luatomictest.Eventually(t, 30*time.Second, "no call is kept in the processes", func() bool {
		return node.Waiting() == 0 && caller.Waiting() == 0
	})
	luatomictest.Eventually(t, time.Minute, "no record is left", func() bool {
		return len(must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())) == 0
	})
	// An announcement may say what was in flight a moment ago; the next one sets it right.
	luatomictest.Eventually(t, 20*time.Second, "no calls are in flight", func() bool {
		return math.Abs(c.ZScore(ctx, "rpc:{"+name+"}:m:echo", node.Node()).Val()+1024) <= 5
	})
	stopCaller()
	stop()
	nothingStays(t, c, name)
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
	caller := openBus(t, client, name, &luatomic.BusOptions{Timeout: 30 * time.Second})
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
	b, err := luatomic.NewBus(client, name, &luatomic.BusOptions{Lease: nodeLease})
	require.NoError(t, err)
	require.NoError(t, echo.Serve(b, upper))
	runBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := openBus(t, c, name, &luatomic.BusOptions{Timeout: time.Minute, Lease: nodeLease})
	_, err = echo.Call(ctx, caller, "")
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "it hears itself", b.Hears)

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
	node := serving(t, echo, c, name, &luatomic.BusOptions{Concurrency: 1000, Lease: time.Minute}, func(ctx context.Context, s string) (string, error) {
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
		// Its deadline is long after all that a busy machine needs.
		bounded, end := context.WithTimeout(t.Context(), time.Minute)
		ctx, cancel := context.WithCancelCause(bounded)
		stopped := make(chan time.Time, 1)
		go func() {
			<-entered
			stopped <- time.Now()
			cancel(errStopped)
		}()
		_, err := echo.Call(ctx, caller, "wait")
		require.ErrorIs(t, err, errStopped)
		require.Less(t, (<-told).Sub(<-stopped), 20*time.Second)
		end()
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
	luatomictest.Eventually(t, 2*time.Minute, "nothing is left", func() bool {
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
	caller := openBus(t, c, "b", &luatomic.BusOptions{Timeout: 2 * time.Minute})
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
	serving(t, echo, c, name, &luatomic.BusOptions{Lease: time.Minute}, func(_ context.Context, s string) (string, error) {
		if s == "slow" {
			<-leave
		}
		return s, nil
	})
	caller := openBus(t, c, name, &luatomic.BusOptions{Timeout: 10 * time.Minute})
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
		require.Less(t, time.Since(start), 30*time.Second)
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
	caller := openBus(t, c, "b", &luatomic.BusOptions{Timeout: time.Minute})
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
	caller := openBus(t, callerClient, name, &luatomic.BusOptions{Timeout: 2 * time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	var parts atomic.Int64
	defer cutting(50*time.Millisecond, parts.Load, func() {
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
				parts.Add(1)
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
	opts := &luatomic.BusOptions{Timeout: time.Minute}
	entered, answer := make(chan struct{}, 10), make(chan struct{})
	dead := servingThrough(t, echo, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", nil
	})
	var nodes []gone
	for range 3 {
		nodes = append(nodes, servingThrough(t, echo, name, opts, func(_ context.Context, s string) (string, error) {
			entered <- struct{}{}
			<-answer
			return s, nil
		}))
	}
	client, proxy := through(t)
	caller := openBus(t, client, name, opts)
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
	for p, err := range echo.Gather(t.Context(), caller, "x") {
		switch {
		case err == nil:
			answers++
		case errors.Is(err, luatomic.ErrNodeLost):
			lost++
			require.Equal(t, dead.Node(), p.Node)
		default:
			t.Errorf("%s: %v", p.Node, err)
		}
	}
	require.Equal(t, []int{3, 1}, []int{answers, lost})
	require.Less(t, time.Since(start), 30*time.Second, "by the end of its lease, and not of the gather")
}
