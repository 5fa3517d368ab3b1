package luatomic_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// What EVALSHA sends is the digest of the file as it lies in gen/, and the
// server agrees. Behind its guard it is that of two files:
// cat gen/queue/guard.lua gen/queue/x.lua | sha1sum.
func TestWhatYouReadIsWhatRedisRuns(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	files, err := filepath.Glob("gen/*/*.lua")
	require.NoError(t, err)
	require.Len(t, files, len(scriptcase.AllScripts)+1, "the scripts and the guard")
	guard, err := os.ReadFile("gen/queue/guard.lua")
	require.NoError(t, err)
	check := func(name, sha string, text []byte) {
		sum := sha1.Sum(text)
		require.Equal(t, hex.EncodeToString(sum[:]), sha, name)
		loaded, err := client.ScriptLoad(t.Context(), string(text)).Result()
		require.NoError(t, err)
		require.Equal(t, sha, loaded, name)
	}
	guarded := 0
	for _, s := range scriptcase.AllScripts {
		text, err := os.ReadFile(filepath.Join("gen", strings.Replace(s.Name, "_", "/", 1)+".lua"))
		require.NoError(t, err)
		check(s.Name, s.SHA, text)
		if s.Guarded.Source != nil {
			guarded++
			check(s.Name, s.Guarded.SHA, slices.Concat(guard, text))
		}
	}
	require.NotZero(t, guarded)
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
	for _, call := range scriptcase.ScriptCalls() {
		t.Run(call.Script.Name, func(t *testing.T) {
			t.Parallel()
			ctx, c := t.Context(), luatomictest.Client(t)
			for i := range scriptcase.KeysOf(ctx, t, call, "any") {
				decl, k := declared(call.Script, i), luatomictest.Namespace(t)
				require.NoError(t, call.Prepare(ctx, c, k))
				key := scriptcase.KeysOf(ctx, t, call, k)[i]
				require.NoError(t, c.Del(ctx, key).Err())
				if decl.Type == "string" {
					require.NoError(t, c.RPush(ctx, key, "x").Err())
				} else {
					require.NoError(t, c.Set(ctx, key, "x", 0).Err())
				}
				before := lab.Dump(ctx, t, c, k)
				_, err := call.Run(ctx, c, k)
				if slices.Contains(call.Unread, decl.Name) {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, lua.ErrWrongType, "key %s", key)
				require.ErrorContains(t, err, fmt.Sprintf("key %q (%s) holds a ",
					secretInKey.ReplaceAllString(key, "$1*"), decl.Name))
				require.ErrorContains(t, err, "not a "+decl.Type)
				require.Equal(t, before, lab.Dump(ctx, t, c, k), "key %s", key)
			}
		})
	}
}

// secretInKey is a key that ends with a token, a unique name or the id of a call, which no error shows.
var secretInKey = regexp.MustCompile(`^(.*}:[a-z]:).*$`)

// A reply that is lost up to four times: a script declared safe comes to its
// answer and has its effect once; one declared never runs once and says that the
// outcome is unknown.
func TestLostRepliesOfEveryScript(t *testing.T) {
	t.Parallel()
	for _, call := range scriptcase.ScriptCalls() {
		t.Run(call.Script.Name, func(t *testing.T) {
			t.Parallel()
			for lost := range 5 {
				testLostReplies(t, call, lost)
			}
		})
	}
}

func testLostReplies(t *testing.T, call scriptcase.ScriptCall, lost int) {
	ctx, direct := t.Context(), luatomictest.Client(t)
	clean, faulty := luatomictest.Namespace(t), luatomictest.Namespace(t)
	require.NoError(t, call.Prepare(ctx, direct, clean))
	want, err := call.Run(ctx, direct, clean)
	require.NoError(t, err)

	require.NoError(t, call.Prepare(ctx, direct, faulty))
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	sent := lab.Sent(call.Script)
	proxy.Drop(lost, sent)
	got, err := call.Run(ctx, c, faulty)
	switch {
	case lost > 0 && call.Script.Retry == lua.RetryNever:
		require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
		require.Equal(t, 1, proxy.Executed(sent))
		return
	case repeatsDiffer[call.Script.Name] && lost > 0:
		require.NoError(t, err)
	default:
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, lost+1, proxy.Executed(sent))
	if !repeatsDiffer[call.Script.Name] {
		require.Equal(t, shape(ctx, t, direct, clean), shape(ctx, t, direct, faulty))
	}
}

