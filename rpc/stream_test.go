package rpc_test

import (
	"bytes"
	"context"
	"encoding/gob"
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

var count = rpc.NewStreamMethod[int, string]("count")

func serveCount(t *testing.T, b *rpc.Bus, size int) (ended chan error) {
	ended = make(chan error, 10)
	require.NoError(t, count.Serve(b, func(ctx context.Context, n int, send func(string) error) error {
		for i := range n {
			if err := send(fmt.Sprint(i, " ", strings.Repeat("x", size))); err != nil {
				ended <- err
				return err
			}
		}
		if n == 7 {
			return errors.New("after seven")
		}
		ended <- nil
		return nil
	}))
	return ended
}

func TestRPCStreams(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b, err := rpc.NewBus(c, name, nil)
	require.NoError(t, err)
	ended := serveCount(t, b, 10)
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for _, n := range []int{0, 1, 2000} { // the last one is several windows long
		i := 0
		for part, err := range count.Call(ctx, caller, n) {
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(part, fmt.Sprint(i, " ")), "part %d: %q", i, part)
			i++
		}
		require.Equal(t, n, i)
		require.NoError(t, <-ended)
	}
	i := 0
	for _, err := range count.Call(ctx, caller, 7) {
		if i++; i == 8 {
			require.ErrorContains(t, err, "after seven")
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 8, i)

	// Who stops reading stops the handler.
	for range count.Call(ctx, caller, 1_000_000) {
		break
	}
	require.ErrorIs(t, <-ended, context.Canceled)
	for _, err := range rpc.NewStreamMethod[int, string]("nobody").Call(ctx, caller, 1) {
		require.ErrorIs(t, err, rpc.ErrNoResponders)
	}
	_, err = rpc.NewMethod[int, string]("count").Call(ctx, caller, 1)
	require.ErrorContains(t, err, "StreamMethod")
	require.Zero(t, caller.Waiting())
}

type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	err := gob.NewEncoder(&buf).Encode(v)
	return buf.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// Another codec, and keys: a bus without the key gets nothing done.
func TestRPCCodecAndKeys(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	opts := &rpc.Options{Codec: gobCodec{}, Lease: time.Minute, Keys: [][]byte{[]byte("new"), []byte("old")}}
	node := lab.Serving(t, lab.Echo, c, name, opts, lab.Upper)
	serveCount(t, node, 100_000)
	luatomictest.Eventually(t, 20*time.Second, "the second method is announced", func() bool {
		return c.Exists(ctx, "rpc:{"+name+"}:m:count").Val() == 1
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Codec: gobCodec{}, Keys: [][]byte{[]byte("old"), []byte("new")}})
	out, err := lab.Echo.Call(ctx, caller, "x")
	require.NoError(t, err)
	require.Equal(t, "X", out)
	n := 0
	for p, err := range lab.Echo.Gather(ctx, caller, strings.Repeat("x", 100_000)) {
		require.NoError(t, err)
		require.Len(t, p.Result, 100_000)
		n++
	}
	require.Equal(t, 1, n)
	for part, err := range count.Call(ctx, caller, 5) {
		require.NoError(t, err)
		require.Len(t, part, 100_002)
	}
	callRefused(t, c, name, node, lab.OpenBus(t, c, name, &rpc.Options{Codec: gobCodec{}, Timeout: time.Minute}))
}

// Bodies of every size: those above 64 KiB are fetched and not pushed.
func TestRPCLargeBodies(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for _, n := range []int{0, 1, 60_000, 65_400, 65_500, 70_000, 500_000, 1_000_000} {
		out, err := lab.Echo.Call(t.Context(), caller, strings.Repeat("x", n))
		require.NoError(t, err, n)
		require.Equal(t, strings.Repeat("X", n), out)
	}
	require.GreaterOrEqual(t, node.Stats().Fetched, int64(3))
}

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
