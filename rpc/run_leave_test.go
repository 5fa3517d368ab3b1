package rpc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A node that leaves is not ready, while its last handlers run: no bus can call it any more, also not for a connection
// or for a method that is served since. Its handlers can make calls until they return.
func TestANodeThatLeavesIsNotReady(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	other := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Timeout: time.Minute}, lab.Upper)
	b := lab.NewBus(t, c, name, &rpc.Options{Grace: time.Minute})
	entered, call, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	require.NoError(t, hold.Serve(b, func(ctx context.Context, _ string) (string, error) {
		close(entered)
		<-call
		_, err := lab.Echo.Call(ctx, b, "x", nil)
		result <- err
		return "", err
	}, nil))
	stop, goOn := lab.RunBus(t, b), sync.OnceFunc(func() { close(call) })
	t.Cleanup(goOn)
	require.NoError(t, b.Ready(ctx))
	held := startCall(t, hold, other, "")
	lab.Soon(t, 20*time.Second, "the handler runs", entered)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	luatomictest.Eventually(t, 20*time.Second, "it is not ready", func() bool { return b.Ready(soon(t)) != nil })
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	require.Error(t, b.Ready(soon(t)))
	require.Error(t, b.Bind(soon(t), "socket"))
	next := make(chan error, 1)
	long, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() { next <- b.Ready(long) }()
	goOn()
	require.NoError(t, lab.Soon(t, 20*time.Second, "the handler's call", result))
	require.NoError(t, lab.Soon(t, 20*time.Second, "the call", held).err)
	lab.Soon(t, 20*time.Second, "Run ends", stopped)
	require.Empty(t, next)
	lab.RunBus(t, b)
	require.NoError(t, lab.Soon(t, 20*time.Second, "Ready", next))
}

// A connection is bound until Run ends: the next Run is another node, which owns nothing and renews nothing.
func TestConnectionsEndWithRun(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	reported := make(chan error, 100)
	b := lab.NewBus(t, c, name, &rpc.Options{OnError: func(err error) { reported <- err }})
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	require.NoError(t, b.Bind(ctx, "old"))
	require.NoError(t, b.Bind(ctx, "lost"))
	stop()
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:k:lost").Err())
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	b.RenewBindings(ctx)
	require.Empty(t, reported, "it does not miss what another node had")
	require.Zero(t, c.Exists(ctx, "rpc:{"+name+"}:k:lost").Val(), "it takes nothing that it was not asked to")
}

// A call whose context has ended is not made, and says so.
func TestACallAfterItsTimeIsNotMade(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var runs atomic.Int32
	b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		runs.Add(1)
		return s, nil
	})
	serveCountTo(t, b)
	require.NoError(t, b.Ready(t.Context()))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	operations := needsRun(b)
	for _, what := range []string{"Call", "Gather", "stream"} {
		err := operations[what](over)
		require.ErrorIs(t, err, context.Canceled, what)
		require.ErrorIs(t, err, lua.ErrNotExecuted, what)
	}
	require.Zero(t, b.Stats().Calls)
	require.Zero(t, runs.Load())
}

// What needs Run and does not get it has not been sent: a call can be made again.
func TestACallWithoutRunIsNotExecuted(t *testing.T) {
	t.Parallel()
	b := lab.NewBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	operations := needsRun(b)
	for _, what := range []string{"Call", "Gather", "stream"} {
		err := operations[what](soon(t))
		require.ErrorIs(t, err, lua.ErrNotExecuted, what)
		require.ErrorContains(t, err, "is its Run running?", what)
	}
}
