package actionhero_test

import (
	"context"
	"encoding/json"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// newCache returns a cache under prefixes of the namespace; opts may be nil.
func newCache(client lua.Client, ns, name string, opts *actionhero.CacheOptions) *actionhero.Cache {
	var o actionhero.CacheOptions
	if opts != nil {
		o = *opts
	}
	o.LockName, o.LockPrefix, o.CachePrefix = name, ns+":lock:", ns+":cache:"
	return actionhero.NewCache(client, &o)
}

func lockOK(t *testing.T, c *actionhero.Cache, ttl time.Duration) bool {
	t.Helper()
	ok, err := c.Lock(t.Context(), "k", ttl)
	require.NoError(t, err)
	return ok
}

func TestLockIsAStringWithTheNameAndWholeSeconds(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for _, c := range []struct{ ttl, seconds time.Duration }{
		{0, 10 * time.Second}, {time.Millisecond, time.Second}, {time.Second, time.Second},
		{1001 * time.Millisecond, 2 * time.Second},
	} {
		var began time.Time
		var left time.Duration
		var holder string
		luatomictest.Eventually(t, time.Minute, "all is asked before the lock's end", func() bool {
			require.NoError(t, client.Del(ctx, ns+":lock:k").Err())
			began = time.Now()
			require.True(t, lockOK(t, newCache(client, ns, "me", nil), c.ttl))
			left, holder = client.PTTL(ctx, ns+":lock:k").Val(), client.Get(ctx, ns+":lock:k").Val()
			return time.Since(began) < c.seconds
		})
		require.Equal(t, "me", holder)
		require.LessOrEqual(t, left, c.seconds)
		require.GreaterOrEqual(t, left+time.Since(began), c.seconds-actionhero.EndMargin-5*time.Millisecond)
	}
}

func TestLockOfAnother(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	mine := newCache(client, ns, "me", &actionhero.CacheOptions{Relock: actionhero.Refresh})
	other := newCache(client, ns, "other", nil)
	require.True(t, lockOK(t, other, 20*time.Second))
	require.False(t, lockOK(t, mine, time.Second))
	ok, err := mine.Unlock(ctx, "k")
	require.NoError(t, err)
	require.False(t, ok)
	check, err := mine.CheckLock(ctx, "k", 0)
	require.NoError(t, err)
	require.False(t, check.OK)
	require.Equal(t, "other", check.Holder)
	require.Greater(t, check.Remaining, 10*time.Second, "the attempt did not touch it")

	check, err = other.CheckLock(ctx, "k", 0)
	require.NoError(t, err)
	require.True(t, check.OK, "its own lock lets it pass")
	ok, err = other.Unlock(ctx, "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, client.Exists(ctx, ns+":lock:k").Val())
	ok, err = other.Unlock(ctx, "k")
	require.NoError(t, err)
	require.True(t, ok, "as in ActionHero: a key that is not locked is free")
}

func TestRelock(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	deny := newCache(client, ns, "me", nil)
	refresh := newCache(client, ns, "me", &actionhero.CacheOptions{Relock: actionhero.Refresh})
	require.True(t, lockOK(t, deny, 5*time.Second))
	require.False(t, lockOK(t, deny, 50*time.Second))
	require.LessOrEqual(t, client.PTTL(ctx, ns+":lock:k").Val(), 5*time.Second)
	require.True(t, lockOK(t, refresh, 50*time.Second))
	require.Greater(t, client.PTTL(ctx, ns+":lock:k").Val(), 40*time.Second)
}

// A process that died between SETNX and EXPIRE.
func TestLockWithoutAnEnd(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, client.Set(ctx, ns+":lock:k", "me", 0).Err())
	other := newCache(client, ns, "other", nil)
	require.False(t, lockOK(t, other, time.Second))
	check, err := other.CheckLock(ctx, "k", 0)
	require.NoError(t, err)
	require.Equal(t, actionhero.Check{Holder: "me", Remaining: -1}, check)
	require.ErrorContains(t, other.Save(ctx, "k", 1, 0), "without an end")
	require.Equal(t, time.Duration(-1), client.PTTL(ctx, ns+":lock:k").Val(), "another owner's is not touched")

	require.True(t, lockOK(t, newCache(client, ns, "me", nil), 5*time.Second), "its own is acquired, also with Deny")
	require.Greater(t, client.PTTL(ctx, ns+":lock:k").Val(), time.Second)
}

func TestCheckLockWaitsNoLongerThanTheLock(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	through := redis.NewClient(opts)
	defer through.Close()
	// LockRetry is so long that only the remaining time of the lock ends the wait in time.
	mine := newCache(through, ns, "me", &actionhero.CacheOptions{LockRetry: time.Hour})
	require.NoError(t, client.Set(ctx, ns+":lock:k", "other", 300*time.Millisecond).Err())
	began := time.Now()
	check, err := mine.CheckLock(ctx, "k", time.Minute)
	require.NoError(t, err)
	require.True(t, check.OK)
	require.Empty(t, check.Holder)
	require.Less(t, time.Since(began), 30*time.Second)
	require.LessOrEqual(t, proxy.Executed(luatomictest.Command("EVALSHA_RO")), 4)
}

func TestCheckLockEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	require.True(t, lockOK(t, newCache(client, ns, "other", nil), time.Minute))
	mine := newCache(client, ns, "me", nil)
	began := time.Now()
	check, err := mine.CheckLock(t.Context(), "k", 250*time.Millisecond)
	require.NoError(t, err)
	require.False(t, check.OK)
	require.GreaterOrEqual(t, time.Since(began), 250*time.Millisecond)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = mine.CheckLock(ctx, "k", time.Hour)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// text returns the bytes of an item.
func text(t *testing.T, client *redis.Client, ns string) string {
	t.Helper()
	s, err := client.Get(t.Context(), ns+":cache:k").Result()
	require.NoError(t, err)
	return s
}

func TestItemsInBothLayouts(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	stamped := newCache(client, ns, "me", nil)
	plain := newCache(client, ns, "me", &actionhero.CacheOptions{Layout: actionhero.Plain})
	ends := func() time.Duration { return client.PTTL(ctx, ns+":cache:k").Val() }

	const ttl = 15_001 * time.Millisecond
	require.NoError(t, stamped.Save(ctx, "k", map[string]string{"a": "<b>"}, ttl))
	require.Regexp(t, `^{"value":{"a":"<b>"},"expireTimestamp":\d{13},"createdAt":\d{13},"readAt":null}$`,
		text(t, client, ns))
	first, err := stamped.Load(ctx, "k", nil)
	require.NoError(t, err)
	require.Equal(t, `{"a":"<b>"}`, string(first.Value))
	require.Zero(t, first.ReadAt)
	require.Equal(t, ttl, first.ExpireAt.Sub(first.CreatedAt))
	require.Equal(t, first.CreatedAt.Add(16*time.Second).UnixMilli(),
		client.PExpireTime(ctx, ns+":cache:k").Val().Milliseconds(), "whole seconds, and the load changes no TTL")
	require.Regexp(t, `"readAt":\d{13}}$`, text(t, client, ns))
	second, err := stamped.Load(ctx, "k", &actionhero.LoadOptions{Extend: 90 * time.Second})
	require.NoError(t, err)
	require.False(t, second.ReadAt.IsZero())
	require.Equal(t, first.CreatedAt, second.CreatedAt)
	require.Greater(t, second.ExpireAt.Sub(first.ExpireAt), 70*time.Second)
	require.Greater(t, ends(), 80*time.Second)

	require.NoError(t, stamped.Save(ctx, "k", 1, 0))
	require.Regexp(t, `^{"value":1,"expireTimestamp":null,"createdAt":\d{13},"readAt":null}$`, text(t, client, ns))
	require.Equal(t, time.Duration(-1), ends())
	item, err := stamped.Load(ctx, "k", &actionhero.LoadOptions{Extend: time.Minute})
	require.NoError(t, err)
	require.Zero(t, item.ExpireAt)
	require.Equal(t, time.Duration(-1), ends(), "an item without a TTL keeps none")

	require.NoError(t, plain.Save(ctx, "k", json.RawMessage(`[1.0, 2]`), ttl))
	require.Regexp(t, `^{"value":\[1.0, 2\],"createdAt":\d{13}}$`, text(t, client, ns))
	require.LessOrEqual(t, ends(), ttl)
	item, err = stamped.Load(ctx, "k", &actionhero.LoadOptions{Extend: time.Minute})
	require.NoError(t, err)
	require.Equal(t, `[1.0, 2]`, string(item.Value))
	require.Greater(t, ends(), 50*time.Second)
	require.NoError(t, plain.Save(ctx, "k", nil, 0))
	item, err = plain.Load(ctx, "k", nil)
	require.NoError(t, err)
	require.Equal(t, "null", string(item.Value))
	require.Equal(t, time.Duration(-1), ends())
}

// Items that other processes wrote.
func TestItemsOfOthers(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	c := newCache(client, ns, "me", nil)
	const inner = `{"value":1,"expireTimestamp":1,"createdAt":1,"readAt":null}`
	for _, v := range []struct {
		was, now string // T is a present time
		value    string
		err      error
	}{
		{inner, inner, "", actionhero.ErrExpired},
		{`{"value":1,"expireTimestamp":32503680000000.5,"createdAt":1,"readAt":7}`,
			`{"value":1,"expireTimestamp":32503680000000.5,"createdAt":1,"readAt":T}`, "1", nil},
		// The item's own times are last; fields of that name inside the value are not times.
		{`{"value":` + inner + `,"expireTimestamp":null,"createdAt":1,"readAt":null}`,
			`{"value":` + inner + `,"expireTimestamp":null,"createdAt":1,"readAt":T}`, inner, nil},
		{`{"value":` + inner + `,"createdAt":1}`, `{"value":` + inner + `,"createdAt":1}`, inner, nil},
		{`{"expireTimestamp":null,"createdAt":1,"readAt":null}`,
			`{"expireTimestamp":null,"createdAt":1,"readAt":T}`, "", nil},
		{`{"createdAt":1}`, `{"createdAt":1}`, "", nil},
		{`null`, `null`, "", actionhero.ErrMalformed},
		{`no JSON`, `no JSON`, "", actionhero.ErrMalformed},
		{`[1]`, `[1]`, "", actionhero.ErrMalformed},
		{``, ``, "", actionhero.ErrMalformed},
	} {
		require.NoError(t, client.Set(ctx, ns+":cache:k", v.was, time.Hour).Err())
		item, err := c.Load(ctx, "k", nil)
		if v.err != nil {
			require.ErrorIs(t, err, v.err, v.was)
		} else {
			require.NoError(t, err, v.was)
			require.Equal(t, v.value, string(item.Value), v.was)
		}
		require.Regexp(t, "^"+pattern(v.now)+"$", text(t, client, ns))
		require.Greater(t, client.PTTL(ctx, ns+":cache:k").Val(), time.Minute)
		require.LessOrEqual(t, client.PTTL(ctx, ns+":cache:k").Val(), time.Hour, "its TTL is unchanged")
	}
	require.NoError(t, client.Del(ctx, ns+":cache:k").Err())
	_, err := c.Load(ctx, "k", nil)
	require.ErrorIs(t, err, actionhero.ErrNotFound)
	there, err := c.Destroy(ctx, "k")
	require.NoError(t, err)
	require.False(t, there)
}

// A process that died between SET and EXPIRE.
func TestLoadGivesAnItemTheEndThatItHasInside(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	at := time.Now().Add(time.Hour).UnixMilli()
	require.NoError(t, client.Set(ctx, ns+":cache:k",
		`{"value":1,"expireTimestamp":`+itoa(at)+`,"createdAt":1,"readAt":null}`, 0).Err())
	_, err := newCache(client, ns, "me", nil).Load(ctx, "k", nil)
	require.NoError(t, err)
	require.Equal(t, at+1, client.Do(ctx, "PEXPIRETIME", ns+":cache:k").Val())
}

func TestItemsOfALockedKeyAreOutOfReach(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	mine, other := newCache(client, ns, "me", nil), newCache(client, ns, "other", nil)
	require.NoError(t, other.Save(ctx, "k", "theirs", 0))
	before := text(t, client, ns)
	require.True(t, lockOK(t, other, time.Minute))
	var locked *actionhero.LockedError
	_, err := mine.Load(ctx, "k", &actionhero.LoadOptions{Retry: 150 * time.Millisecond})
	require.ErrorAs(t, err, &locked)
	require.Equal(t, "other", locked.Holder)
	require.Greater(t, locked.Remaining, 30*time.Second)
	require.ErrorIs(t, mine.Save(ctx, "k", "mine", 0), actionhero.ErrLocked)
	_, err = mine.Destroy(ctx, "k")
	require.ErrorIs(t, err, actionhero.ErrLocked)
	require.Equal(t, before, text(t, client, ns))

	// The holder itself can proceed.
	require.NoError(t, other.Save(ctx, "k", "again", 0))
	there, err := other.Destroy(ctx, "k")
	require.NoError(t, err)
	require.True(t, there)
}

func TestWhatCannotBeWrittenIsNotSent(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	c := newCache(client, ns, "me", nil)
	require.ErrorContains(t, c.Save(ctx, "k", json.RawMessage(`{"a":1`), 0), "not JSON")
	require.ErrorContains(t, c.Save(ctx, "k", json.RawMessage(``), 0), "not JSON")
	for _, v := range []any{"a\xffb", []string{"\xff"}, map[string]int{"\xff": 1}, json.RawMessage("\"\xff\"")} {
		require.ErrorIs(t, c.Save(ctx, "k", v, 0), actionhero.ErrEncoding)
	}
	require.Error(t, c.Save(ctx, "k", make(chan int), 0))
	require.ErrorIs(t, c.Save(ctx, "k", make([]byte, 1<<20), 0), lua.ErrTooLarge)
	require.ErrorIs(t, c.Save(ctx, "k", 1, -time.Second), lua.ErrOutOfRange)
	require.ErrorIs(t, c.Save(ctx, "k", 1, math.MaxInt64), lua.ErrOutOfRange)
	_, err := c.Lock(ctx, "k", math.MaxInt64-time.Second)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	_, err = c.Load(ctx, "k", &actionhero.LoadOptions{Extend: -1})
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	require.Zero(t, client.Exists(ctx, ns+":cache:k").Val())
	require.NoError(t, c.Save(ctx, "k", json.RawMessage(nil), 0))
	require.Contains(t, text(t, client, ns), `"value":null`)
}

// Lock and item are in two slots, unless the key has a tag.
func TestCacheOnACluster(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartCluster(t).Client()
	c := actionhero.NewCache(client, nil)
	ok, err := c.Lock(t.Context(), "plain", time.Second)
	require.NoError(t, err)
	require.True(t, ok)
	err = c.Save(t.Context(), "plain", 1, 0)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "CROSSSLOT")
	require.NoError(t, c.Save(t.Context(), "{user:1}", 1, 0))
	_, err = c.Load(t.Context(), "{user:1}", nil)
	require.NoError(t, err)
}

