package rpc_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// throughUntil is a client whose connections go through the proxy, and those that it makes
// from the moment on at which straight is set straight to the server.
func throughUntil(t testing.TB, straight *atomic.Bool, proxy *luatomictest.LossyProxy, opt func(*redis.Options)) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	network, addr := opts.Network, opts.Addr
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		if !straight.Load() {
			return d.DialContext(ctx, "tcp", proxy.Addr())
		}
		return d.DialContext(ctx, network, addr)
	}
	if opt != nil {
		opt(opts)
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// C8: the server's answers to requests and to replies are lost, again and again. What
// is repeated is known: each call runs once and is answered.
func TestRPCLostAnswersRepeatNothing(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	nodeClient, nodeProxy := through(t)
	callerClient, callerProxy := through(t)
	var runs atomic.Int64
	node := lab.Serving(t, lab.Echo, nodeClient, name, nil, func(_ context.Context, s string) (string, error) {
		runs.Add(1)
		return strings.ToUpper(s), nil
	})
	caller := lab.OpenBus(t, callerClient, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	const calls = 100
	for i := range calls {
		if i%2 == 0 {
			callerProxy.Drop(1, luatomictest.Command("EVALSHA"))
		}
		if i%3 == 0 {
			nodeProxy.Drop(1, luatomictest.Command("EVALSHA"))
		}
		out, err := lab.Echo.Call(t.Context(), caller, "x")
		require.NoError(t, err)
		require.Equal(t, "X", out)
	}
	require.Equal(t, int64(calls), runs.Load())
	require.Positive(t, callerProxy.Stats().Lost)
	require.Positive(t, nodeProxy.Stats().Lost)
	luatomictest.Eventually(t, 20*time.Second, "repeats of replies are counted", func() bool {
		return node.Stats().Repeated+node.Stats().Late > 0
	})
}

// C8: a request is held up by the network, is sent again, answered and done with, and
// then the first one arrives after all. It does not run.
func TestRPCHeldUpRequestDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var runs atomic.Int64
	lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		runs.Add(1)
		return strings.ToUpper(s), nil
	})
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	var straight atomic.Bool
	slow := throughUntil(t, &straight, proxy, func(o *redis.Options) {
		o.ReadTimeout, o.PoolSize, o.MaxRetries = time.Second, 1, -1
	})
	caller := lab.OpenBus(t, &twoWays{Client: slow, sub: c}, name, &rpc.Options{Lease: time.Minute, Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context())) // over the one connection
	proxy.Blackhole(true)
	straight.Store(true)
	for range 5 { // the later ones take away the records of those before
		out, err := lab.Echo.Call(t.Context(), caller, "x")
		require.NoError(t, err)
		require.Equal(t, "X", out)
	}
	sent := proxy.Executed(luatomictest.Command("EVALSHA"))
	proxy.Blackhole(false)
	luatomictest.Eventually(t, 30*time.Second, "the first request arrives", func() bool {
		return proxy.Executed(luatomictest.Command("EVALSHA")) > sent
	})
	out, err := lab.Echo.Call(t.Context(), caller, "x")
	require.NoError(t, err)
	require.Equal(t, "X", out)
	require.Equal(t, int64(6), runs.Load())
}

// C8: the caller is cut off for most of a long call. The reply stays for as long as
// the request may be repeated, so that a repeat finds it and does not run.
func TestRPCReplyStaysWhileTheCallerMayRepeat(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	client, proxy := through(t)
	lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		proxy.Blackhole(true)
		return strings.ToUpper(s), nil
	})
	caller := lab.OpenBus(t, client, name, &rpc.Options{Timeout: 5 * time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	called := startCall(t, lab.Echo, caller, "x")
	luatomictest.Eventually(t, 30*time.Second, "the reply is stored and stays", func() bool {
		records := lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result())
		return len(records) == 1 && strings.HasPrefix(c.Get(t.Context(), records[0]).Val(), "d") &&
			c.PTTL(t.Context(), records[0]).Val() > 4*time.Minute
	})
	proxy.Blackhole(false)
	out := <-called
	require.NoError(t, out.err)
	require.Equal(t, "X", out.out)
}

