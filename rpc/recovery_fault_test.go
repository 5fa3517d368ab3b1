package rpc_test

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

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
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

// cutting calls cut again and again, at least d apart. A pause in which nothing got
// through is too short for the machine to connect in, so the next one is twice as long,
// and shorter again when something did.
func cutting(d time.Duration, through func() int64, cut func()) (stop func()) {
	const longest = 100
	pause, passed, last := 1, 0, int64(-1)
	return lab.Every(d, func() {
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
func callMany(t *testing.T, caller *rpc.Bus, calls int, refused *atomic.Int64) {
	t.Helper()
	var lost atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range calls / 16 {
				in := fmt.Sprint("x", i, ".", j)
				out, err := lab.Echo.Call(t.Context(), caller, in, nil)
				for refused != nil && errors.Is(err, rpc.ErrNoResponders) {
					refused.Add(1)
					time.Sleep(time.Millisecond)
					out, err = lab.Echo.Call(t.Context(), caller, in, nil)
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

// nothingStays wants all keys of a bus to be removed soon. Only records may stay: one of a call
// in doubt, or a mark that it was given up, until it expires.
func nothingStays(t *testing.T, c *redis.Client, name string) {
	t.Helper()
	keys := func() []string { return lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}*").Result()) }
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
			node := lab.Serving(t, lab.Echo, nodeClient, name, nil, func(_ context.Context, s string) (string, error) {
				if _, known := ran.LoadOrStore(s, true); known {
					doubles.Add(1)
				}
				return strings.ToUpper(s), nil
			})
			caller := lab.OpenBus(t, callerClient, name, &rpc.Options{Timeout: 2 * time.Minute})
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
			t.Logf("%d calls in %v, %d times no responder, caller %+v, node %+v", faultCalls(), time.Since(start),
				refused.Load(), caller.Stats(), node.Stats())
			require.Zero(t, doubles.Load(), "double executions")
		})
	}
}

// nodeLease is short, so that a dead node is found soon, and longer than a busy machine
// takes for a heartbeat.
const nodeLease = 6 * time.Second

// C5 and C13: the node goes silent with the call in flight. The answer is that it is
// lost, by the end of its lease and not of the call.
func TestRPCDeadNodeIsLost(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	name := luatomictest.Namespace(t)
	entered := make(chan struct{}, 1)
	opts := &rpc.Options{Lease: nodeLease}
	node := servingThrough(t, lab.Echo, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	c := luatomictest.Client(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Lease: nodeLease, Timeout: time.Minute})
	go func() {
		<-entered
		node.proxy.Blackhole(true)
	}()
	start := time.Now()
	_, err := lab.Echo.Call(t.Context(), caller, "x", &rpc.CallOptions{Key: "order"})
	require.ErrorIs(t, err, rpc.ErrNodeLost)
	require.ErrorContains(t, err, node.Node())
	require.Less(t, time.Since(start), 30*time.Second)
	require.Regexp(t, "^l1 ", c.Get(t.Context(), "rpc:{"+name+"}:r:k4:echo:orderK").Val(),
		"its late reply is refused, with no other node, too")

	// The server still counts its subscription. A heartbeat that was on its way can give it one more lease: a call is
	// sent as long as that is good, and lost. No node is alive after that.
	for err = rpc.ErrNodeLost; errors.Is(err, rpc.ErrNodeLost); {
		_, err = lab.Echo.Call(t.Context(), caller, "x", nil)
		require.Less(t, time.Since(start), time.Minute)
	}
	require.ErrorIs(t, err, rpc.ErrNoResponders)
}

// C6: a node freezes, another one gets the call and answers; what the first one replies
// when it wakes is stale.
func TestRPCLateReplyOfADeadNodeIsStale(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	again := rpc.NewMethod[string, string]("again").Idempotent()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	opts := &rpc.Options{Lease: nodeLease, Timeout: time.Minute}
	frozen := servingThrough(t, again, name, opts, func(context.Context, string) (string, error) {
		entered <- struct{}{}
		<-leave
		return "frozen", nil
	})
	caller := lab.OpenBus(t, luatomictest.Client(t), name, opts)
	var ran atomic.Int64
	called := startCall(t, again, caller, "x")
	<-entered
	// It is there before the first one's lease is over: else the call were lost.
	lab.Serving(t, again, luatomictest.Client(t), name, opts, func(context.Context, string) (string, error) {
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

// An idempotent call ran on a node that died, and the only other node is full. What its caller gets says that it may
// have run: the refusal is that of the second attempt alone.
func TestRefusalOfASecondAttemptHidesNoFirstOne(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	again := rpc.NewMethod[string, string]("again").Idempotent()
	entered := make(chan struct{}, 1)
	opts := &rpc.Options{Lease: nodeLease, Timeout: time.Minute, Concurrency: 1}
	first := servingThrough(t, again, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	caller := lab.OpenBus(t, luatomictest.Client(t), name, opts)
	called := startCall(t, again, caller, "x")
	<-entered
	busy := make(chan struct{})
	second := lab.Serving(t, hold, c, name, opts, func(ctx context.Context, _ string) (string, error) {
		close(busy)
		<-ctx.Done()
		return "", ctx.Err()
	})
	startCall(t, hold, caller, "x")
	<-busy
	require.NoError(t, again.Serve(second, answering("second"), nil))
	luatomictest.Eventually(t, 20*time.Second, "the second node serves it, too", func() bool {
		return c.ZCard(t.Context(), "rpc:{"+name+"}:methods").Val() == 3
	})
	first.proxy.Blackhole(true)
	out := <-called
	require.ErrorIs(t, out.err, rpc.ErrNodeLost)
	require.NotErrorIs(t, out.err, rpc.ErrOverloaded)
	require.ErrorContains(t, out.err, first.Node())
}

// The caller's subscription is cut all the time: every reply still arrives, read
// from its record. The guard is readRecords.
func TestRepliesSurviveCutSubscriptions(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	cut, proxy := through(t)
	caller := lab.OpenBus(t, cut, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	stop := cutting(20*time.Millisecond, func() int64 { return node.Stats().Handled }, proxy.CutAll)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				in := fmt.Sprint("x", i, j)
				out, err := lab.Echo.Call(t.Context(), caller, in, nil)
				if err != nil || out != strings.ToUpper(in) {
					t.Errorf("call %s: %q, %v", in, out, err)
				}
			}
		})
	}
	wg.Wait()
	stop()
}

// A server without memory refuses the request whole, and nothing runs; a reply waits
// until there is memory again.
func TestRPCServerWithoutMemory(t *testing.T) {
	server := luatomictest.StartServer(t)
	ctx, c := t.Context(), server.Client()
	entered, leave := make(chan string, 10), make(chan struct{})
	// Without memory it cannot announce itself: its lease lasts for as long.
	lab.Serving(t, lab.Echo, c, "bus", &rpc.Options{Lease: time.Minute}, func(_ context.Context, s string) (string,
		error) {
		entered <- s
		<-leave
		return strings.ToUpper(s), nil
	})
	caller := lab.OpenBus(t, c, "bus", &rpc.Options{Timeout: time.Minute})
	called := startCall(t, lab.Echo, caller, "before")
	require.Equal(t, "before", <-entered)
	records := lab.Must(c.Keys(ctx, "rpc:{bus}:r:*").Result())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := lab.Echo.Call(ctx, caller, "without memory", nil)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, records, lab.Must(c.Keys(ctx, "rpc:{bus}:r:*").Result()), "no record is left of it")
	close(leave)
	select {
	case out := <-called:
		t.Fatalf("%+v without memory", out)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "0").Err())
	out := <-called
	require.NoError(t, out.err)
	require.Equal(t, "BEFORE", out.out)
	require.Empty(t, entered, "what was refused did not run")
}

// A server that is killed and restarted has lost its records. Calls in flight end in an
// error, and as soon as the nodes are back calls are answered again.
func TestRPCAfterARestartOfTheServer(t *testing.T) {
	server := luatomictest.StartServer(t)
	c := server.Client()
	lab.Serving(t, lab.Echo, c, "bus", &rpc.Options{Lease: nodeLease}, lab.Upper)
	caller := lab.OpenBus(t, server.Client(), "bus", &rpc.Options{Lease: nodeLease, Timeout: 5 * time.Second})
	_, err := lab.Echo.Call(t.Context(), caller, "x", nil)
	require.NoError(t, err)
	server.Restart()
	luatomictest.Eventually(t, time.Minute, "calls are answered again", func() bool {
		out, err := lab.Echo.Call(t.Context(), caller, "x", nil)
		return err == nil && out == "X"
	})
}

// The call of a dead node that Redis has no memory to give to another one may have run, and waits until the server can
// decide. Where its time is over before, the error does not say that nothing was executed.
func TestRPCDeadNodeWithoutMemory(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server := luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	behind := redis.NewClient(opts)
	defer behind.Close()
	twice := rpc.NewMethod[string, string]("twice").Idempotent()
	entered := make(chan struct{}, 2)
	lab.Serving(t, twice, behind, "bus", &rpc.Options{Lease: nodeLease},
		func(ctx context.Context, _ string) (string, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return "", ctx.Err()
		})
	c, own, decided := server.Client(), server.Client(), make(chan struct{}, 100)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, "bus", &rpc.Options{Lease: nodeLease, Timeout: time.Minute})
	short, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := twice.Call(short, caller, "short", nil)
		ended <- err
	}()
	called := startCall(t, twice, caller, "x")
	for range 2 {
		lab.Soon(t, 20*time.Second, "the handler", entered)
	}
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.DecideScript), Do: func(run func() error) error {
		err := run()
		decided <- struct{}{}
		return err
	}})
	lab.Serving(t, twice, c, "bus", &rpc.Options{Lease: time.Minute}, answering("second"))
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	for range 4 { // each call, and again
		lab.Soon(t, 20*time.Second, "the server that cannot decide", decided)
	}
	cancel()
	err = lab.Soon(t, 20*time.Second, "the end of the short call", ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, lua.ErrNotExecuted)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	out := lab.Soon(t, 20*time.Second, "the end of the call", called)
	require.NoError(t, out.err)
	require.Equal(t, "second", out.out)
}
