package luatomic_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// newQueue returns a queue of the test's own.
func newQueue(t testing.TB, opts *luatomic.QueueOptions) (*luatomic.Queue, *redis.Client) {
	t.Helper()
	client := luatomictest.Client(t)
	q, err := luatomic.NewQueue(client, luatomictest.Namespace(t), opts)
	require.NoError(t, err)
	return q, client
}

// key is the full name of one of the queue's keys.
func key(q *luatomic.Queue, suffix string) string { return "{" + q.Name() + "}:" + suffix }

// bodies are n small jobs without ids.
func bodies(n int) []luatomic.Job {
	jobs := make([]luatomic.Job, n)
	for i := range jobs {
		jobs[i].Body = fmt.Appendf(nil, "job %d", i)
	}
	return jobs
}

// What EVALSHA sends is the digest of the file as it lies in scripts/, and the
// server agrees.
func TestWhatYouReadIsWhatRedisRuns(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	files, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	require.Len(t, files, len(allScripts))
	for _, s := range allScripts {
		text, err := os.ReadFile(filepath.Join("scripts", s.Name+".lua"))
		require.NoError(t, err)
		sum := sha1.Sum(text)
		require.Equal(t, hex.EncodeToString(sum[:]), s.SHA, s.Name)
		sha, err := client.ScriptLoad(t.Context(), string(text)).Result()
		require.NoError(t, err)
		require.Equal(t, s.SHA, sha, s.Name)
	}
}

var allScripts = slices.Concat(rpcScripts, []*lua.Script{
	&gen.DelayedPromoteScript,
	&gen.LockAcquireScript, &gen.LockExtendScript, &gen.LockReleaseScript, &gen.LockTryScript, &gen.LockForceScript, &gen.LockInfoScript, &gen.LockNoteScript, &gen.LockFenceScript, &gen.LockAcquireAllScript,
	&gen.QueueAckScript, &gen.QueueCancelScript, &gen.QueueControlScript, &gen.QueueExtendScript, &gen.QueueMendScript, &gen.QueueNackScript,
	&gen.QueuePeekScript, &gen.QueuePushScript, &gen.QueuePushManyScript, &gen.QueueReclaimScript, &gen.QueueRequeueScript, &gen.QueueRescheduleScript,
	&gen.QueueStatsScript, &gen.QueueTakeScript, &gen.QueueTrimScript,
	&gen.SemAcquireScript, &gen.SemExtendScript, &gen.SemInfoScript, &gen.SemReleaseScript, &gen.SemResizeScript,
})

const (
	past, future = 1, 4102444800000 // ms: 1970, 2100
	longLease    = future * 1000    // us: the end of a lease
)

type recorder struct {
	keys   []string
	cancel func() // or the runtime would try again
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (r *recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		n, err := strconv.Atoi(args[2].(string))
		for _, k := range args[3 : 3+n] {
			if text, ok := k.(*string); ok {
				k = *text
			}
			r.keys = append(r.keys, k.(string))
		}
		r.cancel()
		return errors.Join(err, errors.New("recorded"))
	}
}

// dump holds the serialized value of every key of a tag.
func dump(ctx context.Context, t *testing.T, c *redis.Client, k string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for it := c.Scan(ctx, 0, "*{"+k+"}*", 1000).Iterator(); it.Next(ctx); {
		v, err := c.Dump(ctx, it.Val()).Result()
		require.NoError(t, err)
		out[it.Val()] = v
	}
	return out
}

// declared is what the header says of the i-th key of a call: the variadic ones repeat.
func declared(s *lua.Script, i int) lua.Key {
	if i < len(s.Keys) {
		return s.Keys[i]
	}
	first := slices.IndexFunc(s.Keys, func(k lua.Key) bool { return k.Variadic })
	return s.Keys[first+(i-first)%(len(s.Keys)-first)]
}

// Whatever stands at one of a script's keys, a value of another type is an error
// that names the key and both types, and changes nothing.
func TestWrongTypeAtEveryKeyOfEveryScript(t *testing.T) {
	t.Parallel()
	for _, call := range scriptCalls() {
		t.Run(call.script.Name, func(t *testing.T) {
			t.Parallel()
			ctx, c := t.Context(), luatomictest.Client(t)
			for i := range keysOf(ctx, t, call, "any") {
				decl, k := declared(call.script, i), luatomictest.Namespace(t)
				require.NoError(t, call.prepare(ctx, c, k))
				key := keysOf(ctx, t, call, k)[i]
				require.NoError(t, c.Del(ctx, key).Err())
				if decl.Type == "string" {
					require.NoError(t, c.RPush(ctx, key, "x").Err())
				} else {
					require.NoError(t, c.Set(ctx, key, "x", 0).Err())
				}
				before := dump(ctx, t, c, k)
				_, err := call.run(ctx, c, k)
				if slices.Contains(call.unread, decl.Name) {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, lua.ErrWrongType, "key %s", key)
				require.ErrorContains(t, err, fmt.Sprintf("key %q (%s) holds a ", key, decl.Name))
				require.ErrorContains(t, err, "not a "+decl.Type)
				require.Equal(t, before, dump(ctx, t, c, k), "key %s", key)
			}
		})
	}
}

