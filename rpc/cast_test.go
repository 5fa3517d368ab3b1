package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

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
	luatomictest.Eventually(t, 20*time.Second, "each cast is received once", func() bool { return total() == 30 })
	for i := range heard {
		require.Positive(t, heard[i].Load(), "casts spread")
	}
	n, err := lab.Echo.CastAll(ctx, caller, "")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	luatomictest.Eventually(t, 20*time.Second, "all receive it", func() bool { return total() == 33 })
	require.ErrorIs(t, lab.Echo.Cast(ctx, caller, strings.Repeat("x", 70_000)), lua.ErrTooLarge)
}

// A cast to many nodes that are all out of reach names their reason, which the empty page after them does not know.
func TestACastToManyUnreachableNodesHasTheirReason(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for i := range 500 {
		member := fmt.Sprintf("echo\x00%03d", i)
		require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:methods", redis.Z{Member: member}).Err())
	}
	_, err := lab.Echo.CastAll(ctx, lab.OpenBus(t, c, name, nil), "")
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	require.ErrorContains(t, err, "no lease")
}
