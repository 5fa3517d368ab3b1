//go:build interop

package actionhero_test

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
)

func (c *cluster) cache(name string) *actionhero.Cache {
	return actionhero.NewCache(c.client, &actionhero.CacheOptions{LockName: name, Layout: c.layout, Relock: c.relock})
}

// One after the other, so that no two check at the same time: the holder keeps all others out, in both languages.
func locks(t *testing.T, c *cluster) {
	cache, ctx, key := c.cache("go"), t.Context(), "turns"
	for range 50 {
		ok, err := cache.Lock(ctx, key, 59500*time.Millisecond)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, false, c.a.ask(request{"op": "lock", "key": key, "ttl": 60000}).OK)
		require.Equal(t, false, c.b.ask(request{"op": "unlock", "key": key}).OK)
		check, err := cache.CheckLock(ctx, key, 0)
		require.NoError(t, err)
		require.Equal(t, "go", check.Holder, "another owner's unlock deletes nothing")
		require.Greater(t, check.Remaining, 20*time.Second)
		require.LessOrEqual(t, check.Remaining, time.Minute)
		ok, err = cache.Unlock(ctx, key)
		require.NoError(t, err)
		require.True(t, ok)

		require.Equal(t, true, c.a.ask(request{"op": "lock", "key": key, "ttl": 60000}).OK)
		ok, err = cache.Lock(ctx, key, time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		ok, err = cache.Unlock(ctx, key)
		require.NoError(t, err)
		require.False(t, ok)
		check, err = cache.CheckLock(ctx, key, 0)
		require.NoError(t, err)
		require.False(t, check.OK)
		require.Equal(t, "node-A", check.Holder)
		require.Equal(t, true, c.a.ask(request{"op": "unlock", "key": key}).OK)
	}
	// Callers of the same name share the lock.
	same := c.cache("node-A")
	ok, err := same.Lock(ctx, key, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, c.relock == actionhero.Refresh, c.a.ask(request{"op": "lock", "key": key, "ttl": 60000}).OK,
		"relock: refresh up to 17, deny from 18 on")
	require.Equal(t, true, c.a.ask(request{"op": "unlock", "key": key}).OK)
}

// lockWindow waits for a lock on both sides.
func lockWindow(t *testing.T, c *cluster) {
	cache, ctx, key := c.cache("go"), t.Context(), "window"
	require.Equal(t, true, c.a.ask(request{"op": "lock", "key": key, "ttl": 1000}).OK)
	began := time.Now()
	check, err := cache.CheckLock(ctx, key, 20*time.Second)
	require.NoError(t, err)
	require.True(t, check.OK)
	require.Less(t, time.Since(began), 15*time.Second)

	ok, err := cache.Lock(ctx, key, 3*time.Second)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, false, c.a.ask(request{"op": "check", "key": key, "retry": nil}).OK)
	require.Equal(t, true, c.a.ask(request{"op": "check", "key": key, "retry": 20000}).OK)
}

// contention is two processes and two Go callers that compete for one lock. ActionHero from 18 on checks the result
// of its SETNX, and never two hold the lock. 14 does not: another caller may lock between its GET and its SETNX, and
// both proceed.
func contention(t *testing.T, c *cluster) {
	const rounds = 60
	ctx := t.Context()
	ttl := 20 * time.Second
	if c.era == actionhero.Callback {
		ttl = time.Second // Go leaves a lock whose end a process has changed until that end
	}
	want := request{"op": "contend", "key": "busy", "witness": "inside", "rounds": rounds, "ttl": ttl.Milliseconds()}
	c.a.Send(want)
	c.b.Send(want)
	type result struct {
		overlaps int
		err      error
	}
	results := make(chan result, 2)
	for _, name := range []string{"go-1", "go-2"} {
		go func() {
			var r result
			cache := c.cache(name)
			for n := 0; n < rounds && r.err == nil; {
				var ok bool
				if ok, r.err = cache.Lock(ctx, "busy", ttl); !ok {
					time.Sleep(time.Millisecond)
					continue
				}
				inside, _ := c.client.Incr(ctx, "inside").Result()
				if inside != 1 {
					r.overlaps++
				}
				time.Sleep(time.Millisecond)
				c.client.Decr(ctx, "inside")
				_, r.err = cache.Unlock(ctx, "busy")
				n++
			}
			results <- r
		}()
	}
	overlaps := 0
	for range 2 {
		r := <-results
		require.NoError(t, r.err)
		overlaps += r.overlaps
	}
	for _, n := range []*node{c.a, c.b} {
		var a answer
		require.NoError(t, json.Unmarshal(n.Line(2*time.Minute), &a))
		require.Empty(t, a.Error)
		overlaps += a.Overlaps
	}
	t.Logf("%d of %d rounds had two holders", overlaps, 4*rounds)
	if c.era != actionhero.Callback {
		require.Zero(t, overlaps)
	}
}

var times = regexp.MustCompile(`\d{13}`)

