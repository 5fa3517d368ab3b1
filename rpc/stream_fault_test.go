package rpc_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A stream loses no part when connections are cut.
func TestRPCStreamsSurviveCutConnections(t *testing.T) {
	name := luatomictest.Namespace(t)
	nodeClient, nodeProxy := through(t)
	callerClient, callerProxy := through(t)
	b, err := rpc.NewBus(nodeClient, name, nil)
	require.NoError(t, err)
	serveCount(t, b, 10)
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	caller := lab.OpenBus(t, callerClient, name, &rpc.Options{Timeout: 2 * time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	var parts atomic.Int64
	defer cutting(50*time.Millisecond, parts.Load, func() {
		nodeProxy.CutAll()
		callerProxy.CutAll()
	})()
	for range 3 {
		i := 0
		var failed error
		for part, err := range count.Call(t.Context(), caller, 1000) {
			if failed = err; err == nil {
				require.True(t, strings.HasPrefix(part, fmt.Sprint(i, " ")), "part %d: %q", i, part)
				i++
				parts.Add(1)
			}
		}
		if errors.Is(failed, rpc.ErrNoResponders) {
			continue // an answer, too
		}
		require.NoError(t, failed)
		require.Equal(t, 1000, i)
	}
}