func TestLocksKeepOut(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	const each = 20
	var inside, taken atomic.Int64
	var callers sync.WaitGroup
	for w := range 8 {
		c := newCache(client, ns, "w"+itoa(int64(w)), nil)
		callers.Go(func() {
			for n := 0; n < each; {
				ok, err := c.Lock(t.Context(), "k", time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					runtime.Gosched()
					continue
				}
				n++
				taken.Add(1)
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				if ok, err := c.Unlock(t.Context(), "k"); err != nil || !ok {
					t.Errorf("unlock: %v %v", ok, err)
				}
			}
		})
	}
	callers.Wait()
	require.EqualValues(t, 8*each, taken.Load())
}

// ActionHero up to 28 writes the item back with each load, and so overwrites a value that was saved in between. A
// script does not.
func TestLoadBringsNothingBack(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	c := newCache(client, ns, "me", nil)
	require.NoError(t, c.Save(t.Context(), "k", 0, time.Hour))
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := 0; !done.Load(); {
				var n int
				item, err := c.Load(t.Context(), "k", nil)
				if err != nil || item.Decode(&n) != nil || n < last {
					t.Errorf("%d after %d: %v", n, last, err)
					return
				}
				last = n
			}
		})
	}
	for i := range 500 {
		require.NoError(t, c.Save(t.Context(), "k", i, time.Hour))
	}
	done.Store(true)
	readers.Wait()
	item, err := c.Load(t.Context(), "k", nil)
	require.NoError(t, err)
	require.Equal(t, "499", string(item.Value))
}
