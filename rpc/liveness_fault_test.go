package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// echoLease is short enough that a missing echo is noticed before a missing answer to a PING.
const echoLease = 3 * time.Second

// C12: the fourth of the reasons for no answer, a node that is unreachable without knowing
// it, subscribes anew: it does not receive its own echo.
func TestRPCUnreachableNodeSubscribesAnew(t *testing.T) {
	t.Parallel()
	for range 3 { // on a busy machine it can have noticed before the call
		if fetchedByAnUnreachableNode(t) {
			return
		}
	}
	t.Fatal("the node has not fetched the call in any of three rounds")
}

func fetchedByAnUnreachableNode(t *testing.T) bool {
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	// Only the node's subscription goes through the proxy.
	sub, proxy := through(t)
	client := &twoWays{Client: c, sub: sub}
	b, err := rpc.New(client, name, &rpc.Options{Lease: echoLease})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute, Lease: echoLease})
	_, err = lab.Echo.Call(ctx, caller, "", nil)
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "it receives its echo", b.ExpectsEcho)

	proxy.Blackhole(true) // the server's side of the connection stays
	client.sub = c        // a new one does not lead there
	out, err := lab.Echo.Call(ctx, caller, "through the wall", nil)
	require.NoError(t, err)
	require.Equal(t, "THROUGH THE WALL", out)
	return b.Stats().Fetched == 1
}

