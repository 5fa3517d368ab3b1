package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// C15: a connection has one owner, who is named by compare-and-set; a call goes to the
// owner of that instant.
func TestRPCConnections(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran [2]atomic.Int64
	var nodes [2]*rpc.Bus
	for i := range nodes {
		nodes[i] = lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
			ran[i].Add(1)
			return fmt.Sprint(i), nil
		})
	}
	a, b := nodes[0], nodes[1]
	to := &rpc.CallOptions{Connection: "user 7"}
	_, err := lab.Echo.Call(ctx, a, "", to)
	require.ErrorContains(t, err, "no connection")
	require.ErrorIs(t, err, rpc.ErrNoResponders)

	require.NoError(t, a.Bind(ctx, "user 7"))
	require.NoError(t, a.Bind(ctx, "user 7"), "the owner again")
	require.ErrorIs(t, b.Bind(ctx, "user 7"), rpc.ErrConnectionTaken)
	require.ErrorIs(t, b.Rebind(ctx, "user 7", "somebody"), rpc.ErrConnectionTaken)
	require.ErrorIs(t, b.Rebind(ctx, "user 7", ""), lua.ErrBadName, "from nobody")
	got, err := lab.Echo.Call(ctx, b, "", to)
	require.NoError(t, err)
	require.Equal(t, "0", got)

	// It moves back and forth while it is called: each call reaches one of the two.
	stop := make(chan struct{})
	var mover sync.WaitGroup
	mover.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				to, from := nodes[(i+1)%2], nodes[i%2]
				if err := to.Rebind(ctx, "user 7", from.Node()); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	before := ran[0].Load() + ran[1].Load()
	for range 200 {
		_, err := lab.Echo.Call(ctx, a, "", to)
		require.NoError(t, err)
	}
	close(stop)
	mover.Wait()
	require.Equal(t, int64(200), ran[0].Load()+ran[1].Load()-before)

	owned := 0
	for _, n := range nodes {
		mine, err := n.Unbind(ctx, "user 7")
		require.NoError(t, err)
		if mine {
			owned++
		}
	}
	require.Equal(t, 1, owned)
	require.NoError(t, b.Bind(ctx, "user 7"), "free again")
}

func TestRPCConnectionOfADeadNodeIsFree(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	a := lab.NewBus(t, c, name, nil)
	require.NoError(t, lab.Echo.Serve(a, lab.Upper, nil))
	stop := lab.RunBus(t, a)
	require.NoError(t, a.Bind(ctx, "x"))
	stop()
	b := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	_, err := lab.Echo.Call(ctx, b, "", &rpc.CallOptions{Connection: "x"})
	require.ErrorContains(t, err, "no lease")
	require.NoError(t, b.Bind(ctx, "x"))
	_, err = lab.Echo.Call(ctx, b, "", &rpc.CallOptions{Connection: "x"})
	require.NoError(t, err)
}

// The goroutine that renews connections is the one that sends heartbeats: it waits for none.
func TestRenewalsWaitForNoHeartbeat(t *testing.T) {
	t.Parallel()
	ctx, name, c := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(c) // the hook sees no shared round trip
	b := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour})
	require.NoError(t, b.Bind(ctx, "x"))
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:k:x").Err())
	held, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	hold := sync.OnceFunc(func() { close(held) })
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		hold()
		<-release
		return run()
	}})
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	lab.Soon(t, 20*time.Second, "the heartbeat", held)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		b.RenewBindings(ctx)
	}()
	lab.Soon(t, 10*time.Second, "the renewal", renewed)
	require.Equal(t, b.Node(), c.Get(ctx, "rpc:{"+name+"}:k:x").Val())
}

// A connection that Redis lost, and that could not be bound anew, is due at the next heartbeat, and not as if it were.
func TestALostBindingIsTriedAgain(t *testing.T) {
	t.Parallel()
	ctx, name, c := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(c) // the hook sees no shared round trip
	b := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour})
	require.NoError(t, b.Bind(ctx, "x"))
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:k:x").Err())
	calls := 0
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		if calls++; calls == 2 {
			return refusal("OOM no memory")
		}
		return run()
	}})
	b.RenewBindings(ctx)
	require.Equal(t, 2, calls)
	require.Equal(t, 1, b.DueBindings())
	b.RenewBindings(ctx)
	require.Equal(t, b.Node(), c.Get(ctx, "rpc:{"+name+"}:k:x").Val())
	require.Zero(t, b.DueBindings())
}

// A connection that Redis lost, and that is given up while it is bound anew, stays given up.
func TestABindingThatIsGivenUpWhileItIsBoundAnew(t *testing.T) {
	t.Parallel()
	ctx, name, c := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(c) // the hook sees no shared round trip
	b := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour})
	require.NoError(t, b.Bind(ctx, "x"))
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:k:x").Err())
	calls := 0
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		if calls++; calls == 2 {
			_, err := b.Unbind(ctx, "x")
			require.NoError(t, err)
		}
		return run()
	}})
	b.RenewBindings(ctx)
	require.Zero(t, c.Exists(ctx, "rpc:{"+name+"}:k:x").Val())
	b.RenewBindings(ctx)
	require.Zero(t, c.Exists(ctx, "rpc:{"+name+"}:k:x").Val())
}

// A node renews the connections that are its own, and those that Redis lost. It takes none
// back that another one took from it, and none that is unbound meanwhile.
func TestBindingsThatAreRenewed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	name, c := luatomictest.Namespace(t), luatomictest.Client(t)
	one := lab.OpenBus(t, c, name, &rpc.Options{Lease: time.Hour})
	two := lab.NewBus(t, luatomictest.Client(t), name, nil)
	stop := lab.RunBus(t, two)
	require.NoError(t, two.Ready(ctx))
	for _, connection := range []string{"own", "lost", "taken", "unbound"} {
		require.NoError(t, one.Bind(ctx, connection))
	}
	owner := func(connection string) string { return c.Get(ctx, "rpc:{"+name+"}:k:"+connection).Val() }
	require.NoError(t, two.Rebind(ctx, "taken", one.Node()))
	stop() // it is as good as dead
	require.NoError(t, c.Del(ctx, "rpc:{"+name+"}:k:lost").Err())
	require.NoError(t, c.PExpire(ctx, "rpc:{"+name+"}:k:own", time.Minute).Err())
	once := false
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.BindScript), Do: func(run func() error) error {
		if !once {
			once = true
			if _, err := one.Unbind(ctx, "unbound"); err != nil {
				return err
			}
		}
		return run()
	}})
	one.RenewBindings(ctx)
	require.Equal(t, one.Node(), owner("own"))
	require.Greater(t, c.PTTL(ctx, "rpc:{"+name+"}:k:own").Val(), 30*time.Minute)
	require.Equal(t, one.Node(), owner("lost"))
	require.Equal(t, two.Node(), owner("taken"))
	require.Empty(t, owner("unbound"))
}

// The name of a node has a unique part, and is longer than other names.
func TestRebindFromANodeWithALongName(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	from := lab.OpenBus(t, c, name, &rpc.Options{Node: strings.Repeat("n", 128)})
	to := lab.OpenBus(t, c, name, nil)
	require.NoError(t, from.Bind(ctx, "user"))
	require.NoError(t, to.Rebind(ctx, "user", from.Node()))
}
