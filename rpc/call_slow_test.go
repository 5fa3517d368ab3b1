package rpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C17: handlers and callers that never come back do not hold up the others.
func TestRPCSlowOnesHoldNobodyUp(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	leave := make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute}, func(_ context.Context, s string) (string,
		error) {
		if s == "slow" {
			<-leave
		}
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 10 * time.Minute})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := lab.Echo.Call(t.Context(), caller, "slow", nil)
			require.NoError(t, err)
		})
	}
	for range 500 {
		start := time.Now()
		_, err := lab.Echo.Call(t.Context(), caller, "fast", nil)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 30*time.Second)
	}
	close(leave)
	wg.Wait()
}