// items have the same bytes from both sides, except the times, and each side reads the other's.
func items(t *testing.T, c *cluster) {
	cache, ctx := c.cache("go"), t.Context()
	for _, value := range []string{
		`"text <&> ü"`, `{"b":[],"a":{},"n":1.5}`, `[1,null,"x"]`, `0`, `null`,
		`{"expireTimestamp":null,"createdAt":1,"readAt":null}`,
		`"\"expireTimestamp\":1,\"createdAt\":1,\"readAt\":1}"`,
	} {
		for _, ttl := range []time.Duration{0, 60_500 * time.Millisecond} {
			save := request{"op": "save", "key": "by-node", "value": json.RawMessage(value)}
			if ttl > 0 {
				save["ttl"] = ttl.Milliseconds()
			}
			require.Equal(t, true, c.a.ask(save).OK)
			require.NoError(t, cache.Save(ctx, "by-go", json.RawMessage(value), ttl))
			theirs, ours := c.raw(t, "by-node"), c.raw(t, "by-go")
			require.Equal(t, times.ReplaceAllString(theirs, "T"), times.ReplaceAllString(ours, "T"))
			c.sameEnd(t, ttl)

			item, err := cache.Load(ctx, "by-node", nil)
			require.NoError(t, err)
			require.Equal(t, value, string(item.Value))
			require.WithinDuration(t, time.Now(), item.CreatedAt, time.Minute)
			var got struct {
				Value      json.RawMessage
				CreatedAt  int64
				LastReadAt *int64
			}
			require.NoError(t, json.Unmarshal(c.a.ask(request{"op": "load", "key": "by-go"}).Item, &got))
			if value != "null" {
				require.Equal(t, value, string(got.Value))
			}
			require.InDelta(t, time.Now().UnixMilli(), got.CreatedAt, 60000)
			// Each side has read the items of the other side.
			theirs, ours = c.raw(t, "by-node"), c.raw(t, "by-go")
			require.Equal(t, times.ReplaceAllString(theirs, "T"), times.ReplaceAllString(ours, "T"))
			require.Equal(t, true, c.a.ask(request{"op": "destroy", "key": "by-go"}).OK)
			there, err := cache.Destroy(ctx, "by-node")
			require.NoError(t, err)
			require.True(t, there)
		}
	}
	_, err := cache.Load(ctx, "by-node", nil)
	require.ErrorIs(t, err, actionhero.ErrNotFound)
}

func (c *cluster) raw(t *testing.T, key string) string {
	t.Helper()
	text, err := c.client.Get(t.Context(), "actionhero:cache:"+key).Result()
	require.NoError(t, err)
	return text
}

// sameEnd compares the TTLs of both from their creation on: whole seconds up to 28, milliseconds from 29 on.
// ActionHero sets the end some time after it has made the item.
func (c *cluster) sameEnd(t *testing.T, ttl time.Duration) {
	t.Helper()
	lives := func(key string) int64 {
		var item struct{ CreatedAt int64 }
		require.NoError(t, json.Unmarshal([]byte(c.raw(t, key)), &item))
		end, err := c.client.Do(t.Context(), "PEXPIRETIME", "actionhero:cache:"+key).Int64()
		require.NoError(t, err)
		if end < 0 {
			return end
		}
		return end - item.CreatedAt
	}
	if ttl == 0 {
		require.EqualValues(t, -1, lives("by-node"))
		require.EqualValues(t, -1, lives("by-go"))
		return
	}
	want := int64(60_500)
	if c.layout == actionhero.Stamped {
		want = 61_000
	}
	require.Equal(t, want, lives("by-go"))
	require.InDelta(t, want+5000, lives("by-node"), 5001)
}

// lockedItems checks that the other side cannot use an item until its lock is deleted.
func lockedItems(t *testing.T, c *cluster) {
	cache, ctx := c.cache("go"), t.Context()
	require.NoError(t, cache.Save(ctx, "guarded", "mine", 0))
	ok, err := cache.Lock(ctx, "guarded", 20*time.Second)
	require.NoError(t, err)
	require.True(t, ok)
	for _, r := range []request{
		{"op": "save", "key": "guarded", "value": "theirs"}, {"op": "load", "key": "guarded"},
		{"op": "destroy", "key": "guarded"},
	} {
		require.Regexp(t, "(?i)object ?locked", c.a.try(r).Error)
	}
	item, err := cache.Load(ctx, "guarded", nil)
	require.NoError(t, err)
	require.Equal(t, `"mine"`, string(item.Value))
	_, err = cache.Unlock(ctx, "guarded")
	require.NoError(t, err)

	require.Equal(t, true, c.a.ask(request{"op": "lock", "key": "guarded", "ttl": 5000}).OK)
	var locked *actionhero.LockedError
	require.ErrorAs(t, cache.Save(ctx, "guarded", "late", 0), &locked)
	require.Equal(t, "node-A", locked.Holder)
	_, err = cache.Destroy(ctx, "guarded")
	require.ErrorIs(t, err, actionhero.ErrLocked)
	_, err = cache.Load(ctx, "guarded", nil)
	require.ErrorIs(t, err, actionhero.ErrLocked)
	item, err = cache.Load(ctx, "guarded", &actionhero.LoadOptions{Retry: 20 * time.Second})
	require.NoError(t, err)
	require.Equal(t, `"mine"`, string(item.Value))
}
