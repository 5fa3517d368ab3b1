package rpc_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// Run ends while the server cannot be reached, and the call that waits for it ends. Its request is not sent to the
// server that is back, although the time of the call is not over.
func TestACallThatEndsWithRunIsNotSentAnyMore(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	var ran atomic.Int64
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, func(_ context.Context, s string) (string, error) {
		ran.Add(1)
		return s, nil
	})
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	caller, err := rpc.New(own, name, &rpc.Options{Grace: -1, Lease: time.Second, Timeout: time.Hour})
	require.NoError(t, err)
	stop := lab.RunBus(t, caller)
	require.NoError(t, caller.Ready(t.Context()))
	var gone atomic.Bool
	var attempts atomic.Int64
	gone.Store(true)
	for _, script := range []*lua.Script{&rpcscript.CallScript, &rpcscript.CancelScript} {
		own.AddHook(&lab.Around{Sha: lab.Digest(script), Do: func(run func() error) error {
			attempts.Add(1)
			if gone.Load() {
				return io.EOF
			}
			return run()
		}})
	}
	called := startCall(t, lab.Echo, caller, "x")
	luatomictest.Eventually(t, 20*time.Second, "the request is sent", func() bool { return attempts.Load() > 0 })
	stop()
	err = lab.Soon(t, 20*time.Second, "the call ends", called).err
	require.ErrorContains(t, err, "the handler may have run")
	gone.Store(false)
	require.Never(t, func() bool { return ran.Load() > 0 }, 2*time.Second, 10*time.Millisecond)
}
