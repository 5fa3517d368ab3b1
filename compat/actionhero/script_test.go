package actionhero_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// scriptCase is one call of a script on prepared data.
type scriptCase struct {
	name    string
	script  *lua.Script
	keys    []string // of lock and item
	args    []any
	prepare map[string]string // of lock and item
	run     func(ctx context.Context, c *actionhero.Cache) (string, error)
	want    string
}

const stampedItem = `{"value":{"a":1},"expireTimestamp":32503680000000,"createdAt":1,"readAt":null}`

func scriptCases() []scriptCase {
	mine, other := map[string]string{"lock": "me"}, map[string]string{"lock": "other"}
	both := []string{"lock", "item"}
	check := func(ctx context.Context, c *actionhero.Cache) (string, error) {
		v, err := c.CheckLock(ctx, "k", 0)
		return fmt.Sprintf("%v %s", v.OK, v.Holder), err
	}
	lock := func(ctx context.Context, c *actionhero.Cache) (string, error) {
		ok, err := c.Lock(ctx, "k", time.Minute)
		return fmt.Sprint(ok), err
	}
	unlock := func(ctx context.Context, c *actionhero.Cache) (string, error) {
		ok, err := c.Unlock(ctx, "k")
		return fmt.Sprint(ok), err
	}
	save := func(ctx context.Context, c *actionhero.Cache) (string, error) {
		return refusal(c.Save(ctx, "k", 1, time.Minute))
	}
	load := func(ctx context.Context, c *actionhero.Cache) (string, error) {
		item, err := c.Load(ctx, "k", &actionhero.LoadOptions{Extend: time.Minute})
		if err != nil {
			return refusal(err)
		}
		return string(item.Value), nil
	}
	destroy := func(ctx context.Context, c *actionhero.Cache) (string, error) {
		ok, err := c.Destroy(ctx, "k")
		if err != nil {
			return refusal(err)
		}
		return fmt.Sprint(ok), nil
	}
	item := map[string]string{"item": stampedItem}
	lockedItem := map[string]string{"item": stampedItem, "lock": "other"}
	toLock, toSave := []any{"me", 60, 1, 0}, []any{"me", "1", 60000, 1}
	return []scriptCase{
		{"check/free", &script.CacheCheckScript, both[:1], nil, nil, check, "true "},
		{"check/other", &script.CacheCheckScript, both[:1], nil, other, check, "false other"},
		{"lock/free", &script.CacheLockScript, both[:1], toLock, nil, lock, "true"},
		{"lock/healed", &script.CacheLockScript, both[:1], toLock, mine, lock, "true"},
		{"lock/other", &script.CacheLockScript, both[:1], toLock, other, lock, "false"},
		{"unlock/mine", &script.CacheUnlockScript, both[:1], []any{"me", 0}, mine, unlock, "true"},
		{"unlock/other", &script.CacheUnlockScript, both[:1], []any{"me", 0}, other, unlock, "false"},
		{"unlock/free", &script.CacheUnlockScript, both[:1], []any{"me", 0}, nil, unlock, "true"},
		{"save/new", &script.CacheSaveScript, both, toSave, nil, save, ""},
		{"save/plain", &script.CacheSaveScript, both, []any{"me", "1", 0, 0}, item, save, ""},
		{"save/locked", &script.CacheSaveScript, both, toSave, lockedItem, save, "locked"},
		{"load/stamped", &script.CacheLoadScript, both, []any{"me", 60000}, item, load, `{"a":1}`},
		{"load/plain", &script.CacheLoadScript, both, []any{"me", 60000},
			map[string]string{"item": `{"value":2,"createdAt":1}`, "lock": "me"}, load, `2`},
		{"load/locked", &script.CacheLoadScript, both, []any{"me", 60000}, lockedItem, load, "locked"},
		{"load/missing", &script.CacheLoadScript, both, []any{"me", 60000}, nil, load, "missing"},
		{"destroy/there", &script.CacheDestroyScript, both, []any{"me"}, item, destroy, "true"},
		{"destroy/locked", &script.CacheDestroyScript, both, []any{"me"}, lockedItem, destroy, "locked"},
	}
}

// refusal turns an expected refusal into a result.
func refusal(err error) (string, error) {
	switch {
	case errors.Is(err, actionhero.ErrLocked):
		return "locked", nil
	case errors.Is(err, actionhero.ErrNotFound):
		return "missing", nil
	}
	return "", err
}

// names returns the keys of a namespace.
func names(ns string) map[string]string {
	return map[string]string{"lock": ns + ":lock:k", "item": ns + ":cache:k"}
}

func (sc *scriptCase) set(t *testing.T, c *redis.Client, ns string) {
	t.Helper()
	for which, value := range sc.prepare {
		require.NoError(t, c.Set(t.Context(), names(ns)[which], value, 0).Err())
	}
}

// contents returns the keys of a namespace with their values, and whether they expire.
func contents(t *testing.T, c *redis.Client, ns string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for which, key := range names(ns) {
		kind := c.Type(t.Context(), key).Val()
		value := kind
		if kind == "string" {
			value = times13.ReplaceAllString(c.Get(t.Context(), key).Val(), "T")
		}
		all[which] = fmt.Sprint(value, " ends ", c.PTTL(t.Context(), key).Val() > 0)
	}
	return all
}

var times13 = regexp.MustCompile(`\d{13}`)

func TestOutcomesOfEveryScript(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	for _, sc := range scriptCases() {
		ns := luatomictest.Namespace(t)
		sc.set(t, client, ns)
		got, err := sc.run(t.Context(), newCache(client, ns, "me", nil))
		require.NoError(t, err, sc.name)
		require.Equal(t, sc.want, got, sc.name)
	}
}

