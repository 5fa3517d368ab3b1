package rpc

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// behind runs a function once a script has replied, before its caller has the reply.
type behind struct {
	script *lua.Script
	do     func()
}

func (h behind) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h behind) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.replied(cmds...)
		return err
	}
}

func (h behind) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.replied(cmd)
		return err
	}
}

func (h behind) replied(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if len(cmd.Args()) > 1 && fmt.Sprint(cmd.Args()[1]) == h.script.SHA && cmd.Err() == nil {
			h.do()
		}
	}
}

// What a record said before a call began, or before another node got it, is not its outcome. A record that is missing,
// or lost without a message of its node, ends the calls that waited when it was read, at the node that had them then.
func TestAnOlderRecordEndsNoLaterCall(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{"missing": "", "lost": "l1 n\n\tcaller\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := luatomictest.Client(t)
			b, err := New(c, luatomictest.Namespace(t), nil)
			require.NoError(t, err)
			call := func() *waiter {
				w := &waiter{outgoing: outgoing{method: "m"}, id: "id", record: b.keys.Record("id")}
				b.pending.expect(w)
				b.pending.placed(w, "n", 0)
				return w
			}
			if record != "" {
				require.NoError(t, c.Set(t.Context(), b.keys.Record("id"), record, 0).Err())
			}
			first, stays := call(), call()
			var later *waiter
			c.AddHook(behind{&rpcscript.CollectScript, func() {
				b.pending.forget(first)
				later = call()
				b.pending.placed(stays, "another", 0)
			}})
			_, err = b.readSome(t.Context(), []string{"id"})
			require.NoError(t, err)
			require.False(t, b.pending.isOver(later), "it began later")
			require.False(t, b.pending.isOver(stays), "another node has it")
			b.pending.placed(later, "n", 0)
			b.pending.forget(stays)

			c = luatomictest.Client(t)
			b.client = c
			_, err = b.readSome(t.Context(), []string{"id"})
			require.NoError(t, err)
			require.True(t, b.pending.isOver(later))
			require.ErrorIs(t, later.out.err, ErrNodeLost)
		})
	}
}
