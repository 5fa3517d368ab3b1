package rpc_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A part that is stored, and whose read the server refuses, comes soon after, although the handler sends no other.
func TestAPartWhoseReadFailsIsReadAgain(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	next, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	large := strings.Repeat("x", rpc.InlineMax+1)
	method := rpc.NewStreamMethod[string, string]("large")
	node := lab.OpenBus(t, c, name, &rpc.Options{Grace: -1})
	require.NoError(t, method.Serve(node, func(ctx context.Context, _ string, send func(string) error) error {
		<-next
		err := send(large)
		<-done
		return err
	}))
	require.NoError(t, node.Ready(t.Context()))

	own := luatomictest.Client(t)
	var refused, looked, beats atomic.Int64
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReadScript), Do: func(run func() error) error {
		if refused.Load() == 0 {
			return refusal("ERR refused")
		}
		return run()
	}})
	own.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			if cmd.Name() == "hexists" {
				looked.CompareAndSwap(0, beats.Load())
			}
			if lab.OfScript(cmd, lab.Digest(&rpcscript.JoinScript)) {
				beats.Add(1)
			}
		}
	}))
	caller := lab.OpenBus(t, own, name, &rpc.Options{Lease: quick.Lease, Timeout: time.Minute,
		OnError: func(error) { refused.Add(1) }})
	require.NoError(t, caller.Ready(t.Context()))
	go func() {
		luatomictest.Eventually(t, 20*time.Second, "the caller has looked for parts and found none", func() bool {
			return looked.Load() > 0 && beats.Load() > looked.Load()+1
		})
		close(next)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for part, err := range method.Call(ctx, caller, "") {
		require.NoError(t, err)
		require.Len(t, part, len(large))
		break
	}
	require.Positive(t, refused.Load())
}

// The server stores a part, but its answer is lost and the repeat is refused. The caller may have read the part or not,
// so its number is taken: a later part would get lost under it. The stream ends there, even if the handler goes on.
func TestAPartOfUnknownOutcomeEndsTheStream(t *testing.T) {
	t.Parallel()
	c, name, read := luatomictest.Client(t), luatomictest.Namespace(t), make(chan struct{})
	lua.Direct(c) // the hook sees no shared round trip
	require.NoError(t, lua.Preload(t.Context(), c, &rpcscript.ChunkScript))
	var tries atomic.Int64
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ChunkScript), Do: func(run func() error) error {
		switch tries.Add(1) {
		case 1:
			_ = run()
			<-read
			return io.ErrUnexpectedEOF
		case 2:
			return refusal("OOM command not allowed when used memory > 'maxmemory'.")
		}
		return run()
	}})
	node := lab.OpenBus(t, c, name, &rpc.Options{Lease: 15 * time.Second})
	sent := make(chan error, 2)
	require.NoError(t, countTo.Serve(node, func(_ context.Context, n int, send func(int) error) error {
		for i := range n {
			sent <- send(i)
		}
		return nil
	}))
	require.NoError(t, node.Ready(t.Context()))
	var parts []int
	var failed error
	for part, err := range countTo.Call(t.Context(), lab.OpenBus(t, luatomictest.Client(t), name, nil), 2) {
		if failed = err; err == nil {
			parts = append(parts, part)
			close(read)
		}
	}
	require.ErrorIs(t, <-sent, lua.ErrOutcomeUnknown)
	require.ErrorIs(t, <-sent, lua.ErrOutcomeUnknown, "no part comes after one that may be lost")
	require.Equal(t, []int{0}, parts)
	require.ErrorContains(t, failed, "outcome unknown")
}

// A part stands under another number than its own, as no program of this library stores it. The caller asks for the
// missing part with each heartbeat, and not again and again in between.
func TestAPartUnderAForeignNumberIsNotReadInALoop(t *testing.T) {
	t.Parallel()
	c, name, own := luatomictest.Client(t), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	var reads, beats atomic.Int64
	own.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			switch {
			case lab.OfScript(cmd, lab.Digest(&rpcscript.ReadScript)):
				reads.Add(1)
			case lab.OfScript(cmd, lab.Digest(&rpcscript.JoinScript)):
				beats.Add(1)
			}
		}
	}))
	node := lab.OpenBus(t, c, name, &rpc.Options{Lease: 15 * time.Second})
	require.NoError(t, countTo.Serve(node, func(ctx context.Context, _ int, _ func(int) error) error {
		info, _ := rpc.CallFrom(ctx)
		third := wire.Chunk{ID: info.ID, Seq: 3, Body: []byte("3")}
		err := c.HSet(ctx, "rpc:{"+name+"}:s:"+info.ID, "1", third.Encode()).Err()
		<-ctx.Done()
		return err
	}))
	require.NoError(t, node.Ready(t.Context()))
	caller, ctx := lab.OpenBus(t, own, name, &quick), t.Context()
	long, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for part, err := range countTo.Call(long, caller, 1) {
			assert.Error(t, err, part)
		}
	}()
	luatomictest.Eventually(t, 20*time.Second, "a read", func() bool { return reads.Load() > 0 })
	at := beats.Load()
	luatomictest.Eventually(t, 20*time.Second, "three heartbeats", func() bool { return beats.Load() >= at+3 })
	require.LessOrEqual(t, reads.Load(), beats.Load())
	cancel()
	<-ended
}

// The parts of one stream stand under a key of another type. Those of the other streams are found all the same.
func TestAKeyOfAnotherTypeHidesNoPartsOfOtherStreams(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.OpenBus(t, c, name, &rpc.Options{Lease: 15 * time.Second})
	broken := make(chan error, 1)
	require.NoError(t, countTo.Serve(node, func(ctx context.Context, n int, _ func(int) error) error {
		info, _ := rpc.CallFrom(ctx)
		key, first := "rpc:{"+name+"}:s:"+info.ID, wire.Chunk{ID: info.ID, Seq: 1, Body: []byte("7")}
		if n == 0 {
			broken <- c.Set(ctx, key, "text", time.Minute).Err()
		} else if err := c.HSet(ctx, key, "1", first.Encode()).Err(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}))
	require.NoError(t, node.Ready(t.Context()))
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &quick)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	ended := make(chan struct{})
	defer func() {
		cancel()
		<-ended
	}()
	go func() {
		defer close(ended)
		for part, err := range countTo.Call(ctx, caller, 0) {
			assert.Error(t, err, part)
		}
	}()
	require.NoError(t, <-broken)
	for part, err := range countTo.Call(ctx, caller, 1) {
		require.NoError(t, err)
		require.Equal(t, 7, part)
		break
	}
}
