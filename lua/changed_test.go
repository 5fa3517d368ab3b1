package lua_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// prefixed is a hook that puts a prefix before the keys of scripts, in the arguments of the command.
type prefixed string

func (p prefixed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p prefixed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.change(cmd)
		return next(ctx, cmd)
	}
}

func (p prefixed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			p.change(cmd)
		}
		return next(ctx, cmds)
	}
}

func (p prefixed) change(cmd redis.Cmder) {
	switch args, shown := cmd.Args(), lua.Args(cmd); args[0] {
	case "evalsha", "eval":
		args[3] = []byte(fmt.Sprint(p, shown[3])) // the runtime uses text
	case "set":
		args[1] = fmt.Sprint(p, shown[1])
	}
}

// A hook may replace the arguments of a command. A call that is sent again has its own.
func TestAHookThatReplacesArgumentsFindsThoseOfTheCallEachTime(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	client.AddHook(prefixed("app:"))
	cold := func(what string) *lua.Script {
		return newScript(what, "return redis.call('INCR', KEYS[1]) -- "+name+what, lua.RetryNever)
	}
	for what, send := range map[string]func(*lua.Call) (int64, error){
		"shared": func(c *lua.Call) (int64, error) { return lua.Run(t.Context(), client, c, decodeInt) },
		"batch": func(c *lua.Call) (int64, error) {
			b := lua.NewBatch(client)
			future := lua.Queue(b, c, decodeInt)
			require.NoError(t, b.Exec(t.Context()))
			return future.Get()
		},
	} {
		script := cold(what) // the first attempt finds no script
		for _, want := range []int64{1, 2} {
			got, err := send(newCall(script, name+what))
			require.NoError(t, err, what)
			require.Equal(t, want, got, what)
		}
		n, err := client.Get(t.Context(), "app:"+name+what).Int()
		require.NoError(t, err, what)
		require.Equal(t, 2, n, what)
	}
}

// So has a command that goes out ahead of a call.
func TestAHookFindsTheCommandAheadOfACallEachTime(t *testing.T) {
	t.Parallel()
	n, s, key := overSingle(t), readAfter(t), "{"+luatomictest.Namespace(t)+"}"
	preload(t, n.direct, s)
	n.client.AddHook(prefixed("app:"))
	n.drop(1, evalsha(s))
	got, _, err := runAfter(t.Context(), n.client, s, key, "v")
	require.NoError(t, err)
	require.Equal(t, "v", got)
	require.Zero(t, n.direct.Exists(t.Context(), "app:app:"+key).Val())
}

// The first attempt of a call finds no script, and the second goes out with SCRIPT LOAD, by the client of the node.
func TestAHookOfTheNodesOfAClusterSeesEachAttempt(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: luatomictest.StartCluster(t).Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	hook := new(shown)
	client.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
	script := newScript("first", "return redis.call('INCR', KEYS[1])", lua.RetryNever)
	for _, want := range []int64{1, 2} {
		got, err := lua.Run(t.Context(), client, newCall(script, "key"), decodeInt)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	seen := 0
	for _, call := range hook.calls {
		if strings.Contains(call, "evalsha "+script.SHA) {
			seen++
		}
	}
	require.Equal(t, 3, seen, "%v", hook.calls)
}
