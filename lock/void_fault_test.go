package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A token that is void stays so for 10 s: also where the record that has it would end before, with the short lease of
// the lock. The lease itself ends when it did.
func TestVoidTokenOutlivesAShortLease(t *testing.T) {
	t.Parallel()
	const short = 5 * time.Second // of the lease; the afterlife of the record is a second
	extend := func(t *testing.T, k lockKeys, ttl time.Duration) {
		t.Helper()
		r, err := lockscript.Extend(t.Context(), k.c, lockscript.ExtendParams{Lock: k.lock, Owner: "me", TTL: ttl})
		require.NoError(t, err)
		require.Equal(t, lockscript.ExtendResultExtended, r)
	}
	leave := func(t *testing.T, k lockKeys, owner string) {
		t.Helper()
		_, err := lockscript.Leave(t.Context(), k.c, lockscript.LeaveParams{Lock: k.lock, Queue: k.queue, Owner: owner})
		require.NoError(t, err)
	}
	tests := map[string]func(t *testing.T) lockKeys{
		"leave": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.HeldByMe, short)
			leave(t, k, "late.1")
			return k
		},
		"then extend": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.HeldByMe, time.Minute)
			leave(t, k, "late.1")
			extend(t, k, short)
			return k
		},
		"then confirm by extend": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.GrantedMe, time.Minute)
			leave(t, k, "late.1")
			extend(t, k, short)
			return k
		},
		"then confirm by acquire": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.GrantedMe, time.Minute)
			leave(t, k, "late.1")
			r, err := lockscript.Acquire(t.Context(), k.c, lockscript.AcquireParams{
				Lock: k.lock, Queue: k.queue, Own: scriptcase.Own("me"), TTL: short,
			})
			require.NoError(t, err)
			require.True(t, r.Acquired)
			return k
		},
		"then acquire": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.HeldByOther, 0)
			leave(t, k, "late.1")
			r, err := lockscript.Acquire(t.Context(), k.c, lockscript.AcquireParams{
				Lock: k.lock, Queue: k.queue, Own: scriptcase.Own("me"), TTL: short,
			})
			require.NoError(t, err)
			require.True(t, r.Acquired)
			return k
		},
		"then acquire all": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.HeldByOther, 0)
			leave(t, k, "late.1")
			r, err := lockscript.AcquireAll(t.Context(), k.c, lockscript.AcquireAllParams{
				Locks: []string{k.lock}, Own: scriptcase.Own("me"), Life: short + time.Second + time.Millisecond,
			})
			require.NoError(t, err)
			require.Len(t, r.Fences, 1)
			return k
		},
		"then hand over": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.WantedOther, time.Minute, "5000 me.1 0 1000 note")
			leave(t, k, "late.1")
			channel := k.lock + ":c:"
			sub := k.c.Subscribe(t.Context(), channel+"me")
			t.Cleanup(func() { _ = sub.Close() })
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			_, err = lockscript.Release(t.Context(), k.c, lockscript.ReleaseParams{
				Lock: k.lock, Queue: k.queue, Owner: "other", Channel: channel,
			})
			require.NoError(t, err)
			return k
		},
		"force": func(t *testing.T) lockKeys {
			k := newLockKeys(t, scriptcase.HeldByOther, time.Minute)
			r, err := lockscript.Force(t.Context(), k.c, lockscript.ForceParams{
				Lock: k.lock, Queue: k.queue, Owner: "me", Own: scriptcase.Own("me"),
				Life: short + time.Second + time.Millisecond,
			})
			require.NoError(t, err)
			require.True(t, r.Done)
			return k
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := prepare(t)
			left := k.c.PTTL(t.Context(), k.lock).Val()
			require.Greater(t, left, 8*time.Second, "the void token is kept: %s", k.text())
			require.LessOrEqual(t, left, 12*time.Second)
			info, err := lockscript.Info(t.Context(), k.c, lockscript.InfoParams{Lock: k.lock, Queue: k.queue})
			require.NoError(t, err)
			require.True(t, info.Held)
			require.LessOrEqual(t, info.Remaining, short+2*time.Millisecond, "the lease is no longer than before")
			require.Greater(t, info.Remaining, short-4*time.Second)
		})
	}
}

// A steal that was withdrawn and arrives afterwards takes the lock from no holder.
func TestStealAfterItsWithdrawalDoesNothing(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.HeldByOther, time.Minute)
	_, err := lockscript.Leave(t.Context(), k.c, lockscript.LeaveParams{Lock: k.lock, Queue: k.queue, Owner: "thief.1"})
	require.NoError(t, err)
	before := k.text()
	r := k.force(lockscript.ForceParams{Owner: "thief.1", Channel: k.lock + ":c:"})
	require.False(t, r.Done)
	require.Zero(t, r.Fence)
	require.Equal(t, before, k.text())
}

// The old holder learns that it was revoked for 10 s, however short the lease of the new one is.
func TestRevocationOutlivesTheLeaseOfTheThief(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	thief := lab.Locker(t, luatomictest.Client(t),
		&lock.Options{TTL: 50 * time.Millisecond, Afterlife: time.Millisecond})
	_, err = thief.Steal(ctx, name)
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "the thief's lease is over", func() bool {
		info, err := l.Info(ctx, name)
		require.NoError(t, err)
		return !info.Held
	})
	require.Greater(t, c.PTTL(ctx, lease.Key()).Val(), 2*time.Second)
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrRevoked)
}

// A repeat of a withdrawal, some ms later, leaves the record of the lock as it is: it does not add those ms to it.
func TestRepeatOfAWithdrawalLeavesTheRecord(t *testing.T) {
	t.Parallel()
	k := newLockKeys(t, scriptcase.HeldByMe, time.Minute)
	leave := func() string {
		_, err := lockscript.Leave(t.Context(), k.c, lockscript.LeaveParams{Lock: k.lock, Queue: k.queue,
			Owner: "late.1"})
		require.NoError(t, err)
		return k.c.Get(t.Context(), k.lock).Val()
	}
	void := func(record string) string { return strings.Fields(record)[3] }
	for { // a repeat in the same second, as the void tokens end after whole seconds
		first := leave()
		ttl := k.c.PTTL(t.Context(), k.lock).Val()
		luatomictest.Eventually(t, 20*time.Second, "a ms is over", func() bool {
			return k.c.PTTL(t.Context(), k.lock).Val() < ttl
		})
		if again := leave(); void(again) == void(first) {
			require.Equal(t, first, again)
			return
		}
	}
}