// A node whose link leads to a server that has become a replica receives what is published
// on the master and is not counted there. What finds no responders has not run, and the
// node notices and takes calls again.
func TestANodeSubscribedAtAReplicaDoesNotRunWhatWasRefused(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	p := lab.StartPair(t)
	var runs atomic.Int64
	// It checks after a third of its lease, when the servers have long changed places.
	node := lab.Serving(t, lab.Echo, p.Client(t), "bus", &rpc.Options{Lease: 24 * time.Second}, func(_ context.Context,
		s string) (string, error) {
		runs.Add(1)
		return s, nil
	})
	_, err := lab.Echo.Call(ctx, lab.OpenBus(t, p.Client(t), "bus", nil), "before", nil)
	require.NoError(t, err)
	p.Turn(t)
	late := lab.OpenBus(t, p.Client(t), "bus", nil)
	refused, sent, maybe := 0, int64(1), int64(0)
	count := func(err error) {
		switch {
		case err == nil:
			sent++
		case errors.Is(err, context.DeadlineExceeded): // the node still writes to the old master
			maybe++
		default:
			refused++
			require.ErrorIs(t, err, rpc.ErrNoResponders)
		}
	}
	luatomictest.Eventually(t, 90*time.Second, "the node takes calls again", func() bool {
		for _, err := range lab.Echo.Gather(ctx, late, "x") {
			var missing *rpc.MissingError
			if errors.As(err, &missing) {
				maybe++
			} else {
				count(err)
			}
		}
		count(lab.Echo.Cast(ctx, late, "x"))
		_, err := lab.Echo.Call(ctx, late, "x", &rpc.CallOptions{Node: node.Node()})
		count(err)
		_, err = lab.Echo.Call(ctx, late, "x", nil)
		count(err)
		return err == nil
	})
	require.Positive(t, refused, "the link was left where it was")
	luatomictest.Eventually(t, 30*time.Second, "the last cast has run", func() bool { return runs.Load() >= sent })
	require.LessOrEqual(t, runs.Load(), sent+maybe, "what was refused did not run")
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
			opts := &rpc.Options{Lease: echoLease, Timeout: time.Minute}
			var runs atomic.Int64
			node := lab.Serving(t, lab.Echo, nodeClient, name, opts, func(_ context.Context, s string) (string, error) {
				runs.Add(1)
				return strings.ToUpper(s), nil
			})
			caller := lab.OpenBus(t, callerClient, name, opts)
			out, err := lab.Echo.Call(t.Context(), caller, "before", nil)
			require.NoError(t, err)
			require.Equal(t, "BEFORE", out)
			proxy.Blackhole(true)
			straight.Store(true)
			start := time.Now()
			out, err = lab.Echo.Call(t.Context(), caller, "x", nil)
			require.NoError(t, err)
			require.Equal(t, "X", out)
			t.Logf("answered after %v, lease %v", time.Since(start), opts.Lease)
			require.Less(t, time.Since(start), 30*time.Second)
			require.Equal(t, int64(2), runs.Load())
			if who == "node" {
				luatomictest.Eventually(t, 20*time.Second, "the fetch is counted",
					func() bool { return node.Stats().Fetched == 1 })
			} else {
				luatomictest.Eventually(t, 20*time.Second, "the check is counted",
					func() bool { return caller.Stats().Resyncs > 0 })
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
	stop := cutting(20*time.Millisecond, handled, func() {
		_ = killer.ClientKillByFilter(context.Background(), "TYPE",
			"pubsub").Err()
	})
	callMany(t, caller, faultCalls(), &refused)
	stop()
	require.Zero(t, doubles.Load(), "double executions")
	require.Positive(t, caller.Stats().Resyncs)
}

// A replica does not know who subscribes at its primary. It refuses to say that a method has no node: a client that
// takes it for the primary still, while a server fails over, looks again.
func TestReplicaDoesNotSayThatThereIsNoNode(t *testing.T) {
	t.Parallel()
	pair, k := lab.StartPair(t), "k"
	c := pair.Replica.Client()
	p := scriptcase.GivenTo(k, "n")
	methods := "{" + k + "}:methods"
	for name, call := range map[string]func(context.Context) error{
		"decide": func(ctx context.Context) error { _, err := rpcscript.Decide(ctx, c, p); return err },
		"find": func(ctx context.Context) error {
			_, err := rpcscript.Find(ctx, c, rpcscript.FindParams{Nodes: p.Nodes, Methods: methods, Method: "x",
				Caller: "me", Outbox: k})
			return err
		},
		"cast": func(ctx context.Context) error {
			_, err := rpcscript.Cast(ctx, c, rpcscript.CastParams{Nodes: p.Nodes, Methods: methods, Method: "x",
				Frame: []byte("f"), Outbox: k, Timeout: time.Minute})
			return err
		},
	} {
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // until then the client looks again
		require.Error(t, call(short), "%s has an answer", name)
		cancel()
	}
}

// A server that refuses the heartbeat sends no echo: it is not the link that is silent.
func TestARefusedHeartbeatLeavesTheLink(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string][]any{
		"no memory":    {"config", "set", "maxmemory", "1"},
		"another type": {"set", "rpc:{bus}:nodes", "x"},
		"no right":     {"acl", "setuser", "default", "-hset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := luatomictest.StartServer(t).Client()
			var refused atomic.Int64
			b := lab.OpenBus(t, c, "bus", &rpc.Options{Lease: 3 * time.Second, OnError: func(error) { refused.Add(1) }})
			require.NoError(t, b.Ready(t.Context()))
			luatomictest.Eventually(t, 20*time.Second, "the first echo", b.ExpectsEcho)
			before := b.Resubscribed()
			require.NoError(t, c.Do(t.Context(), refuse...).Err())
			luatomictest.Eventually(t, 20*time.Second, "more than a lease of heartbeats is refused", func() bool {
				return refused.Load() >= 6
			})
			require.Equal(t, before, b.Resubscribed())
		})
	}
}

// The reply to a heartbeat that was sent again says nothing about the time when it was sent first. Counted from then,
// requests would run long after their end.
func TestARepeatedHeartbeatDoesNotPutTheClockForward(t *testing.T) {
	t.Parallel()
	ctx, client, repeated := t.Context(), luatomictest.Client(t), false
	bus := lab.Serving(t, lab.Echo, client, luatomictest.Namespace(t), &rpc.Options{Lease: time.Minute}, lab.Upper)
	require.NoError(t, lua.Preload(ctx, client, &rpcscript.JoinScript))
	client.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		if !repeated {
			repeated = true
			time.Sleep(time.Second) // the time-out of a connection without a reply
			return io.EOF
		}
		return run()
	}})
	require.NoError(t, rpc.NewMethod[string, string]("another").Serve(bus, lab.Upper, nil)) // announced immediately
	require.NoError(t, bus.Ready(ctx))
	require.True(t, repeated)
	server, err := client.Time(ctx).Result()
	require.NoError(t, err)
	require.WithinDuration(t, server, bus.ServerTime(), 500*time.Millisecond)
}
