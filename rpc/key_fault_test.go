package rpc_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
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
		out, err := lab.Echo.Call(t.Context(), caller, "one", opts)
		if err != nil || out != "result of one" {
			t.Error(out, err)
		}
	})
	lab.Soon(t, 20*time.Second, "the first request", entered)
	var held sync.Once
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.CallScript), Do: func(run func() error) error {
		held.Do(func() {
			close(leave)
			lab.Soon(t, 20*time.Second, "the reply to the first request", answered)
		})
		return run()
	}})
	out, err := lab.Echo.Call(t.Context(), caller, "two", opts)
	require.ErrorIs(t, err, rpc.ErrKeyReused, out)
}

// The server loses the record of a key while its node still works, and the key names another request then. That one
// runs beside the first, and each gets its own answer or none.
func TestAForgottenKeyTakesAnotherRequest(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	node := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		if s == "one" {
			close(entered)
			<-leave
		}
		return "result of " + s, nil
	})
	release := sync.OnceFunc(func() { close(leave) })
	t.Cleanup(release)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 20 * time.Second})
	opts := &rpc.CallOptions{Key: "order"}
	go func() { _, _ = lab.Echo.Call(ctx, caller, "one", opts) }()
	lab.Soon(t, 20*time.Second, "the first request", entered)
	record := lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())
	require.NoError(t, c.Del(ctx, record...).Err())
	for range 2 {
		out, err := lab.Echo.Call(ctx, caller, "two", opts)
		require.NoError(t, err)
		require.Equal(t, "result of two", out)
	}
	release()
	luatomictest.Eventually(t, 20*time.Second, "the answer to the first one is refused", func() bool {
		return node.Stats().Stale == 1
	})
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
	node.AddHook(beforeGet(func() error {
		once.Do(func() { _, refused = lab.Echo.Call(t.Context(), other, two, opts) })
		return nil
	}))
	out, err := lab.Echo.Call(t.Context(), caller, one, opts)
	require.NoError(t, err)
	require.ErrorIs(t, refused, rpc.ErrKeyReused)
	require.True(t, one == out, "the handler got the other body")
}

// A body that a node cannot read is read by another one: the request has not run.
func TestABodyThatANodeCannotReadIsReadByAnother(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	var reads atomic.Int64
	for range 2 {
		node := luatomictest.Client(t)
		node.AddHook(beforeGet(func() error {
			if reads.Add(1) == 1 {
				return redis.Nil
			}
			return nil
		}))
		lab.Serving(t, lab.Echo, node, name, nil, lab.Upper)
	}
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: time.Minute})
	out, err := lab.Echo.Call(t.Context(), caller, strings.Repeat("x", 10<<10), nil)
	require.NoError(t, err)
	require.Len(t, out, 10<<10)
}

// beforeGet runs before each plain GET of a client, and fails it with its error.
type beforeGet func() error

func (f beforeGet) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f beforeGet) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "get" {
			if err := f(); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (f beforeGet) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The end of a call is the same for each of its callers: for the one that is connected, for the one that missed the
// answer and reads it from the record, and for the one that comes with the key afterwards.
func TestEveryCallerGetsTheSameEnd(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, ended := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		close(entered)
		<-ctx.Done()
		close(ended)
		return "", ctx.Err()
	})
	opts := &rpc.CallOptions{Key: "order"}
	startCallWith := func(b *rpc.Bus) <-chan error {
		require.NoError(t, b.Ready(ctx))
		out := make(chan error, 1)
		go func() {
			_, err := lab.Echo.Call(ctx, b, "x", opts)
			out <- err
		}()
		return out
	}
	// The handler has the time of the first caller.
	startCallWith(lab.OpenBus(t, c, name, &rpc.Options{Timeout: 8 * time.Second}))
	lab.Soon(t, 20*time.Second, "the handler", entered)
	long := &rpc.Options{Timeout: time.Minute}
	cut, proxy := through(t)
	connected, away := startCallWith(lab.OpenBus(t, c, name, long)), startCallWith(lab.OpenBus(t, cut, name, long))
	record := lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())[0]
	luatomictest.Eventually(t, 20*time.Second, "three callers in the record", func() bool {
		return strings.Count(c.Get(ctx, record).Val(), "\t") == 3
	})
	var unsubscribed atomic.Bool
	unsubscribed.Store(true)
	proxy.DropRequest(1_000_000, func(args []string) bool {
		return strings.EqualFold(args[0], "subscribe") && unsubscribed.Load()
	})
	proxy.CutAll()
	lab.Soon(t, 20*time.Second, "the end of the handler", ended)
	unsubscribed.Store(false)
	after := startCallWith(lab.OpenBus(t, c, name, long))
	for _, out := range []<-chan error{connected, away, after} {
		err := lab.Soon(t, 20*time.Second, "the end of the call", out)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, rpc.ErrNodeLost)
		require.ErrorContains(t, err, "the handler's time is over")
	}
}

