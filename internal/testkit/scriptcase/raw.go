package scriptcase

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// RawCall is a call of a script as the server reads it.
type RawCall struct {
	Script     *lua.Script
	Name, SHA  string
	Keys, Args []string
	// Prepare makes the data that the call finds.
	Prepare func(ctx context.Context, c *redis.Client) error
}

// RawCalls are calls of every script of the module, those of the dialects too, by groups.
func RawCalls(t *testing.T) map[string][]RawCall {
	t.Helper()
	out := make(map[string][]RawCall)
	seen := make(map[*lua.Script]bool)
	add := func(group string, call RawCall) {
		seen[call.Script] = true
		out[group] = append(out[group], call)
	}
	for _, call := range ScriptCalls() {
		raw := rawOf(t, call)
		group, _, _ := strings.Cut(raw.Name, "_")
		add(group, raw)
		if raw.Name == "queue_ack" { // the guard before the others is the same
			add(group, guardedOf(raw))
		}
	}
	dialects := map[string][]*lua.Script{
		"actionhero": actionhero.Scripts(), "plainlock": plainlock.Scripts(),
		"redisinaction": redisinaction.Scripts(), "sidekiq": sidekiq.Scripts(),
	}
	for dialect, scripts := range dialects {
		for _, row := range dialectCalls[dialect] {
			i := slices.IndexFunc(scripts, func(s *lua.Script) bool { return s.Name == row.script })
			require.GreaterOrEqual(t, i, 0, "%s has no script %s", dialect, row.script)
			add("dialects", row.raw(dialect, scripts[i]))
		}
	}
	for _, s := range slices.Concat(luatomic.Scripts(), dialects["actionhero"], dialects["plainlock"],
		dialects["redisinaction"], dialects["sidekiq"]) {
		require.True(t, seen[s], "%s has no call", s.Name)
	}
	return out
}

// rawOf takes the command of a call from a client that sends nothing.
func rawOf(t *testing.T, call ScriptCall) RawCall {
	t.Helper()
	raw, err := Words(t.Context(), call, "h")
	require.NoError(t, err)
	return raw
}

// Words takes the command of a call on the data of a tag from a client that sends nothing.
func Words(ctx context.Context, call ScriptCall, tag string) (RawCall, error) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	lua.Direct(c) // the hook ends the context of the call itself
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rec := &wordRecorder{cancel: cancel}
	c.AddHook(rec)
	if _, err := call.Run(ctx, c, tag); !errors.Is(err, context.Canceled) || len(rec.words) < 3 {
		return RawCall{}, fmt.Errorf("%s sends no command that a hook sees: %w", call.Script.Name, err)
	}
	n, err := strconv.Atoi(rec.words[2])
	if err := errors.Join(err, rec.err); err != nil {
		return RawCall{}, err
	}
	return RawCall{Script: call.Script, Name: call.Script.Name, SHA: call.Script.SHA, Keys: rec.words[3 : 3+n],
		Args:    rec.words[3+n:],
		Prepare: func(ctx context.Context, c *redis.Client) error { return call.Prepare(ctx, c, tag) }}, nil
}

// wordRecorder takes the words of the first command.
type wordRecorder struct {
	words  []string
	err    error
	cancel func()
}

func (r *wordRecorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *wordRecorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *wordRecorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for _, v := range cmd.Args() {
			word, err := wireText(v)
			r.words, r.err = append(r.words, word), errors.Join(r.err, err)
		}
		r.cancel()
		return ctx.Err()
	}
}

// wireText is an argument as go-redis writes it.
func wireText(v any) (string, error) {
	switch v := v.(type) {
	case *string:
		return *v, nil
	case *int64:
		return fmt.Sprint(*v), nil
	case []byte:
		return string(v), nil
	case encoding.BinaryMarshaler:
		text, err := v.MarshalBinary()
		return string(text), err
	}
	return fmt.Sprint(v), nil
}

// guardedOf is the call behind the guard, under a lease that is held.
func guardedOf(raw RawCall) RawCall {
	prepare := raw.Prepare
	raw.Name, raw.SHA = "guarded/"+raw.Name, raw.Script.Guarded.SHA
	raw.Keys, raw.Args = append(slices.Clone(raw.Keys), "lock:{h}"), append(slices.Clone(raw.Args), "me")
	raw.Prepare = func(ctx context.Context, c *redis.Client) error {
		return errors.Join(prepare(ctx, c), c.Set(ctx, "lock:{h}", HeldByMe, time.Hour).Err())
	}
	return raw
}