// A reply that is lost up to four times: a script declared safe comes to its
// answer and has its effect once; one declared never runs once and says that the
// outcome is unknown.
func TestLostRepliesOfEveryScript(t *testing.T) {
	t.Parallel()
	for _, call := range scriptCalls() {
		t.Run(call.script.Name, func(t *testing.T) {
			t.Parallel()
			for lost := range 5 {
				testLostReplies(t, call, lost)
			}
		})
	}
}

func testLostReplies(t *testing.T, call scriptCall, lost int) {
	ctx, direct := t.Context(), luatomictest.Client(t)
	clean, faulty := luatomictest.Namespace(t), luatomictest.Namespace(t)
	require.NoError(t, call.prepare(ctx, direct, clean))
	want, err := call.run(ctx, direct, clean)
	require.NoError(t, err)

	require.NoError(t, call.prepare(ctx, direct, faulty))
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	sent := luatomictest.Command(strings.ToUpper(verb(call.script)), call.script.SHA)
	proxy.Drop(lost, sent)
	got, err := call.run(ctx, c, faulty)
	switch {
	case lost > 0 && call.script.Retry == lua.RetryNever:
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
		require.Equal(t, 1, proxy.Executed(sent))
		return
	case repeatsDiffer[call.script.Name] && lost > 0:
		require.NoError(t, err)
	default:
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, lost+1, proxy.Executed(sent))
	if !repeatsDiffer[call.script.Name] {
		require.Equal(t, shape(ctx, t, direct, clean), shape(ctx, t, direct, faulty))
	}
}

func verb(s *lua.Script) string {
	if s.ReadOnly {
		return "evalsha_ro"
	}
	return "evalsha"
}

// repeatsDiffer are the scripts whose repeat may do the next piece of work, or has
// another word for what is done already. What they promise instead has tests of
// its own beside each primitive.
var repeatsDiffer = map[string]bool{
	"queue_take":      true, // leases the next jobs; the first come back
	"queue_ack":       true, // gone
	"queue_nack":      true, // not leased any more
	"queue_cancel":    true, // absent
	"queue_reclaim":   true, // nothing left to return
	"queue_requeue":   true, // not dead any more
	"queue_trim":      true, // within the limits
	"queue_mend":      true, // in order
	"delayed_promote": true, // nothing left to move
	"rpc_reply":       true, // duplicate
	"rpc_part":        true, // duplicate
	"rpc_leave":       true, // not announced any more
	"rpc_cancel":      true, // gone
	"rpc_unbind":      true, // not bound any more
	"rpc_rescue":      true, // alive, at another node
}

// shape is what two runs must have in common: keys, types and sizes.
func shape(ctx context.Context, t *testing.T, c *redis.Client, k string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for name := range dump(ctx, t, c, k) {
		kind := c.Type(ctx, name).Val()
		size := int64(1)
		switch kind {
		case "list":
			size = c.LLen(ctx, name).Val()
		case "hash":
			size = c.HLen(ctx, name).Val()
		case "zset":
			size = c.ZCard(ctx, name).Val()
		}
		out[strings.ReplaceAll(name, k, "")] = fmt.Sprint(kind, size)
	}
	return out
}

// Everything that can expire does: after each script on fresh data, only the keys
// of work that is not done, and of settings, are without a TTL.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	for _, call := range scriptCalls() {
		t.Run(call.script.Name, func(t *testing.T) {
			t.Parallel()
			ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
			fresh := regexp.MustCompile("^(rpc_join|lock_acquire|lock_try|sem_acquire|queue_push)").MatchString(call.script.Name)
			if !fresh {
				require.NoError(t, call.prepare(ctx, c, k))
			}
			for name := range dump(ctx, t, c, k) {
				require.NoError(t, c.Expire(ctx, name, time.Hour).Err())
			}
			_, err := call.run(ctx, c, k)
			require.NoError(t, err)
			for name := range dump(ctx, t, c, k) {
				if kept := regexp.MustCompile(`^{.*}:(r|s|b|l|n|d|u|ux|c)$`); kept.MatchString(name) {
					continue
				}
				require.Positive(t, c.PTTL(ctx, name).Val(), name)
			}
		})
	}
}
