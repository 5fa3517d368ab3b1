package lua_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// shown keeps the arguments of the scripts that a client sends.
type shown struct {
	mu    sync.Mutex
	calls []string
}

func (s *shown) note(cmds ...redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range cmds {
		s.calls = append(s.calls, fmt.Sprintf("%v", lua.Args(cmd)))
	}
}

func (s *shown) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *shown) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.note(cmd)
		return next(ctx, cmd)
	}
}

func (s *shown) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.note(cmds...)
		return next(ctx, cmds)
	}
}

// A hook can show the arguments of a call, whatever form the runtime sends them in.
func TestHooksCanShowArguments(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	hook := &shown{}
	script := newScript("show", "return #ARGV", lua.RetrySafe)
	require.NoError(t, lua.Preload(t.Context(), client, script))
	client.AddHook(hook)
	owner, n, body := "secret", int64(-5), []byte("body")
	call := func() *lua.Call {
		c := lua.NewCall(script, 1, 6)
		c.Key("key", key)
		c.EndKeys()
		c.String(&owner)
		c.Int("n", 1<<40, 0, 1<<50)
		c.Bytes(&body)
		c.StringAt(&owner)
		c.IntAt(&n)
		c.BytesAt(&body)
		return c
	}
	_, err := lua.Run(t.Context(), client, call(), decodeInt)
	require.NoError(t, err)
	_, err = lua.Run(t.Context(), lua.Direct(client), call(), decodeInt)
	require.NoError(t, err)
	require.Len(t, hook.calls, 2)
	for _, args := range hook.calls {
		for _, want := range []string{script.SHA, key, "secret", "1099511627776", "body", "-5"} {
			require.Contains(t, args, want)
		}
		require.NotContains(t, args, "0x")
	}
}
