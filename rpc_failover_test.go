package luatomic_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

// A node whose link leads to a server that has become a replica hears what is published
// on the master and is not counted there. What finds no responders has not run, and the
// node notices and takes calls again.
func TestANodeThatListensAtAReplicaDoesNotRunWhatWasRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := startPair(t)
	var runs atomic.Int64
	node := serving(t, echo, p.client(t), "bus", &luatomic.BusOptions{Lease: 6 * time.Second}, func(_ context.Context, s string) (string, error) {
		runs.Add(1)
		return s, nil
	})
	_, err := echo.Call(ctx, openBus(t, p.client(t), "bus", nil), "before")
	require.NoError(t, err)
	p.turn(t)
	late := openBus(t, p.client(t), "bus", nil)
	refused, sent := 0, int64(1)
	count := func(err error) {
		if err == nil {
			sent++
			return
		}
		refused++
		require.ErrorIs(t, err, luatomic.ErrNoResponders)
	}
	luatomictest.Eventually(t, 30*time.Second, "the node takes calls again", func() bool {
		for _, err := range echo.Gather(ctx, late, "x") {
			if err == nil {
				sent++
			}
		}
		count(echo.Cast(ctx, late, "x"))
		_, err := echo.CallWith(ctx, late, "x", &luatomic.CallOptions{Node: node.Node()})
		count(err)
		_, err = echo.Call(ctx, late, "x")
		count(err)
		return err == nil
	})
	require.Positive(t, refused, "the link was left where it was")
	luatomictest.Eventually(t, 10*time.Second, "the last cast has run", func() bool { return runs.Load() >= sent })
	require.Equal(t, sent, runs.Load(), "what was refused did not run")
}