// C13: the node's subscription is half-open: the server counts it, and nothing passes.
// The node notices, subscribes anew, and fetches what it missed; no call is lost.
func TestRPCHalfOpenSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	for _, who := range []string{"node", "caller"} {
		t.Run(who, func(t *testing.T) {
			name := name + who
			proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
			var straight atomic.Bool
			cut := redis.UniversalClient(&twoWays{Client: c, sub: throughUntil(t, &straight, proxy, nil)})
			nodeClient, callerClient := cut, redis.UniversalClient(c)
			if who == "caller" {
				nodeClient, callerClient = callerClient, nodeClient
			}
			opts := &rpc.Options{Lease: nodeLease, Timeout: time.Minute}
			var runs atomic.Int64
			node := lab.Serving(t, lab.Echo, nodeClient, name, opts, func(_ context.Context, s string) (string, error) {
				runs.Add(1)
				return strings.ToUpper(s), nil
			})
			caller := lab.OpenBus(t, callerClient, name, opts)
			out, err := lab.Echo.Call(t.Context(), caller, "before")
			require.NoError(t, err)
			require.Equal(t, "BEFORE", out)
			proxy.Blackhole(true)
			straight.Store(true)
			start := time.Now()
			out, err = lab.Echo.Call(t.Context(), caller, "x")
			require.NoError(t, err)
			require.Equal(t, "X", out)
			t.Logf("answered after %v, lease %v", time.Since(start), opts.Lease)
			require.Less(t, time.Since(start), 30*time.Second)
			require.Equal(t, int64(2), runs.Load())
			if who == "node" {
				luatomictest.Eventually(t, 20*time.Second, "the fetch is counted", func() bool { return node.Stats().Fetched == 1 })
			} else {
				luatomictest.Eventually(t, 20*time.Second, "the look is counted", func() bool { return caller.Stats().Resyncs > 0 })
			}
		})
	}
}

// C3, by the server: all subscriptions are killed every 20 ms.
func TestRPCLosesNothingWhenSubscriptionsAreKilled(t *testing.T) {
	server := luatomictest.StartServer(t)
	c := server.Client()
	var ran sync.Map
	var doubles atomic.Int64
	node := lab.Serving(t, lab.Echo, c, "bus", nil, func(_ context.Context, s string) (string, error) {
		if _, known := ran.LoadOrStore(s, true); known {
			doubles.Add(1)
		}
		return strings.ToUpper(s), nil
	})
	caller := lab.OpenBus(t, server.Client(), "bus", &rpc.Options{Timeout: 2 * time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	killer := server.Client()
	var refused atomic.Int64
	handled := func() int64 { return node.Stats().Handled }
	stop := cutting(20*time.Millisecond, handled, func() { _ = killer.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err() })
	callMany(t, caller, faultCalls(), &refused)
	stop()
	require.Zero(t, doubles.Load(), "double executions")
	require.Positive(t, caller.Stats().Resyncs)
}

// A server without memory refuses the request whole, and nothing runs; a reply waits
// until there is memory again.
func TestRPCServerWithoutMemory(t *testing.T) {
	server := luatomictest.StartServer(t)
	ctx, c := t.Context(), server.Client()
	entered, leave := make(chan string, 10), make(chan struct{})
	// Without memory it cannot announce itself: its lease lasts for as long.
	lab.Serving(t, lab.Echo, c, "bus", &rpc.Options{Lease: time.Minute}, func(_ context.Context, s string) (string, error) {
		entered <- s
		<-leave
		return strings.ToUpper(s), nil
	})
	caller := lab.OpenBus(t, c, "bus", &rpc.Options{Timeout: time.Minute})
	called := startCall(t, lab.Echo, caller, "before")
	require.Equal(t, "before", <-entered)
	records := lab.Must(c.Keys(ctx, "rpc:{bus}:r:*").Result())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := lab.Echo.Call(ctx, caller, "without memory")
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

// A server that is killed and restarted has lost its records. Calls in hand end in an
// error, and as soon as the nodes are back calls are answered again.
func TestRPCAfterARestartOfTheServer(t *testing.T) {
	server := luatomictest.StartServer(t)
	c := server.Client()
	lab.Serving(t, lab.Echo, c, "bus", &rpc.Options{Lease: nodeLease}, lab.Upper)
	caller := lab.OpenBus(t, server.Client(), "bus", &rpc.Options{Lease: nodeLease, Timeout: 5 * time.Second})
	_, err := lab.Echo.Call(t.Context(), caller, "x")
	require.NoError(t, err)
	server.Restart()
	luatomictest.Eventually(t, time.Minute, "calls are answered again", func() bool {
		out, err := lab.Echo.Call(t.Context(), caller, "x")
		return err == nil && out == "X"
	})
}
