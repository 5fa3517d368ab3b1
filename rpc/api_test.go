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

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// sayer answers with its own name.
func sayer(name string) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) { return name, nil }
}

func TestRPCToANode(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	a := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Node: "a"}, sayer("a"))
	b := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Node: "b"}, sayer("b"))
	caller := lab.OpenBus(t, c, name, nil)
	for range 5 {
		for want, bus := range map[string]*rpc.Bus{"a": a, "b": b} {
			got, err := lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Node: bus.Node()})
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	_, err := lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Node: "nobody"})
	require.ErrorContains(t, err, "no lease")
	_, err = lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Node: caller.Node()})
	require.ErrorContains(t, err, "no node serves it")
	nodes, err := caller.Nodes(ctx)
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	for _, n := range nodes {
		require.Positive(t, n.Lease)
		if n.Node != caller.Node() {
			require.Equal(t, []string{"echo"}, n.Methods)
			require.Equal(t, 64, n.Concurrency)
		}
	}
}

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
	_, err := lab.Echo.CallWith(ctx, a, "", to)
	require.ErrorContains(t, err, "no connection")
	require.ErrorIs(t, err, rpc.ErrNoResponders)

	require.NoError(t, a.Bind(ctx, "user 7"))
	require.NoError(t, a.Bind(ctx, "user 7"), "the owner again")
	require.ErrorIs(t, b.Bind(ctx, "user 7"), rpc.ErrConnectionTaken)
	require.ErrorIs(t, b.Rebind(ctx, "user 7", "somebody"), rpc.ErrConnectionTaken)
	got, err := lab.Echo.CallWith(ctx, b, "", to)
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
		_, err := lab.Echo.CallWith(ctx, a, "", to)
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
	a, err := rpc.NewBus(c, name, nil)
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(a, lab.Upper))
	stop := lab.RunBus(t, a)
	require.NoError(t, a.Bind(ctx, "x"))
	stop()
	b := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	_, err = lab.Echo.CallWith(ctx, b, "", &rpc.CallOptions{Connection: "x"})
	require.ErrorContains(t, err, "no lease")
	require.NoError(t, b.Bind(ctx, "x"))
	_, err = lab.Echo.CallWith(ctx, b, "", &rpc.CallOptions{Connection: "x"})
	require.NoError(t, err)
}

// A key makes one call of many: those who come while it runs, and after it, get its
// result, and it goes on when its caller gives up.
func TestRPCIdempotencyKeys(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int64
	leave := make(chan struct{})
	node := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		n := ran.Add(1)
		<-leave
		if s == "fail" {
			return "", &rpc.RemoteError{Code: "declined"}
		}
		return fmt.Sprint(s, n), nil
	})
	long := &rpc.Options{Timeout: time.Minute}
	callers := []*rpc.Bus{lab.OpenBus(t, c, name, long), lab.OpenBus(t, c, name, long)}
	opts := &rpc.CallOptions{Key: "order 1"}
	short, cancel := context.WithCancel(ctx)
	go func() {
		for ran.Load() == 0 && short.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err := lab.Echo.CallWith(short, callers[0], "a", opts)
	cancel()
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(1), ran.Load(), "it goes on")

	opts = &rpc.CallOptions{Key: "order 2"}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			out, err := lab.Echo.CallWith(ctx, callers[i%2], "b", opts)
			require.NoError(t, err)
			require.Equal(t, "b2", out)
		})
	}
	luatomictest.Eventually(t, 20*time.Second, "it runs", func() bool { return ran.Load() == 2 })
	close(leave)
	wg.Wait()
	out, err := lab.Echo.CallWith(ctx, callers[1], "c", opts)
	require.NoError(t, err)
	require.Equal(t, "b2", out, "its result stays")
	for range 2 {
		_, err = lab.Echo.CallWith(ctx, callers[1], "fail", &rpc.CallOptions{Key: "order 3"})
		require.ErrorContains(t, err, "declined", "a handler's error is a result")
	}
	require.Equal(t, int64(3), ran.Load())
	out, err = lab.Echo.CallWith(ctx, callers[0], "d", &rpc.CallOptions{Key: "order 2", Node: node.Node()})
	require.NoError(t, err)
	require.Equal(t, "b2", out, "also where the call names a node")
	other := rpc.NewMethod[string, string]("other")
	_, err = other.CallWith(ctx, callers[0], "", opts)
	require.ErrorIs(t, err, rpc.ErrNoResponders, "a key belongs to its method")
}

