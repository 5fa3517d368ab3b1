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

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// silenced makes a node's network fall silent, which is what a dead machine looks like.
type silenced struct {
	*rpc.Bus
	proxy *luatomictest.LossyProxy
}

func servingThrough(t *testing.T, m rpc.Method[string, string], name string, opts *rpc.Options,
	h func(context.Context, string) (string, error)) silenced {
	t.Helper()
	client, proxy := through(t)
	b := lab.Serving(t, m, client, name, opts, h)
	t.Cleanup(func() { proxy.Blackhole(false) }) // before its Run is stopped
	return silenced{b, proxy}
}

// C1: a node that is not subscribed yet is not asked: the call is refused after one round trip.
func TestRPCNodeThatIsNotSubscribedYet(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	client, proxy := through(t)
	proxy.Blackhole(true)
	b, err := rpc.New(client, name, nil)
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	lab.RunBus(t, b)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, nil)
	require.NoError(t, caller.Ready(ctx))
	open := time.AfterFunc(200*time.Millisecond, func() { proxy.Blackhole(false) })
	defer open.Stop()
	for {
		out, err := lab.Echo.Call(ctx, caller, "x", nil)
		if err == nil {
			require.Equal(t, "X", out)
			return
		}
		require.ErrorIs(t, err, rpc.ErrNoResponders)
		time.Sleep(time.Millisecond)
	}
}

// slowAnswer lets the reply of a call come before the answer to sending it.
type slowAnswer struct{ scriptcase.Recorder }

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
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, lab.Upper)
	c := luatomictest.Client(t)
	c.AddHook(&slowAnswer{})
	caller := lab.OpenBus(t, c, name, nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 50 {
				_, err := lab.Echo.Call(t.Context(), caller, "x", nil)
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
}

// C8: the answers to the call are lost: it runs once.
func TestRPCLostAnswersDoNotRunItTwice(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	var ran atomic.Int64
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	})
	client, proxy := through(t)
	caller := lab.OpenBus(t, client, name, &rpc.Options{Timeout: 30 * time.Second})
	require.NoError(t, caller.Ready(t.Context()))
	for i := range 20 {
		proxy.Drop(1+i%3, luatomictest.Command("EVALSHA"))
		_, err := lab.Echo.Call(t.Context(), caller, "", nil)
		require.NoError(t, err)
		require.Equal(t, int64(i+1), ran.Load())
	}
}

// throughUntil is a client whose connections go through the proxy, and those that it makes
// from the moment on at which straight is set straight to the server.
func throughUntil(t testing.TB, straight *atomic.Bool, proxy *luatomictest.LossyProxy,
	opt func(*redis.Options)) *redis.Client {
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
		out, err := lab.Echo.Call(t.Context(), caller, "x", nil)
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

// C8: a request is delayed by the network, is sent again, answered and finished, and
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
	caller := lab.OpenBus(t, &twoWays{Client: slow, sub: c}, name, &rpc.Options{Lease: time.Minute,
		Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context())) // over the one connection
	proxy.Blackhole(true)
	straight.Store(true)
	for range 5 { // the later ones take away the records of those before
		out, err := lab.Echo.Call(t.Context(), caller, "x", nil)
		require.NoError(t, err)
		require.Equal(t, "X", out)
	}
	sent := proxy.Executed(luatomictest.Command("EVALSHA"))
	proxy.Blackhole(false)
	luatomictest.Eventually(t, 30*time.Second, "the first request arrives", func() bool {
		return proxy.Executed(luatomictest.Command("EVALSHA")) > sent
	})
	out, err := lab.Echo.Call(t.Context(), caller, "x", nil)
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

// C18: the server forgets its scripts again and again.
func TestRPCWhileScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	var ran atomic.Int64
	lab.Serving(t, lab.Echo, c, "b", nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	})
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	stop := lab.Every(time.Millisecond, func() { c.ScriptFlush(t.Context()) })
	defer stop()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, err := lab.Echo.Call(t.Context(), caller, "x", nil)
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(800), ran.Load())
}
