package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// A stream loses no part when connections are cut.
func TestRPCStreamsSurviveCutConnections(t *testing.T) {
	name := luatomictest.Namespace(t)
	nodeClient, nodeProxy := through(t)
	callerClient, callerProxy := through(t)
	b, err := rpc.New(nodeClient, name, &rpc.Options{Lease: 15 * time.Second})
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

// A handler may send from several goroutines: each part arrives, once.
func TestPartsOfSeveralGoroutines(t *testing.T) {
	t.Parallel()
	b := lab.OpenBus(t, luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Lease: 15 * time.Second})
	require.NoError(t, countTo.Serve(b, func(_ context.Context, n int, send func(int) error) error {
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- send(i) }()
		}
		for range n {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, b.Ready(t.Context()))
	const parts = 50
	seen := make(map[int]bool)
	for part, err := range countTo.Call(t.Context(), b, parts) {
		require.NoError(t, err)
		seen[part] = true
	}
	require.Len(t, seen, parts)
}

// A caller may have read a part before its node has the server's answer to it. The node counts it as read then, and
// waits for no look at the server.
func TestPartsThatAreReadBeforeTheServersAnswer(t *testing.T) {
	t.Parallel()
	c, name, read := luatomictest.Client(t), luatomictest.Namespace(t), make(chan struct{}, 4)
	lua.Direct(c) // the hook sees no shared round trip
	opts := &rpc.Options{Lease: 2 * time.Minute}
	b := lab.Serving(t, lab.Echo, c, name, opts, lab.Upper)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, opts)
	require.NoError(t, lua.Preload(t.Context(), c, &rpcscript.ChunkScript))
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ChunkScript), Do: func(run func() error) error {
		err := run()
		select {
		case <-read:
		case <-t.Context().Done():
		}
		_, called := lab.Echo.Call(t.Context(), caller, "after the notice of what was read", nil)
		return errors.Join(err, called)
	}})
	serveCount(t, b, 600_000)
	require.NoError(t, b.Ready(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	parts := 0
	for _, err := range count.Call(ctx, caller, 4) {
		require.NoError(t, err)
		parts++
		read <- struct{}{}
	}
	require.Equal(t, 4, parts)
}

// Run ends while the caller of a stream has its reply and cannot read all parts. The stream ends with Run, as calls
// do.
func TestAStreamWithoutItsPartsEndsWithRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := luatomictest.Namespace(t)
	node := lab.OpenBus(t, luatomictest.Client(t), name, nil)
	large := rpc.NewStreamMethod[string, string]("large")
	require.NoError(t, large.Serve(node, func(_ context.Context, _ string, send func(string) error) error {
		return send(strings.Repeat("x", 100_000))
	}))
	require.NoError(t, node.Ready(ctx))
	c := luatomictest.Client(t)
	lua.Direct(c) // the hook sees no shared round trip
	reads := make(chan struct{}, 100)
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReadScript), Do: func(func() error) error {
		select {
		case reads <- struct{}{}:
		default:
		}
		return errors.New("no connection")
	}})
	caller := lab.NewBus(t, c, name, nil)
	stop := lab.RunBus(t, caller)
	require.NoError(t, caller.Ready(ctx))
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, last = range large.Call(ctx, caller, "") {
		}
		ended <- last
	}()
	luatomictest.Eventually(t, 20*time.Second, "the answer is sent", func() bool {
		return node.Waiting() == 0 && len(reads) > 0
	})
	luatomictest.Eventually(t, 20*time.Second, "the caller has it", caller.Answered)
	stop()
	err := lab.Soon(t, 20*time.Second, "the end", ended)
	require.ErrorContains(t, err, "it has ended; the handler may have run")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// A part that is announced is read, and nothing else: neither the record of its stream nor a reminder to the node.
func TestALargePartCostsOneRead(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	b := lab.OpenBus(t, c, "bus", &rpc.Options{Lease: time.Hour})
	large := rpc.NewStreamMethod[string, string]("large")
	require.NoError(t, large.Serve(b, func(_ context.Context, _ string, send func(string) error) error {
		for range 20 {
			if err := send(strings.Repeat("x", 100_000)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, b.Ready(ctx))
	parts := 0
	for _, err := range large.Call(ctx, b, "") {
		require.NoError(t, err)
		parts++
	}
	require.Equal(t, 20, parts)
	require.Zero(t, lab.Calls(t, c)["evalsha_ro"], "looks at records")
}
