package actionhero_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// The commands of a process of ActionHero 12 to 17 that checked the lock before Go took it: SETNX fails, which it
// ignores, and it enters with an end of its own. Go's Unlock then leaves the key alone, and Go does not enter.
func TestGoDoesNotEnterBesideAProcessThatIgnoresSETNX(t *testing.T) {
	t.Parallel()
	ctx, client := t.Context(), luatomictest.Client(t)
	for _, relock := range []actionhero.Relock{actionhero.Deny, actionhero.Refresh} {
		for _, seconds := range []int{3, 10, 60} {
			ns := luatomictest.Namespace(t) + strconv.Itoa(seconds)
			c := newCache(client, ns, "go", &actionhero.CacheOptions{Relock: relock})
			key := ns + ":lock:k"
			require.Empty(t, client.Get(ctx, key).Val(), "the process finds it free")
			require.True(t, lockOK(t, c, 10*time.Second))
			require.False(t, client.SetNX(ctx, key, "node", 0).Val())
			began := time.Now()
			require.True(t, client.Expire(ctx, key, time.Duration(seconds)*time.Second).Val())

			for range 2 {
				ok, err := c.Unlock(ctx, "k")
				require.NoError(t, err)
				require.False(t, ok, "the key is not free")
				require.False(t, lockOK(t, c, 10*time.Second), "a process is inside")
			}
			require.Equal(t, "go", client.Get(ctx, key).Val())
			require.LessOrEqual(t, client.PTTL(ctx, key).Val(), time.Duration(seconds)*time.Second,
				"its end is the process' own")
			if seconds > 3 {
				continue
			}
			luatomictest.Eventually(t, time.Minute, "Go enters after that end", func() bool {
				return lockOK(t, c, 10*time.Second)
			})
			require.GreaterOrEqual(t, time.Since(began), 2900*time.Millisecond)
			ok, err := c.Unlock(ctx, "k")
			require.NoError(t, err)
			require.True(t, ok, "nobody has changed this one")
		}
	}
}

// A lock that was refreshed, extended or taken again is unlocked: the Cache knows its new end.
func TestUnlockAfterARefresh(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	c := newCache(client, ns, "go", &actionhero.CacheOptions{Relock: actionhero.Refresh})
	for _, ttl := range []time.Duration{time.Second, time.Minute, time.Second} {
		require.True(t, lockOK(t, c, ttl))
	}
	ok, err := c.Unlock(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, client.Exists(t.Context(), ns+":lock:k").Val())
	require.True(t, lockOK(t, newCache(client, ns, "other", nil), time.Minute))
}

// A call that was not sent has changed nothing: the Cache still knows the end that another process has changed since.
func TestALockThatWasNotSentForgetsNoEnd(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	c := newCache(client, ns, "go", nil)
	require.True(t, lockOK(t, c, time.Minute))
	require.True(t, client.Expire(t.Context(), ns+":lock:k", time.Hour).Val())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Lock(ended, "k", time.Minute)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	ok, err := c.Unlock(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, ok)
}

// A lock of this name without an end is unlocked, though its end is not the one that Go set: no process waits for it.
func TestUnlockOfALockWhoseEndWasRemoved(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	c := newCache(client, ns, "go", nil)
	require.True(t, lockOK(t, c, time.Minute))
	require.True(t, client.Persist(ctx, ns+":lock:k").Val())
	ok, err := c.Unlock(ctx, "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, client.Exists(ctx, ns+":lock:k").Val())
}

// A lock that nobody holds has no remaining time.
func TestCheckOfAFreeLock(t *testing.T) {
	t.Parallel()
	client, ns := luatomictest.Client(t), luatomictest.Namespace(t)
	r, err := script.CacheCheck(t.Context(), client, script.CacheCheckParams{Lock: ns + ":lock:k"})
	require.NoError(t, err)
	require.Equal(t, script.CacheCheckResult{}, r)
}

// The end of a lock is known to the millisecond: one that ends a millisecond earlier or later was changed by another
// process, and no pause of the server between its clocks looks like that.
func TestEndOfALockIsExact(t *testing.T) {
	t.Parallel()
	ctx, client := t.Context(), luatomictest.Client(t)
	lock := luatomictest.Namespace(t) + "lock:k"
	taken, err := script.CacheLock(ctx, client, script.CacheLockParams{Lock: lock, Name: "me", TTL: time.Minute,
		Refresh: true})
	require.NoError(t, err)
	require.Equal(t, taken.Ends, client.Do(ctx, "PEXPIRETIME", lock).Val())
	for _, known := range []int64{taken.Ends - 1, taken.Ends + 1} {
		again, err := script.CacheLock(ctx, client,
			script.CacheLockParams{Lock: lock, Name: "me", TTL: time.Minute, Refresh: true, Known: known})
		require.NoError(t, err)
		require.Equal(t, script.CacheLockStateShared, again.State)
		ended, err := script.CacheUnlock(ctx, client, script.CacheUnlockParams{Lock: lock, Name: "me", Known: known})
		require.NoError(t, err)
		require.Equal(t, script.CacheUnlockStateShared, ended.State)
	}
	ended, err := script.CacheUnlock(ctx, client, script.CacheUnlockParams{Lock: lock, Name: "me", Known: taken.Ends})
	require.NoError(t, err)
	require.Equal(t, script.CacheUnlockStateUnlocked, ended.State)
}
