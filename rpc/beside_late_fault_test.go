package rpc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The record of a call with a key is lost while its handler runs, and the call is made again, at another node. The
// answer of the first node is refused then, with its body: later callers read the one that was accepted.
func TestABodyOfARefusedReplyReplacesNone(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return strings.Repeat("1", rpc.BesideMin), nil
	})
	accepted := strings.Repeat("2", rpc.BesideMin)
	second := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		return accepted, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	go func() {
		_, _ = lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Key: "order", Node: first.Node()})
	}()
	lab.Soon(t, 20*time.Second, "the first node runs it", entered)
	records := lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())
	require.Len(t, records, 1)
	require.NoError(t, c.Del(ctx, records...).Err())
	out, err := lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Key: "order", Node: second.Node()})
	require.NoError(t, err)
	require.Equal(t, accepted, out)
	close(leave)
	luatomictest.Eventually(t, 20*time.Second, "the late reply is refused", func() bool {
		return first.Stats().Stale == 1
	})
	out, err = lab.Echo.CallWith(ctx, caller, "", &rpc.CallOptions{Key: "order"})
	require.NoError(t, err)
	require.Equal(t, accepted, out)
}
