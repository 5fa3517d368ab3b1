package luatomic_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// The keys of a bus move to another server of the cluster while it is used. Each call
// has its result, before, meanwhile and after, although the subscriptions stay where
// they were.
func TestRPCWhileItsSlotMigrates(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	opts := &luatomic.BusOptions{Timeout: 30 * time.Second}
	serving(t, echo, c, "moving", opts, upper)
	caller := openBus(t, c, "moving", opts)
	require.NoError(t, caller.Ready(ctx))
	for p, err := range echo.Gather(ctx, caller, "x") {
		require.NoError(t, err)
		require.Equal(t, "X", p.Result)
	}

	stop := make(chan struct{})
	var calls sync.WaitGroup
	var done atomic.Int64
	for range 4 {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				out, err := echo.Call(ctx, caller, "x")
				if errors.Is(err, luatomic.ErrNoResponders) {
					t.Errorf("call %d: %v", done.Load(), err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "X", out)
				done.Add(1)
			}
		})
	}
	slot, err := cluster.Slot(ctx, "rpc:{moving}:nodes")
	require.NoError(t, err)
	from, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	more := func(n int64) {
		until := done.Load() + n
		luatomictest.Eventually(t, 20*time.Second, "calls go on", func() bool { return done.Load() > until || t.Failed() })
	}
	more(100)
	m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
	require.NoError(t, err)
	for {
		n, err := m.Move(ctx, 100)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	require.NoError(t, m.Finish(ctx))
	more(100)
	close(stop)
	calls.Wait()
}
