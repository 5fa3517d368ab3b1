package rpc_test

import (
	"context"
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

const noMemory = refusal("OOM command not allowed when used memory > 'maxmemory'.")

// refusing refuses bodies that go out with a script, as a server without memory does, from the n-th one on. It refuses
// the script too, or passes it.
type refusing struct {
	sha    string
	n      int32
	script bool
	sent   atomic.Int32
}

func (h *refusing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *refusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "set" || !lab.OfScript(cmds[1], h.sha) || h.sent.Add(1) < h.n {
			return next(ctx, cmds)
		}
		cmds[0].SetErr(noMemory)
		if h.script {
			cmds[1].SetErr(noMemory)
			return noMemory
		}
		return next(ctx, cmds[1:])
	}
}

// A call that a node has refused goes to another one. The body is stored by then: where the server has no memory for it
// once more, the other node reads the first one.
func TestABodyThatIsStoredAndRefusedTheSecondTime(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	busy, leave := make(chan struct{}), make(chan struct{})
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, &rpc.Options{Concurrency: 1},
		func(_ context.Context, s string) (string, error) {
			close(busy)
			<-leave
			return s, nil
		})
	t.Cleanup(func() { close(leave) })
	own := luatomictest.Client(t)
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute, Lease: time.Hour})
	_ = startCall(t, lab.Echo, caller, "busy")
	lab.Soon(t, 20*time.Second, "the handler runs", busy)
	var ran atomic.Int32
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, func(_ context.Context, s string) (string, error) {
		ran.Add(1)
		return strings.ToUpper(s), nil
	})
	refused := &refusing{sha: lab.Digest(&rpcscript.DecideScript)}
	own.AddHook(refused)
	body := strings.Repeat("x", 10_000)
	out, err := lab.Echo.Call(ctx, caller, body, nil)
	require.NoError(t, err)
	require.Equal(t, strings.ToUpper(body), out)
	require.EqualValues(t, 1, ran.Load())
	require.Positive(t, refused.sent.Load(), "the body was refused")
}

// The answer to a body and its script is lost, and the repeat of both is refused. The handler runs: the call has its
// result, or an outcome that is not known where the script was refused too.
func TestABodyWhoseRepeatIsRefused(t *testing.T) {
	t.Parallel()
	for what, script := range map[string]bool{"the body alone": false, "the body and its script": true} {
		ctx, name := t.Context(), luatomictest.Namespace(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, func(_ context.Context, s string) (string, error) {
			if s != "warm" {
				close(entered)
				<-leave
			}
			return "done", nil
		})
		finish := sync.OnceFunc(func() { close(leave) })
		t.Cleanup(finish) // before the bus stops, which waits for handlers
		own, proxy := through(t)
		lua.Direct(own)
		caller := lab.OpenBus(t, own, name, &rpc.Options{Timeout: time.Minute, Lease: time.Hour})
		_, err := lab.Echo.Call(ctx, caller, "warm", nil)
		require.NoError(t, err)
		refused := &refusing{sha: lab.Digest(&rpcscript.CallScript), n: 2, script: script}
		own.AddHook(refused)
		proxy.Drop(1, lab.Sent(&rpcscript.CallScript))
		called := startCall(t, lab.Echo, caller, strings.Repeat("x", 10_000))
		lab.Soon(t, 20*time.Second, "the handler runs", entered)
		luatomictest.Eventually(t, 20*time.Second, "the repeat is refused", func() bool {
			return refused.sent.Load() >= 2
		})
		if script {
			err := lab.Soon(t, 30*time.Second, "the call", called).err
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown, what)
			require.NotErrorIs(t, err, lua.ErrNotExecuted, what)
			finish()
			continue
		}
		select {
		case early := <-called:
			require.NoError(t, early.err, "%s: its handler runs", what)
		case <-time.After(300 * time.Millisecond):
		}
		finish()
		result := lab.Soon(t, 20*time.Second, "the call", called)
		require.NoError(t, result.err, what)
		require.Equal(t, "done", result.out)
	}
}
