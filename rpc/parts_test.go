package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// What a handler has sent comes before the error that it ends with, also where the parts
// are so large that they are fetched.
func TestStreamPartsComeBeforeTheError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := rpc.NewStreamMethod[int, string]("broken")
	b, err := rpc.NewBus(luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Timeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, m.Serve(b, func(_ context.Context, size int, send func(string) error) error {
		for i := range 3 {
			if err := send(fmt.Sprint(i, strings.Repeat("x", size))); err != nil {
				return err
			}
		}
		return errors.New("the rest is broken")
	}))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	for _, size := range []int{10, 100_000} {
		for range 50 {
			n, ended := 0, false
			for part, err := range m.Call(ctx, b, size) {
				require.False(t, ended)
				if err != nil {
					require.ErrorContains(t, err, "the rest is broken")
					ended = true
					continue
				}
				require.True(t, strings.HasPrefix(part, fmt.Sprint(n, "x")))
				n++
			}
			require.True(t, ended)
			require.Equal(t, 3, n, "parts of %d bytes", size)
		}
	}
	luatomictest.Eventually(t, 20*time.Second, "nothing is kept, of the node's side neither", func() bool { return b.Waiting() == 0 })
}

// A time-out above what a request can ask for is cut to that: a node would refuse the
// frame, and the caller wait.
func TestLongestTimeout(t *testing.T) {
	t.Parallel()
	b := lab.Serving(t, lab.Echo, luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Timeout: 1 << 62, Lease: 1 << 62}, lab.Upper)
	got := make(chan string, 1)
	go func() {
		out, err := lab.Echo.Call(context.Background(), b, "x")
		got <- fmt.Sprint(out, err)
	}()
	select {
	case out := <-got:
		require.Equal(t, "X<nil>", out)
	case <-time.After(20 * time.Second):
		require.Fail(t, "no answer", "%+v", b.Stats())
	}
}

// counting counts the runs of a script.
type counting struct {
	lab.Around
	n atomic.Int64
}

// The server lists a thousand nodes. On a bus with more of them one that is not listed
// is not taken for dead.
func TestGatherOnACrowdedBus(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	hook := &counting{}
	hook.Around = lab.Around{Sha: gen.RPCNodesScript.SHA, Do: func(run func() error) error {
		hook.n.Add(1)
		return run()
	}}
	asking := luatomictest.Client(t)
	asking.AddHook(hook)
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, s string) (string, error) {
		for start := hook.n.Load(); hook.n.Load() < start+2; {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return lab.Upper(ctx, s)
	})
	caller := lab.OpenBus(t, asking, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(ctx))
	crowd := make([]redis.Z, 5000) // the announcements forget a hundred at a time
	for i := range crowd {
		crowd[i] = redis.Z{Score: 1, Member: fmt.Sprint("n", i)}
	}
	require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:nodes", crowd...).Err())
	n := 0
	for part, err := range lab.Echo.Gather(ctx, caller, "x") {
		require.NoError(t, err)
		require.Equal(t, "X", part.Result)
		n++
	}
	require.Equal(t, 1, n)
}

// A handler that ends its goroutine is one that failed: its caller is told, and its place
// is free again.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := lab.Serving(t, lab.Echo, luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Timeout: time.Minute, Concurrency: 1},
		func(ctx context.Context, s string) (string, error) {
			if s == "exit" {
				runtime.Goexit()
			}
			return lab.Upper(ctx, s)
		})
	for range 3 {
		luatomictest.Eventually(t, 20*time.Second, "it has room, and fails", func() bool {
			_, err := lab.Echo.Call(ctx, b, "exit")
			if errors.Is(err, rpc.ErrOverloaded) {
				return false // by what the node said a moment ago
			}
			var remote *rpc.RemoteError
			require.ErrorAs(t, err, &remote)
			require.Equal(t, rpc.CodeInternal, remote.Code)
			return true
		})
	}
	luatomictest.Eventually(t, 20*time.Second, "it takes calls", func() bool {
		out, err := lab.Echo.Call(ctx, b, "x")
		return err == nil && out == "X"
	})
}

// Two loops would hear each message twice, and a cast would run twice.
func TestBusRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b, err := rpc.NewBus(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	require.ErrorContains(t, b.Run(ctx), "runs already")
	_, err = lab.Echo.Call(ctx, b, "x")
	require.NoError(t, err)
	stop()
	_, err = lab.Echo.Call(ctx, b, "x")
	require.ErrorContains(t, err, "it has ended")
	lab.RunBus(t, b)
	luatomictest.Eventually(t, 20*time.Second, "it runs again", func() bool {
		out, err := lab.Echo.Call(ctx, b, "x")
		return err == nil && out == "X"
	})
}

// A node renews the connections that are its own, and those that Redis lost. It takes none
// back that another one took from it, and none that is unbound meanwhile.
func TestBindingsThatAreRenewed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	name, c := luatomictest.Namespace(t), luatomictest.Client(t)
	one := lab.OpenBus(t, c, name, nil)
	two, err := rpc.NewBus(luatomictest.Client(t), name, nil)
	require.NoError(t, err)
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
	c.AddHook(&lab.Around{Sha: gen.RPCBindScript.SHA, Do: func(run func() error) error {
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