func TestRPCCast(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, nil)
	require.ErrorIs(t, lab.Echo.Cast(ctx, caller, ""), rpc.ErrNoResponders)
	var heard [3]atomic.Int64
	for i := range heard {
		lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
			heard[i].Add(1)
			return "", nil
		})
	}
	total := func() (n int64) {
		for i := range heard {
			n += heard[i].Load()
		}
		return n
	}
	for range 30 {
		require.NoError(t, lab.Echo.Cast(ctx, caller, ""))
	}
	luatomictest.Eventually(t, 20*time.Second, "each cast is heard once", func() bool { return total() == 30 })
	for i := range heard {
		require.Positive(t, heard[i].Load(), "casts spread")
	}
	n, err := lab.Echo.CastAll(ctx, caller, "")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	luatomictest.Eventually(t, 20*time.Second, "all hear it", func() bool { return total() == 33 })
	require.ErrorIs(t, lab.Echo.Cast(ctx, caller, strings.Repeat("x", 70_000)), lua.ErrTooLarge)
}

// C21: names that cannot be part of a key are refused with the rule.
func TestRPCNames(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), lab.OpenBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	for _, bad := range []string{"", "a\x00b", "{a}", "a}", "line\n", strings.Repeat("x", 64<<10)} {
		m := rpc.NewMethod[string, string](bad)
		require.ErrorIs(t, m.Serve(b, lab.Upper), lua.ErrBadName)
		_, err := m.Call(ctx, b, "")
		require.ErrorIs(t, err, lua.ErrBadName)
		require.ErrorIs(t, m.Cast(ctx, b, ""), lua.ErrBadName)
		for _, err := range m.Gather(ctx, b, "") {
			require.ErrorIs(t, err, lua.ErrBadName)
		}
		require.ErrorIs(t, b.Bind(ctx, bad), lua.ErrBadName)
		_, err = rpc.NewBus(luatomictest.Client(t), bad, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
		if bad != "" {
			for _, opts := range []*rpc.CallOptions{{Key: bad}, {Connection: bad}} {
				_, err = lab.Echo.CallWith(ctx, b, "", opts)
				require.ErrorIs(t, err, lua.ErrBadName)
			}
			_, err = rpc.NewBus(luatomictest.Client(t), "x", &rpc.Options{Node: bad})
			require.ErrorIs(t, err, lua.ErrBadName)
		}
	}
	_, err := lab.Echo.CallWith(ctx, b, "", &rpc.CallOptions{Node: strings.Repeat("x", 64<<10)})
	require.ErrorIs(t, err, lua.ErrBadName)
	for _, odd := range []string{"constructor", "a/b", "a b", "ünïcode", "%s", "__proto__", "1 2", "a:b"} {
		m := rpc.NewMethod[string, string](odd)
		require.NoError(t, m.Serve(b, lab.Upper))
		luatomictest.Eventually(t, 20*time.Second, "it is announced", func() bool {
			out, err := m.CallWith(ctx, b, "x", &rpc.CallOptions{Key: odd})
			return err == nil && out == "X"
		})
	}
}

// C20: whatever is published on the channels of a bus, its node and caller go on, count
// it, and no handler runs.
func TestRPCPoisonDoesNotReachHandlers(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int64
	b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		ran.Add(1)
		return s, nil
	})
	channel := "rpc:{" + name + "}:n:" + b.Node()
	for _, poison := range []string{"", "x", "Q", "R\x01", "E\x01\xff", "1 5000\n", "1 5000\nQ\x01", "0 1\nQ\x01\x00\x00\x00\x00", "-1 5\nQ", "1 99999999999999999999\nQ",
		"L\x01", "L\x01\x05a", "X\x01", "K\x01\x01a\x01b", "U\x01\x00", "D", "N\x01\x03abc", "r\x01\x01a\x01b\x00", "C\x01\x01a\x01\x00", strings.Repeat("9", 100),
		"R\x01\x01a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x00\xff", "P\x02"} {
		require.NoError(t, c.Publish(ctx, channel, poison).Err())
	}
	out, err := lab.Echo.Call(ctx, b, "still there")
	require.NoError(t, err)
	require.Equal(t, "still there", out)
	require.Equal(t, int64(1), ran.Load())
	require.Greater(t, b.Stats().Refused, int64(10))
	// A record of another program's is refused, too, and the call says so.
	method := "rpc:{" + name + "}:m:odd"
	require.NoError(t, c.Set(ctx, method, "x", time.Minute).Err())
	_, err = rpc.NewMethod[string, string]("odd").Call(ctx, b, "")
	require.ErrorIs(t, err, lua.ErrWrongType)
}