// repeatsDiffer are the scripts whose repeat may do the next piece of work, or has
// another word for what is done already. What they promise instead has tests of
// its own beside each primitive.
var repeatsDiffer = map[string]bool{
	"queue_ack":     true, // gone
	"queue_nack":    true, // not leased any more
	"queue_bury":    true, // dead before
	"queue_cancel":  true, // absent
	"queue_reclaim": true, // nothing left to return
	"queue_requeue": true, // not dead any more
	"queue_trim":    true, // within the limits
	"queue_mend":    true, // in order
	"queue_promote": true, // nothing left to move
	"rpc_find":      true, // the dead ones are named once
	"lock_release":  true, // no record
	"lock_leave":    true, // not the owner any more
	"rpc_decide":    true, // known
	"rpc_reply":     true, // duplicate
	"rpc_leave":     true, // not announced any more
	"rpc_cancel":    true, // gone
}

// shape is what two runs must have in common: keys, types and sizes.
func shape(ctx context.Context, t *testing.T, c *redis.Client, k string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for name := range lab.Dump(ctx, t, c, k) {
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
	for _, call := range scriptcase.ScriptCalls() {
		t.Run(call.Script.Name, func(t *testing.T) {
			t.Parallel()
			ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
			fresh := regexp.MustCompile("^(rpc_join|lock_acquire|lock_try|lock_sem_acquire|limit_allow|limit_reserve|" +
				"queue_push)").MatchString(call.Script.Name)
			if !fresh {
				require.NoError(t, call.Prepare(ctx, c, k))
			}
			for name := range lab.Dump(ctx, t, c, k) {
				require.NoError(t, c.Expire(ctx, name, time.Hour).Err())
			}
			_, err := call.Run(ctx, c, k)
			require.NoError(t, err)
			for name := range lab.Dump(ctx, t, c, k) {
				if kept := regexp.MustCompile(`^{.*}:(r|s|b|l|n|d|u|ux|c|o)$`); kept.MatchString(name) {
					continue
				}
				require.Positive(t, c.PTTL(ctx, name).Val(), name)
			}
		})
	}
}

// To wake a consumer is only a hint: a user that may not do it does the work all the same.
func TestScriptsThatMayNotWakeDoTheirWork(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin, ctx := server.Client(), t.Context()
	users := map[string]*redis.Client{"all": admin}
	for _, command := range []string{"zpopmin", "publish"} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", command, "reset", "on", ">pw", "~*", "&*", "+@all",
			"-"+command).Err())
		users[command] = server.Client(func(o *redis.Options) { o.Username, o.Password = command, "pw" })
	}
	woke := make(map[string]bool)
	for i, call := range scriptcase.ScriptCalls() {
		if !strings.Contains(*call.Script.Source, "'ZPOPMIN', wake") {
			continue
		}
		for user, client := range users {
			k := fmt.Sprint("wake", i, user)
			require.NoError(t, call.Prepare(ctx, admin, k))
			wake := "{" + k + "}:w"
			require.NoError(t, admin.ZAdd(ctx, wake, redis.Z{Score: lab.Future, Member: "nobody"}).Err())
			_, err := call.Run(ctx, client, k)
			require.NoError(t, err, "%s without %s", call.Script.Name, user)
			if user == "all" && admin.ZCard(ctx, wake).Val() == 0 {
				woke[call.Script.Name] = true
			}
		}
	}
	for _, name := range []string{"queue_push", "queue_push_many", "queue_take", "queue_nack", "queue_requeue",
		"queue_mend"} {
		require.True(t, woke[name], "%s wakes nobody here", name)
	}
}
