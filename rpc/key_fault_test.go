package rpc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A reply is for the request that its node has run: another request with the key, which the server has not refused yet,
// does not get it.
func TestAReplyIsForItsRequest(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		close(entered)
		<-leave
		return "result of " + s, nil
	})
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute})
	opts := &rpc.CallOptions{Key: "order"}
	var wg sync.WaitGroup
	defer wg.Wait()
	answered := make(chan struct{})
	wg.Go(func() {
		defer close(answered)
		out, err := lab.Echo.CallWith(t.Context(), caller, "one", opts)
		if err != nil || out != "result of one" {
			t.Error(out, err)
		}
	})
	lab.Soon(t, 20*time.Second, "the first request", entered)
	var held sync.Once
	own.AddHook(&lab.Around{Sha: lab.Digest(&gen.RPCCallScript), Do: func(run func() error) error {
		held.Do(func() {
			close(leave)
			lab.Soon(t, 20*time.Second, "the reply to the first request", answered)
		})
		return run()
	}})
	out, err := lab.Echo.CallWith(t.Context(), caller, "two", opts)
	require.ErrorIs(t, err, rpc.ErrKeyReused, out)
}

// A large body is that of the request: another request with the key does not replace it before the node has read it.
func TestALargeBodyIsForItsRequest(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	one, two := strings.Repeat("1", 100_000), strings.Repeat("2", 100_000)
	opts := &rpc.CallOptions{Key: "order"}
	c := luatomictest.Client(t)
	node := luatomictest.Client(t)
	lab.Serving(t, lab.Echo, node, name, nil, lab.Upper)
	other := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	var once sync.Once
	var refused error
	node.AddHook(beforeGet(func() {
		once.Do(func() { _, refused = lab.Echo.CallWith(t.Context(), other, two, opts) })
	}))
	out, err := lab.Echo.CallWith(t.Context(), caller, one, opts)
	require.NoError(t, err)
	require.ErrorIs(t, refused, rpc.ErrKeyReused)
	require.True(t, one == out, "the handler got the other body")
}

// beforeGet runs before each plain GET of a client.
type beforeGet func()

func (f beforeGet) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f beforeGet) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "get" {
			f()
		}
		return next(ctx, cmd)
	}
}

func (f beforeGet) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
