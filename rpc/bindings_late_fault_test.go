package rpc_test

import (
	"context"
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

// quick has heartbeats often.
var quick = rpc.Options{Lease: 1500 * time.Millisecond}

// The connection breaks while Bind is on its way. The repeat is refused, and the owner lets go; then the first copy
// arrives.
func TestALateCopyOfABindKeepsNoConnection(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	owner := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	require.NoError(t, owner.Bind(ctx, "user"))
	far, h := lab.HoldUp(t, &rpcscript.BindScript, 500*time.Millisecond)
	late := lab.Serving(t, lab.Echo, far, name, &quick, lab.Upper)
	require.ErrorIs(t, late.Bind(ctx, "user"), rpc.ErrConnectionTaken)
	require.True(t, lab.Must(owner.Unbind(ctx, "user")))
	<-h.Arrived
	luatomictest.Eventually(t, 20*time.Second, "no node owns the connection", func() bool {
		return c.Exists(ctx, "rpc:{"+name+"}:k:user").Val() == 0
	})
	require.NoError(t, owner.Bind(ctx, "user"))
}

// A connection that its node has given up and bound again stays its own, although a copy of Unbind arrives.
func TestALateCopyOfAnUnbindFreesNoConnection(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	far, h := lab.HoldUp(t, &rpcscript.BindScript, 500*time.Millisecond)
	node := lab.Serving(t, lab.Echo, far, name, &quick, lab.Upper)
	require.False(t, lab.Must(node.Unbind(ctx, "user")))
	require.NoError(t, node.Bind(ctx, "user"))
	<-h.Arrived
	luatomictest.Eventually(t, 20*time.Second, "the connection is the node's", func() bool {
		return c.Get(ctx, "rpc:{"+name+"}:k:user").Val() == node.Node()
	})
}

// A node does not own what it could not learn that it owns.
func TestABindOfUnknownOutcomeKeepsNoConnection(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	node := lab.Serving(t, lab.Echo, own, name, &quick, lab.Upper)
	require.NoError(t, node.Bind(ctx, "another"))
	short, cancel := context.WithCancel(ctx)
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		if short.Err() != nil {
			return run()
		}
		_ = run()
		require.Equal(t, node.Node(), c.Get(ctx, "rpc:{"+name+"}:k:user").Val())
		cancel()
		return context.Canceled
	}})
	require.ErrorIs(t, node.Bind(short, "user"), lua.ErrOutcomeUnknown)
	luatomictest.Eventually(t, 20*time.Second, "no node owns the connection", func() bool {
		return c.Exists(ctx, "rpc:{"+name+"}:k:user").Val() == 0
	})
	require.Equal(t, node.Node(), c.Get(ctx, "rpc:{"+name+"}:k:another").Val())
}

// The last heartbeat that frees a doubted connection meets the Bind that makes it the node's own.
func TestABindBesideAHeartbeatThatFrees(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute}, lab.Upper)
	for i := range 300 {
		_, err := node.Unbind(ctx, "user")
		require.NoError(t, err)
		node.DoubtEnds("user")
		var both sync.WaitGroup
		both.Go(func() { node.RenewBindings(ctx) })
		both.Go(func() {
			time.Sleep(time.Duration(i%30) * 10 * time.Microsecond)
			if err := node.Bind(ctx, "user"); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		node.RenewDoubted(ctx)
		require.Equal(t, node.Node(), c.Get(ctx, "rpc:{"+name+"}:k:user").Val(), "round %d", i)
	}
}

// holdBind holds up the reply to the next RPCBind of the client until release. ran is closed when the server has run
// it.
func holdBind(t *testing.T, client *redis.Client) (ran <-chan struct{}, release func()) {
	t.Helper()
	done, released := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	var held atomic.Bool
	client.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		err := run()
		if !held.Swap(true) {
			close(done)
			<-released
		}
		return err
	}})
	return done, release
}

// The reply to Bind is slow, and Unbind is called meanwhile. It comes after Bind: the node and the server agree that
// the connection is free.
func TestAnUnbindWaitsForTheBindBesideIt(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	node := lab.Serving(t, lab.Echo, own, name, nil, lab.Upper)
	require.NoError(t, node.Bind(ctx, "another"))
	ran, release := holdBind(t, own)
	bound, unbound := make(chan error, 1), make(chan bool, 1)
	go func() { bound <- node.Bind(ctx, "user") }()
	<-ran
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := node.Unbind(short, "user")
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	go func() { unbound <- lab.Must(node.Unbind(ctx, "user")) }()
	release()
	require.NoError(t, lab.Soon(t, 20*time.Second, "Bind", bound))
	require.True(t, lab.Soon(t, 20*time.Second, "Unbind", unbound))
	require.False(t, node.Owns("user"))
	require.Zero(t, c.Exists(ctx, "rpc:{"+name+"}:k:user").Val())
	require.NoError(t, node.Bind(ctx, "user"))
}

// The answer to a renewal says that another node has the connection, and is read after this one has taken it back.
func TestALateAnswerToARenewalLosesNoConnection(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	node := lab.Serving(t, lab.Echo, own, name, &rpc.Options{Lease: time.Minute}, lab.Upper)
	other := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	require.NoError(t, node.Bind(ctx, "user"))
	require.NoError(t, other.Rebind(ctx, "user", node.Node()))
	ran, release := holdBind(t, own)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		node.RenewBindings(ctx)
	}()
	<-ran
	require.NoError(t, node.Rebind(ctx, "user", other.Node()))
	release()
	lab.Soon(t, 20*time.Second, "the renewal", renewed)
	require.True(t, node.Owns("user"))
	require.Equal(t, node.Node(), c.Get(ctx, "rpc:{"+name+"}:k:user").Val())
	out, err := lab.Echo.Call(ctx, other, "x", &rpc.CallOptions{Connection: "user"})
	require.NoError(t, err)
	require.Equal(t, "X", out)
}
