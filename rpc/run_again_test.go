package rpc_test

import (
	"context"
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

// needsRun are the operations of a bus that need Run, and wait for it.
func needsRun(b *rpc.Bus) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Ready":  b.Ready,
		"Bind":   func(ctx context.Context) error { return b.Bind(ctx, "socket") },
		"Rebind": func(ctx context.Context) error { return b.Rebind(ctx, "socket", b.Node()) },
		"Call": func(ctx context.Context) error {
			_, err := lab.Echo.Call(ctx, b, "x", nil)
			return err
		},
		"Gather": func(ctx context.Context) (last error) {
			for _, err := range lab.Echo.Gather(ctx, b, "x") {
				last = err
			}
			return last
		},
		"stream": func(ctx context.Context) (last error) {
			for _, err := range countTo.Call(ctx, b, 1) {
				last = err
			}
			return last
		},
	}
}

var countTo = rpc.NewStreamMethod[int, int]("countTo")

func serveCountTo(t *testing.T, b *rpc.Bus) {
	require.NoError(t, countTo.Serve(b, sendAll))
}

// soon is a context that ends soon.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// Between two Runs nothing is ready, as before the first one: each operation waits for the next Run, and works then.
func TestOperationsWaitForTheNextRun(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.NewBus(t, c, name, nil)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	serveCountTo(t, b)
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	require.NoError(t, b.Bind(ctx, "socket"))
	stop()
	for what, do := range needsRun(b) {
		err := do(soon(t))
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.ErrorContains(t, err, "is its Run running? it has ended", what)
	}
	operations := needsRun(b)
	delete(operations, "Rebind") // from a node that is gone
	ended := make(map[string]chan error)
	for what, do := range operations {
		done := make(chan error, 1)
		ended[what] = done
		long, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		go func() { done <- do(long) }()
	}
	other := lab.OpenBus(t, c, name, nil)
	lab.RunBus(t, b)
	require.NoError(t, lab.Soon(t, time.Minute, "Ready", ended["Ready"]))
	_, err := lab.Echo.Call(ctx, other, "x", nil)
	require.NoError(t, err, "every bus can call what is ready")
	delete(ended, "Ready")
	for what, err := range ended {
		require.NoError(t, lab.Soon(t, time.Minute, what, err), what)
	}
}

// A call that is made while Run ends has an outcome immediately, not at its deadline: no reply can reach it.
func TestCallsWhileRunEnds(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	serveCountTo(t, node)
	require.NoError(t, node.Ready(ctx))
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	b := lab.NewBus(t, own, name, nil)
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	ending, end := make(chan struct{}), make(chan struct{})
	var leaves atomic.Int32
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.LeaveScript), Do: func(run func() error) error {
		if leaves.Add(1) == 2 { // the last step of Run
			close(ending)
			<-end
		}
		return run()
	}})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	t.Cleanup(func() {
		close(end)
		<-stopped
	})
	lab.Soon(t, 20*time.Second, "Run ends", ending)
	long, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, what := range []string{"Call", "Gather", "stream"} {
		out := make(chan error, 1)
		go func() { out <- needsRun(b)[what](long) }()
		err := lab.Soon(t, 20*time.Second, what, out)
		require.ErrorContains(t, err, "it has ended", what)
		require.ErrorIs(t, err, lua.ErrNotExecuted, what)
	}
}

// The Run in which a connection is bound ends, and the next one begins, before the server's answer comes: the
// connection is that of a node that is dead, and Bind says so.
func TestABindDoesNotOutlastItsRun(t *testing.T) {
	t.Parallel()
	ctx, name, c := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(c) // the hook sees no shared round trip
	b := lab.NewBus(t, c, name, nil)
	stop := lab.RunBus(t, b)
	var again atomic.Bool
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		err := run()
		if !again.Swap(true) {
			stop()
			lab.RunBus(t, b)
			require.NoError(t, b.Ready(ctx))
		}
		return err
	}})
	require.ErrorContains(t, b.Bind(ctx, "user"), "bind it again")
	require.False(t, b.Owns("user"))
	require.NoError(t, b.Bind(ctx, "user"))
	require.Equal(t, b.Node(), c.Get(ctx, "rpc:{"+name+"}:k:user").Val())
}
