package rpc_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// After a sleep of the machine all calls are late by what the process takes for the server's clock. They share the
// heartbeat that reads it, and are made.
func TestLateCallsShareAHeartbeat(t *testing.T) {
	t.Parallel()
	const calls = 500
	ctx, c := t.Context(), luatomictest.Client(t)
	b := lab.Serving(t, lab.Echo, c, luatomictest.Namespace(t),
		&rpc.Options{Lease: time.Hour, Timeout: 30 * time.Second, Concurrency: calls}, lab.Upper)
	_, err := lab.Echo.Call(ctx, b, "x", nil)
	require.NoError(t, err)
	var heartbeats atomic.Int64
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		heartbeats.Add(1)
		return run()
	}})
	b.Oversleep(time.Minute)
	var group sync.WaitGroup
	for range calls {
		group.Go(func() {
			_, err := lab.Echo.Call(ctx, b, "x", nil)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	require.Positive(t, heartbeats.Load())
	require.Less(t, heartbeats.Load(), int64(calls/10))
}
