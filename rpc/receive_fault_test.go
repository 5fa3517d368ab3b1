package rpc_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C17: a gather and a stream whose callers never read on, and a handler that never
// returns, hold up no other call.
func TestRPCStalledConsumersHoldUpNoCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b, err := rpc.NewBus(c, name, &rpc.Options{Timeout: 10 * time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper))
	flood := rpc.NewStreamMethod[int, string]("flood")
	require.NoError(t, flood.Serve(b, func(ctx context.Context, n int, send func(string) error) error {
		for i := range n {
			if err := send(strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	still, stuck := make(chan string, 2), make(chan struct{})
	var consumers sync.WaitGroup
	consumers.Go(func() {
		for p := range flood.Call(ctx, b, 100_000) {
			still <- p
			<-stuck
			break
		}
	})
	consumers.Go(func() {
		for p := range lab.Echo.Gather(ctx, b, "x") {
			still <- p.Result
			<-stuck
			break
		}
	})
	require.ElementsMatch(t, []string{"0", "X"}, []string{<-still, <-still})
	var longest time.Duration
	for i := range 500 {
		start := time.Now()
		out, err := lab.Echo.Call(ctx, b, fmt.Sprint(i))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), out)
		longest = max(longest, time.Since(start))
	}
	t.Logf("the longest of 500 calls took %v", longest)
	require.Less(t, longest, 30*time.Second, "far less than the time that the suspended ones have")
	close(stuck)
	consumers.Wait()
	luatomictest.Eventually(t, 20*time.Second, "the context of the stream's handler ends",
		func() bool { return b.Waiting() == 0 })
}