// A call with a key that every node has refused, because it was busy, runs when it is made again. The refusal is kept
// with the record, and is no reason not to ask the node again.
func TestARefusedKeyIsAskedAgain(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1}, func(_ context.Context, s string) (string, error) {
		if s == "busy" {
			close(entered)
			<-leave
		}
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	busy := startCall(t, lab.Echo, caller, "busy")
	lab.Soon(t, 20*time.Second, "the handler", entered)
	opts := &rpc.CallOptions{Key: "order"}
	_, err := lab.Echo.Call(ctx, caller, "x", opts)
	require.ErrorIs(t, err, rpc.ErrOverloaded)
	_, err = lab.Echo.Call(ctx, lab.OpenBus(t, c, name, nil), "x", opts)
	require.ErrorIs(t, err, rpc.ErrOverloaded, "for another caller, too")
	close(leave)
	require.NoError(t, lab.Soon(t, 20*time.Second, "the call", busy).err)
	for _, b := range []*rpc.Bus{caller, lab.OpenBus(t, c, name, nil)} {
		out, err := lab.Echo.Call(ctx, b, "x", opts)
		require.NoError(t, err)
		require.Equal(t, "x", out)
	}
}

// Each call with a key ends when its nodes have refused it, and not the first one of the process alone.
func TestARefusalReachesEachCallerOfAKey(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1},
		func(context.Context, string) (string, error) {
			close(entered)
			<-leave
			return "", nil
		})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute, Lease: time.Hour})
	_ = startCall(t, lab.Echo, caller, "busy")
	lab.Soon(t, 20*time.Second, "the handler", entered)
	ended := make(chan error, 20)
	for range cap(ended) {
		go func() {
			_, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Key: "order"})
			ended <- err
		}()
	}
	for range cap(ended) {
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the refusal", ended), rpc.ErrOverloaded)
	}
	require.Zero(t, node.Stats().Handled)
}

// The answer to a call with a key goes out when the server takes it again, also after the time of the call: the handler
// does not run for the next caller, who finds the call pending.
func TestTheAnswerOfAKeyIsSentWhileTheKeyIsKept(t *testing.T) {
	t.Parallel()
	ctx, name, own := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	var refuses atomic.Bool
	refuses.Store(true)
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReplyScript), Do: func(run func() error) error {
		if refuses.Load() {
			return io.EOF
		}
		return run()
	}})
	var runs atomic.Int64
	lab.Serving(t, lab.Echo, own, name, nil, func(context.Context, string) (string, error) {
		return strconv.FormatInt(runs.Add(1), 10), nil
	})
	short := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: 50 * time.Millisecond})
	require.NoError(t, short.Ready(ctx))
	opts := &rpc.CallOptions{Key: "order"}
	_, err := lab.Echo.Call(ctx, short, "x", opts)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(1200 * time.Millisecond) // the time of the call and its grace
	refuses.Store(false)
	long := &rpc.Options{Timeout: time.Minute, Lease: 300 * time.Millisecond} // it looks after its calls soon
	out, err := lab.Echo.Call(ctx, lab.OpenBus(t, luatomictest.Client(t), name, long), "x", opts)
	require.NoError(t, err)
	require.Equal(t, "1", out, "the handler ran %d times", runs.Load())
}

// Each call with a key of a dead node ends with the first one of the process, and not one at a heartbeat.
func TestADeadNodeEndsEachCallOfAKey(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	name := luatomictest.Namespace(t)
	twice := rpc.NewMethod[string, string]("twice").Idempotent()
	entered := make(chan struct{}, 1)
	opts := &rpc.Options{Lease: nodeLease}
	node := servingThrough(t, twice, name, opts, func(ctx context.Context, _ string) (string, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Lease: nodeLease, Timeout: 2 * time.Minute})
	ended := make(chan error, 100)
	for range cap(ended) {
		go func() {
			_, err := twice.Call(t.Context(), caller, "x", &rpc.CallOptions{Key: "order"})
			ended <- err
		}()
	}
	lab.Soon(t, 20*time.Second, "the handler", entered)
	node.proxy.Blackhole(true)
	over := time.After(30 * time.Second)
	for i := range cap(ended) {
		select {
		case err := <-ended:
			require.ErrorIs(t, err, rpc.ErrNodeLost)
		case <-over:
			t.Fatalf("%d of %d calls have ended", i, cap(ended))
		}
	}
	lab.Serving(t, twice, luatomictest.Client(t), name, nil, answering("another node"))
	out, err := twice.Call(t.Context(), caller, "x", &rpc.CallOptions{Key: "order"})
	require.NoError(t, err, "the method may run twice, so that its loss is not kept")
	require.Equal(t, "another node", out)
}

// A caller of a key that gives up takes the answer from none of the others: its body is read for all that wait, and
// again where the server cannot be asked.
func TestALargeReplyIsForEachCallerOfAKey(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return strings.Repeat("x", 100_000), nil
	})
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	call := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Key: "order"})
			ended <- err
		}()
		return ended
	}
	first := call(t.Context())
	lab.Soon(t, 20*time.Second, "the request", entered)
	waits := make(chan struct{})
	known := sync.OnceFunc(func() { close(waits) })
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.DecideScript), Do: func(run func() error) error {
		defer known()
		return run()
	}})
	reads, read := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(read) })
	var asked atomic.Int64
	own.AddHook(beforeGet(func() error {
		if asked.Add(1) > 1 {
			return nil
		}
		close(reads)
		<-read
		return io.EOF
	}))
	t.Cleanup(release)
	short, cancel := context.WithCancel(t.Context())
	second := call(short)
	lab.Soon(t, 20*time.Second, "the second caller", waits)
	close(leave)
	lab.Soon(t, 20*time.Second, "the body is read", reads)
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the second caller ends", second), context.Canceled)
	release()
	require.NoError(t, lab.Soon(t, 20*time.Second, "the first caller has its answer", first))
}
