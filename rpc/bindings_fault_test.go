package rpc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C15: a connection moves to and fro while calls go to it: each runs on one of the two
// nodes, once, and none finds no owner.
func TestRPCConnectionMovesWhileCallsGoToIt(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	const calls = 1000
	var ran [calls]atomic.Int32
	count := func(_ context.Context, n int) (int, error) {
		ran[n].Add(1)
		return n, nil
	}
	a, b := lab.Serving(t, plusOne, c, name, nil, count), lab.Serving(t, plusOne, c, name, nil, count)
	caller := lab.OpenBus(t, c, name, nil)
	require.NoError(t, a.Bind(t.Context(), "user"))
	owner, other, moves := a, b, 0
	stop := lab.Every(time.Millisecond, func() {
		if err := other.Rebind(context.Background(), "user", owner.Node()); err != nil {
			t.Errorf("rebind: %v", err)
		}
		owner, other, moves = other, owner, moves+1
	})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for j := range calls / 10 {
				n := i*calls/10 + j
				out, err := plusOne.CallWith(t.Context(), caller, n, &rpc.CallOptions{Connection: "user"})
				if err != nil || out != n {
					t.Errorf("call %d: %d, %v", n, out, err)
				}
			}
		})
	}
	wg.Wait()
	stop()
	for i := range ran {
		require.Equal(t, int32(1), ran[i].Load(), "call %d", i)
	}
	require.Positive(t, moves)
	require.Positive(t, a.Stats().Handled)
	require.Positive(t, b.Stats().Handled)
}

// A node may learn only after seconds that a connection is its own: it refuses the call until then, and is asked again.
func TestANodeLearnsLateThatAConnectionIsItsOwn(t *testing.T) {
	t.Parallel()
	ctx, name, c := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(c) // the hook sees no shared round trip
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	bound := make(chan struct{})
	c.AddHook(&lab.Around{Sha: lab.Digest(&gen.RPCBindScript), Do: func(run func() error) error {
		err := run()
		close(bound)
		time.Sleep(1500 * time.Millisecond)
		return err
	}})
	require.NoError(t, c.ScriptLoad(ctx, lab.Text(c, &gen.RPCBindScript)).Err(), "so that it is called once")
	ended := make(chan error, 1)
	go func() { ended <- node.Bind(ctx, "user") }()
	lab.Soon(t, 20*time.Second, "the binding on the server", bound)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: time.Minute})
	out, err := lab.Echo.CallWith(ctx, caller, "x", &rpc.CallOptions{Connection: "user"})
	require.NoError(t, err)
	require.Equal(t, "X", out)
	require.NoError(t, lab.Soon(t, 20*time.Second, "the binding", ended))
}

// The server names the new owner before that knows it: the node refuses the call, and it is asked again. A call that
// every node refuses comes to an end.
func TestRPCConnectionOfANodeThatDoesNotKnowItYet(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	c, own := luatomictest.Client(t), luatomictest.Client(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, node.Bind(ctx, "another")) // the server has the script
	var first sync.Once
	bound, known, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	c.AddHook(&lab.Around{Sha: lab.Digest(&gen.RPCBindScript), Do: func(run func() error) error {
		err := run()
		first.Do(func() {
			close(bound)
			<-known
		})
		return err
	}})
	var asked int
	own.AddHook(&lab.Around{Sha: lab.Digest(&gen.RPCDecideScript), Do: func(run func() error) error {
		if asked++; asked == 3 {
			close(known)
		}
		return run()
	}})
	go func() { ended <- node.Bind(ctx, "user") }()
	lab.Soon(t, 20*time.Second, "the binding on the server", bound)
	out, err := lab.Echo.CallWith(ctx, caller, "x", &rpc.CallOptions{Connection: "user"})
	require.NoError(t, err)
	require.Equal(t, "X", out)
	require.GreaterOrEqual(t, asked, 3)
	require.NoError(t, lab.Soon(t, 20*time.Second, "the binding", ended))

	// The server still names a node that has given the connection up.
	require.True(t, lab.Must(node.Unbind(ctx, "user")))
	require.NoError(t, c.Set(ctx, "rpc:{"+name+"}:k:user", node.Node(), time.Minute).Err())
	_, err = lab.Echo.CallWith(ctx, caller, "x", &rpc.CallOptions{Connection: "user"})
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeNotOwner, remote.Code)
	require.Zero(t, node.Stats().Handled-1)
}
