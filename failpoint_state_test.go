package luatomic_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lua"
)

// contents has the values of all keys of a tag, and the keys without a TTL.
type contents struct {
	tag     string
	values  map[string]any // []string, map[string]string, map[string]float64 or string
	lasting map[string]bool
}

func (s *sweep) read() contents {
	out := contents{"{" + s.k + "}:", make(map[string]any), make(map[string]bool)}
	for key := range lab.Dump(s.ctx, s.t, s.c, s.k) {
		switch s.c.Type(s.ctx, key).Val() {
		case "list":
			out.values[key] = s.c.LRange(s.ctx, key, 0, -1).Val()
		case "hash":
			out.values[key] = s.c.HGetAll(s.ctx, key).Val()
		case "zset":
			scores := make(map[string]float64)
			for _, z := range s.c.ZRangeWithScores(s.ctx, key, 0, -1).Val() {
				scores[z.Member.(string)] = z.Score
			}
			out.values[key] = scores
		default:
			out.values[key] = s.c.Get(s.ctx, key).Val()
		}
		if s.c.PTTL(s.ctx, key).Val() < 0 {
			out.lasting[key] = true
		}
	}
	return out
}

func (c contents) hash(suffix string) map[string]string {
	h, _ := c.values[c.tag+suffix].(map[string]string)
	return h
}

// work returns the values without the key of the waiters.
func (c contents) work() map[string]any {
	out := maps.Clone(c.values)
	delete(out, c.tag+"w")
	return out
}

// ids returns the jobs in one of the four keys.
func (c contents) ids() map[string]bool {
	out := make(map[string]bool)
	list, _ := c.values[c.tag+"r"].([]string)
	for _, entry := range list {
		out[jobID(entry)] = true
	}
	for _, place := range []string{"s", "l", "d"} {
		scores, _ := c.values[c.tag+place].(map[string]float64)
		for id := range scores {
			out[id] = true
		}
	}
	return out
}

func jobID(entry string) string {
	_, id, _ := strings.Cut(entry, ":")
	return id
}

// recordCall returns the script and the arguments of a call, recorded by a client that sends nothing.
func recordCall(ctx context.Context, t *testing.T, run func(context.Context, lua.Client, string) (string, error), k string) (*lua.Script, []any) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	lua.Direct(c) // the hook ends the context of the call itself
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	rec := &argRecorder{cancel: cancel}
	c.AddHook(rec)
	_, err := run(ctx, c, k)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, rec.args)
	sha := fmt.Sprint(rec.args[1])
	i := slices.IndexFunc(scriptcase.AllScripts, func(s *lua.Script) bool { return s.SHA == sha })
	require.GreaterOrEqual(t, i, 0, "no script %s", sha)
	return scriptcase.AllScripts[i], rec.args[2:]
}

// argRecorder records the arguments of the first command.
type argRecorder struct {
	args   []any
	cancel func()
}

func (r *argRecorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *argRecorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *argRecorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.args = cmd.Args()
		r.cancel()
		return ctx.Err()
	}
}
