package rpc_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C7: what timed out leaves nothing behind.
func TestRPCTimeoutsLeaveNothing(t *testing.T) {
	t.Parallel()
	const calls = 1000
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node, err := rpc.NewBus(c, name, &rpc.Options{Concurrency: 1024})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(node, func(ctx context.Context, s string) (string, error) {
		if s == "slow" {
			<-ctx.Done()
		}
		return "", ctx.Err()
	}))
	stop := lab.RunBus(t, node)
	require.NoError(t, node.Ready(ctx))
	caller, err := rpc.NewBus(c, name, nil)
	require.NoError(t, err)
	stopCaller := lab.RunBus(t, caller)
	require.NoError(t, caller.Ready(ctx))
	var wg sync.WaitGroup
	var timeouts atomic.Int64
	for i := range 100 {
		wg.Go(func() {
			for j := range calls / 100 {
				in, d := "", 15*time.Second
				if (i+j)%10 == 0 {
					in, d = "slow", 20*time.Millisecond
				}
				ctx, cancel := context.WithTimeout(ctx, d)
				_, err := lab.Echo.Call(ctx, caller, in)
				cancel()
				if in == "" {
					require.NoError(t, err)
					continue
				}
				require.Error(t, err)
				timeouts.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(calls/10), timeouts.Load())
	luatomictest.Eventually(t, 30*time.Second, "no call is kept in the processes", func() bool {
		return node.Waiting() == 0 && caller.Waiting() == 0
	})
	luatomictest.Eventually(t, time.Minute, "no record is left", func() bool {
		return len(lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())) == 0
	})
	// An announcement may say what was in flight a moment ago; the next one sets it right.
	luatomictest.Eventually(t, 20*time.Second, "no calls are in flight", func() bool {
		return math.Abs(c.ZScore(ctx, "rpc:{"+name+"}:m:echo", node.Node()).Val()+1024) <= 5
	})
	stopCaller()
	stop()
	nothingStays(t, c, name)
}

// twoWays subscribes on another client.
type twoWays struct {
	*redis.Client
	sub *redis.Client
}

func (c *twoWays) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.sub.Subscribe(ctx, channels...)
}

// C14: the caller gives up at any moment. The handler's context ends at once, and there
// is one end.
func TestRPCCancel(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, told := make(chan struct{}, 1), make(chan time.Time, 1)
	// What was given up counts as in flight until the node has heard of it.
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1000, Lease: time.Minute}, func(ctx context.Context, s string) (string, error) {
		if s == "now" {
			return s, nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		told <- time.Now()
		return "", context.Cause(ctx)
	})
	caller := lab.OpenBus(t, c, name, nil)
	for range 20 {
		// Its deadline is long after all that a busy machine needs.
		bounded, end := context.WithTimeout(t.Context(), time.Minute)
		ctx, cancel := context.WithCancelCause(bounded)
		stopped := make(chan time.Time, 1)
		go func() {
			<-entered
			stopped <- time.Now()
			cancel(errStopped)
		}()
		_, err := lab.Echo.Call(ctx, caller, "wait")
		require.ErrorIs(t, err, errStopped)
		require.Less(t, (<-told).Sub(<-stopped), 20*time.Second)
		end()
	}
	// In any order with start and reply.
	ended := [2]int{}
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
		out, err := lab.Echo.Call(ctx, caller, "now")
		timer.Stop()
		cancel()
		if err == nil {
			require.Equal(t, "now", out)
			ended[0]++
		} else {
			require.ErrorIs(t, err, context.Canceled)
			ended[1]++
		}
	}
	t.Logf("%d answered, %d given up; node %+v", ended[0], ended[1], node.Stats())
	luatomictest.Eventually(t, 2*time.Minute, "nothing is left", func() bool {
		return node.Waiting() == 0 && caller.Waiting() == 0 && len(lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result())) == 0
	})
}

var errStopped = errors.New("stopped")

// C16: a subscriber that reads slowly is cut off by the server when its output grows
// too large. So large replies are not pushed, and all arrive.
func TestRPCLargeRepliesUnderAnOutputLimit(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	require.NoError(t, c.ConfigSet(t.Context(), "client-output-buffer-limit", "pubsub 1mb 256kb 1").Err())
	lab.Serving(t, lab.Echo, c, "b", &rpc.Options{Concurrency: 500}, func(context.Context, string) (string, error) { return strings.Repeat("x", 100_000), nil })
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: 2 * time.Minute})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			out, err := lab.Echo.Call(t.Context(), caller, "")
			require.NoError(t, err)
			require.Len(t, out, 100_000)
		})
	}
	wg.Wait()
}

// C17: handlers and callers that never come back do not hold up the others.
func TestRPCSlowOnesHoldNobodyUp(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	leave := make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute}, func(_ context.Context, s string) (string, error) {
		if s == "slow" {
			<-leave
		}
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 10 * time.Minute})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := lab.Echo.Call(t.Context(), caller, "slow")
			require.NoError(t, err)
		})
	}
	for range 500 {
		start := time.Now()
		_, err := lab.Echo.Call(t.Context(), caller, "fast")
		require.NoError(t, err)
		require.Less(t, time.Since(start), 30*time.Second)
	}
	close(leave)
	wg.Wait()
}

// C18: the server forgets its scripts again and again.
func TestRPCWhileScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	var ran atomic.Int64
	lab.Serving(t, lab.Echo, c, "b", nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	})
	caller := lab.OpenBus(t, c, "b", &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	stop := lab.Every(time.Millisecond, func() { c.ScriptFlush(t.Context()) })
	defer stop()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, err := lab.Echo.Call(t.Context(), caller, "x")
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(800), ran.Load())
}

// A node that leaves finishes what it has begun, and its callers know of the rest at
// once.
func TestRPCLeavingNodeAnswersAndIsGone(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered := make(chan struct{}, 2)
	b, err := rpc.NewBus(c, name, nil)
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "what I had", nil
	}))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 20 * time.Second})
	go func() {
		<-entered
		stop()
	}()
	out, err := lab.Echo.Call(t.Context(), caller, "")
	require.NoError(t, err)
	require.Equal(t, "what I had", out)
	_, err = lab.Echo.Call(t.Context(), caller, "")
	require.ErrorIs(t, err, rpc.ErrNoResponders)
}
