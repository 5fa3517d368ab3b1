package rpc_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/wire"
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
				out, err := plusOne.Call(t.Context(), caller, n, &rpc.CallOptions{Connection: "user"})
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
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		err := run()
		close(bound)
		time.Sleep(1500 * time.Millisecond)
		return err
	}})
	require.NoError(t, c.ScriptLoad(ctx, lab.Text(c, &rpcscript.BindScript)).Err(), "so that it is called once")
	ended := make(chan error, 1)
	go func() { ended <- node.Bind(ctx, "user") }()
	lab.Soon(t, 20*time.Second, "the binding on the server", bound)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: time.Minute})
	out, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Connection: "user"})
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
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		err := run()
		first.Do(func() {
			close(bound)
			<-known
		})
		return err
	}})
	var asked int
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.DecideScript), Do: func(run func() error) error {
		if asked++; asked == 3 {
			close(known)
		}
		return run()
	}})
	go func() { ended <- node.Bind(ctx, "user") }()
	lab.Soon(t, 20*time.Second, "the binding on the server", bound)
	out, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Connection: "user"})
	require.NoError(t, err)
	require.Equal(t, "X", out)
	require.GreaterOrEqual(t, asked, 3)
	require.NoError(t, lab.Soon(t, 20*time.Second, "the binding", ended))

	// The server still names a node that has given the connection up.
	require.True(t, lab.Must(node.Unbind(ctx, "user")))
	require.NoError(t, c.Set(ctx, "rpc:{"+name+"}:k:user", node.Node(), time.Minute).Err())
	_, err = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Connection: "user"})
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeNotOwner, remote.Code)
	require.Zero(t, node.Stats().Handled-1)
}

// A node whose connection another one has taken over binds it no more: not even where that one has given it up since.
func TestANodeDoesNotBindAgainWhatWasTakenOver(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	former := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	next := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	require.NoError(t, former.Bind(ctx, "user"))
	require.NoError(t, next.Rebind(ctx, "user", former.Node()))
	luatomictest.Eventually(t, 20*time.Second, "the notice", func() bool { return !former.Owns("user") })
	require.True(t, lab.Must(next.Unbind(ctx, "user")))
	former.RenewBindings(ctx)
	_, err := lab.Echo.Call(ctx, next, "", &rpc.CallOptions{Connection: "user"})
	require.ErrorContains(t, err, "no connection")
	require.NoError(t, next.Bind(ctx, "user"))
}

// The notice that a connection was taken over may come when its node has it again.
func TestALateNoticeTakesNoConnection(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	own, asked := luatomictest.Client(t), make(chan struct{}, 2)
	own.AddHook(beforeGet(func() error {
		asked <- struct{}{}
		return nil
	}))
	node := lab.Serving(t, lab.Echo, own, name, nil, lab.Upper)
	require.NoError(t, node.Bind(ctx, "user"))
	late := wire.Notice{Kind: wire.Moved, Texts: []string{"user"}}
	for range 2 { // it asks for the second one when it is done with the first
		require.NoError(t, c.Publish(ctx, "rpc:{"+name+"}:n:"+node.Node(), late.Encode()).Err())
		lab.Soon(t, 20*time.Second, "the node asks", asked)
	}
	require.True(t, node.Owns("user"))
}

// The notice is lost with the subscription of the node. It asks once it has subscribed again.
func TestANodeThatWasCutOffLearnsWhatWasTakenOver(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	c := server.Client()
	told := make(chan error, 100)
	former := lab.Serving(t, lab.Echo, c, "bus", &rpc.Options{Lease: 3 * time.Second, OnError: func(err error) {
		told <- err
	}}, lab.Upper)
	require.NoError(t, former.Bind(ctx, "user"))
	require.NoError(t, c.Set(ctx, "rpc:{bus}:k:user", "another node", time.Minute).Err())
	require.NoError(t, c.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	luatomictest.Eventually(t, 20*time.Second, "it knows", func() bool { return !former.Owns("user") })
	luatomictest.Eventually(t, 20*time.Second, "it says so", func() bool {
		return errors.Is(lab.Soon(t, 20*time.Second, "an error", told), rpc.ErrConnectionTaken)
	})
}
