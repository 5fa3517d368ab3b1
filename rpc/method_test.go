package rpc_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

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

// C21: no name of a node, a method, a key is taken for something else.
func TestRPCNamesAreNotConfused(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	for _, odd := range []string{"g:x", "k4:echo:a", "G", "xG", "xK", "a.1", "n:x", "p1 x", "all", "d1 n", "%d", "0"} {
		name := name + odd
		opts := &rpc.Options{Node: odd}
		b := lab.Serving(t, rpc.NewMethod[string, string](odd), c, name, opts, lab.Upper)
		m := rpc.NewMethod[string, string](odd)
		caller := lab.OpenBus(t, c, name, opts)
		for _, in := range []string{"x", strings.Repeat("x", 100_000)} { // pushed, and fetched
			for _, o := range []*rpc.CallOptions{nil, {Key: odd + strconv.Itoa(len(in))}, {Node: b.Node()},
				{Key: strconv.Itoa(len(in)) + odd, Node: b.Node()}} {
				out, err := m.CallWith(t.Context(), caller, in, o)
				require.NoError(t, err, "%q %+v", odd, o)
				require.Len(t, out, len(in))
			}
			n := 0
			for p, err := range m.Gather(t.Context(), caller, in) {
				require.NoError(t, err)
				require.Equal(t, b.Node(), p.Node)
				n++
			}
			require.Equal(t, 1, n)
		}
		require.NoError(t, b.Bind(t.Context(), odd))
		_, err := m.CallWith(t.Context(), caller, "x", &rpc.CallOptions{Connection: odd})
		require.NoError(t, err)
	}
}
