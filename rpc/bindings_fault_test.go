package rpc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
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
