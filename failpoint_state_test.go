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

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
)

// contents has the values of all keys of a tag, and the keys without a TTL.
type contents struct {
	values  map[string]any // []string, map[string]string, map[string]float64 or string
	lasting map[string]bool
}

func (s *sweep) read() contents {
	out := contents{make(map[string]any), make(map[string]bool)}
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

// kindOf is the last part of a key, which says what it is of its queue.
func kindOf(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

// hash is that hash of all queues: the ids of their jobs differ.
func (c contents) hash(kind string) map[string]string {
	out := make(map[string]string)
	for key, value := range c.values {
		if h, ok := value.(map[string]string); ok && kindOf(key) == kind {
			maps.Copy(out, h)
		}
	}
	return out
}

// work returns the values without the keys of the waiters.
func (c contents) work() map[string]any {
	out := maps.Clone(c.values)
	maps.DeleteFunc(out, func(key string, _ any) bool { return kindOf(key) == "w" })
	return out
}

// ids returns the jobs that are in one of the four keys of a queue.
func (c contents) ids() map[string]bool {
	out := make(map[string]bool)
	for key, value := range c.values {
		switch held := value.(type) {
		case []string:
			for _, entry := range held {
				out[jobID(entry)] = true
			}
		case map[string]float64:
			if slices.Contains([]string{"s", "l", "d"}, kindOf(key)) {
				for id := range held {
					out[id] = true
				}
			}
		}
	}
	return out
}

func jobID(entry string) string {
	_, id, _ := strings.Cut(entry, ":")
	return id
}

// recordCall returns the script and the arguments of a call, recorded by a client that sends nothing.
func recordCall(ctx context.Context, t *testing.T, run func(context.Context, lua.Client, string) (string, error),
	k string) (*lua.Script, []any) {
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
	i := slices.IndexFunc(scriptcase.AllScripts, func(s *lua.Script) bool { return lab.Digest(s) == sha })
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