func TestWrongTypeAtEveryKeyOfEveryScript(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	for _, sc := range scriptCases() {
		for i, which := range sc.keys {
			if sc.script.Keys[i].Type == "" {
				continue // Destroy deletes a key of any type
			}
			other, locked := sc.prepare["lock"]
			if which == "item" && (locked && other != "me" || sc.script.Name == "cache_save") {
				continue // not read: it is locked, or replaced by SET
			}
			ns := luatomictest.Namespace(t)
			sc.set(t, client, ns)
			key := names(ns)[which]
			require.NoError(t, client.Del(t.Context(), key).Err())
			require.NoError(t, client.RPush(t.Context(), key, "x").Err())
			before := contents(t, client, ns)
			_, err := sc.run(t.Context(), newCache(client, ns, "me", nil))
			require.ErrorIs(t, err, lua.ErrWrongType, "%s %s", sc.name, which)
			require.Equal(t, before, contents(t, client, ns), "%s %s", sc.name, which)
		}
	}
}

// A script declared safe returns its reply; one declared never runs once and returns ErrOutcomeUnknown.
func TestLostRepliesOfEveryScript(t *testing.T) {
	t.Parallel()
	for _, sc := range scriptCases() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			direct, clean := luatomictest.Client(t), luatomictest.Namespace(t)
			sc.set(t, direct, clean)
			_, err := sc.run(t.Context(), newCache(direct, clean, "me", nil))
			require.NoError(t, err)
			for lost := range 5 {
				ns := luatomictest.Namespace(t)
				sc.set(t, direct, ns)
				proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
				opts, err := redis.ParseURL(proxy.URL())
				require.NoError(t, err)
				c := redis.NewClient(opts)
				sent := lab.Sent(sc.script)
				proxy.Drop(lost, sent)
				got, err := sc.run(t.Context(), newCache(c, ns, "me", nil))
				require.NoError(t, c.Close())
				if lost > 0 && sc.script.Retry == lua.RetryNever {
					require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
					require.Equal(t, 1, proxy.Executed(sent))
				} else {
					require.NoError(t, err)
					require.Equal(t, sc.want, got)
					require.Equal(t, lost+1, proxy.Executed(sent))
				}
				require.Equal(t, contents(t, direct, clean), contents(t, direct, ns))
			}
		})
	}
}

// failpoint makes the n-th write of the script that follows fail.
const failpoint = `local redis = (function(real) local n, at = 0, %d ` +
	`local writes = {set=1, del=1, pexpire=1, expire=1, setnx=1} ` +
	`return {error_reply = real.error_reply, pcall = real.pcall, call = function(c, ...) ` +
	`if writes[string.lower(c)] then n = n + 1 if n == at then error('ERR failpoint ' .. c) end end return real.call(c, ...) end} end)(redis) `

// Each script declares all-or-nothing: an error at any of its writes changes nothing, and the retry succeeds.
func TestFailpointsOfEveryScript(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	points := map[string]int{}
	for _, sc := range scriptCases() {
		require.True(t, sc.script.ReadOnly || strings.Contains(*sc.script.Source, "---@contract all-or-nothing"))
		clean := luatomictest.Namespace(t)
		eval := func(ns string, at int) error {
			keys := make([]string, len(sc.keys))
			for i, which := range sc.keys {
				keys[i] = names(ns)[which]
			}
			return client.Eval(t.Context(), fmt.Sprintf(failpoint, at)+lab.Text(client, sc.script), keys,
				sc.args...).Err()
		}
		sc.set(t, client, clean)
		require.NoError(t, eval(clean, 0), sc.name)
		for at := 1; ; at++ {
			ns := luatomictest.Namespace(t)
			sc.set(t, client, ns)
			before := contents(t, client, ns)
			err := eval(ns, at)
			if err == nil {
				require.Equal(t, contents(t, client, clean), contents(t, client, ns))
				break
			}
			require.ErrorContains(t, err, "failpoint")
			points[sc.script.Name]++
			require.Equal(t, before, contents(t, client, ns), sc.name)
			require.NoError(t, eval(ns, 0))
			require.Equal(t, contents(t, client, clean), contents(t, client, ns), sc.name)
		}
	}
	require.Equal(t, []string{"cache_destroy", "cache_load", "cache_lock", "cache_save", "cache_unlock"},
		slices.Sorted(maps.Keys(points)))
}

func TestScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := server.Client()
	ctx, stop := context.WithCancel(t.Context())
	var flusher, callers sync.WaitGroup
	flusher.Go(func() {
		for ctx.Err() == nil {
			_ = client.ScriptFlush(ctx).Err()
		}
	})
	for w := range 4 {
		callers.Go(func() {
			c := actionhero.NewCache(client, nil)
			key := fmt.Sprint("k", w)
			for i := range 100 {
				ok, err := c.Lock(t.Context(), key, time.Minute)
				if !ok || err != nil {
					t.Errorf("lock: %v %v", ok, err)
					return
				}
				if err := c.Save(t.Context(), key, i, 0); err != nil {
					t.Error(err)
				}
				var n int
				item, err := c.Load(t.Context(), key, nil)
				if err != nil || item.Decode(&n) != nil || n != i {
					t.Errorf("load: %v %v", item, err)
				}
				if ok, err := c.Unlock(t.Context(), key); !ok || err != nil {
					t.Errorf("unlock: %v %v", ok, err)
				}
			}
		})
	}
	callers.Wait()
	stop()
	flusher.Wait()
}
