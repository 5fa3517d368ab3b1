package rpc_test

import (
	"context"
	"errors"
	"strings"
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

// The record of a call with a key is lost while its handler runs, and the call is made again, at another node. The
// answer of the first node is refused then, with its body: later callers read the one that was accepted.
func TestABodyOfARefusedReplyReplacesNone(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return strings.Repeat("1", rpc.BesideMin), nil
	})
	accepted := strings.Repeat("2", rpc.BesideMin)
	second := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		return accepted, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	go func() {
		_, _ = lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Key: "order", Node: first.Node()})
	}()
	lab.Soon(t, 20*time.Second, "the first node runs it", entered)
	records := lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())
	require.Len(t, records, 1)
	require.NoError(t, c.Del(ctx, records...).Err())
	out, err := lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Key: "order", Node: second.Node()})
	require.NoError(t, err)
	require.Equal(t, accepted, out)
	close(leave)
	luatomictest.Eventually(t, 20*time.Second, "the late reply is refused", func() bool {
		return first.Stats().Stale == 1
	})
	out, err = lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Key: "order"})
	require.NoError(t, err)
	require.Equal(t, accepted, out)
}

// apart has the body and the script of a pipeline take two ways, as a cluster does whose hash slot migrates: the script
// runs at once. The body fails there, or comes when the receiver has asked for it.
type apart struct {
	sha   string
	fails error
	asked <-chan struct{}
	n     atomic.Int32
}

func (h *apart) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *apart) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *apart) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "set" || !lab.OfScript(cmds[1], h.sha) {
			return next(ctx, cmds)
		}
		err := next(ctx, cmds[1:])
		<-h.asked
		h.n.Add(1)
		if h.fails != nil {
			cmds[0].SetErr(h.fails)
			return h.fails
		}
		return errors.Join(err, next(ctx, cmds[:1]))
	}
}

// A body comes after the script that announces it, when the receiver has asked for it already. Or it is lost on its way
// and sent again, by itself.
func TestABodyThatComesAfterItsScript(t *testing.T) {
	t.Parallel()
	for what, fails := range map[string]error{
		"late": nil, "cut off": errors.New("EOF"), "moved": refusal("MOVED 1 127.0.0.1:1"),
	} {
		for _, script := range []*lua.Script{&rpcscript.ReplyScript, &rpcscript.CallScript} {
			ctx, name := t.Context(), luatomictest.Namespace(t)
			asked := make(chan struct{}, 100)
			note := lab.Before(func(cmds ...redis.Cmder) {
				if cmds[0].Name() == "get" {
					asked <- struct{}{}
				}
			})
			sender, receiver := luatomictest.Client(t), luatomictest.Client(t)
			hook := &apart{sha: lab.Digest(script), fails: fails, asked: asked}
			node, caller := sender, receiver
			if script == &rpcscript.CallScript {
				node, caller = receiver, sender
			}
			lua.Direct(sender) // the hook sees no shared round trip
			lab.Serving(t, lab.Echo, node, name, nil, func(_ context.Context, s string) (string, error) {
				if script == &rpcscript.CallScript {
					return "x", nil
				}
				return strings.Repeat("x", rpc.BesideMin), nil
			})
			bus := lab.OpenBus(t, caller, name, &rpc.Options{Timeout: time.Minute})
			require.NoError(t, bus.Ready(ctx))
			receiver.AddHook(note)
			sender.AddHook(hook)
			body := ""
			if script == &rpcscript.CallScript {
				body = strings.Repeat("x", rpc.BesideMin)
			}
			_, err := lab.Echo.Call(ctx, bus, body, nil)
			require.NoError(t, err, "%s, of %s", what, script.Name)
			require.EqualValues(t, 1, hook.n.Load())
		}
	}
}

// A record that is kept has its body as long as it lives.
func TestTheBodyOfAKeptReplyOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, func(context.Context, string) (string, error) {
		return strings.Repeat("x", rpc.BesideMin), nil
	})
	bus := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, bus.Ready(ctx))
	_, err := lab.Echo.Call(ctx, bus, "", &rpc.CallOptions{Key: "k", Keep: time.Hour})
	require.NoError(t, err)
	life := make(map[string]time.Duration)
	for _, kind := range []string{"r", "b"} {
		found := c.Keys(ctx, "*"+name+"*}:"+kind+":*").Val()
		require.Len(t, found, 1, kind)
		life[kind] = c.PTTL(ctx, found[0]).Val()
	}
	require.Greater(t, life["b"], life["r"])
}
