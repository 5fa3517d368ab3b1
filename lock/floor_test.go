package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
)

// Every fence that a Locker got is known to it, however it got the lock.
func TestEveryFenceOfALockerIsItsFloor(t *testing.T) {
	t.Parallel()
	for how, acquire := range map[string]func(*testing.T, *lock.Locker, func(time.Duration)) *lock.Lease{
		"AcquireAll in one script": func(t *testing.T, l *lock.Locker, _ func(time.Duration)) *lock.Lease {
			all, err := l.AcquireAll(t.Context(), "x", "y")
			require.NoError(t, err)
			return all[0]
		},
		"handed over": func(t *testing.T, l *lock.Locker, step func(time.Duration)) *lock.Lease {
			first, err := l.Try(t.Context(), "x")
			require.NoError(t, err)
			got := lab.AcquireLater(t.Context(), l, "x")
			lab.WaitFor(t, l, "x", 1)
			step(time.Second)
			require.NoError(t, first.Release(t.Context()))
			next := lab.Soon(t, 20*time.Second, "the lock", got)
			require.NoError(t, next.Err)
			return next.Lease
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server, now := miniredis.RunT(t), time.Now()
			step := func(d time.Duration) {
				now = now.Add(d)
				server.SetTime(now)
			}
			step(0)
			c := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer c.Close()
			l := lab.Locker(t, c, &lock.Options{Tag: "t", TTL: time.Minute})
			last := acquire(t, l, step)
			require.NoError(t, last.Release(t.Context()))
			step(-time.Hour)
			next, err := l.Try(t.Context(), "x")
			require.NoError(t, err)
			require.Greater(t, next.Fence(), last.Fence())
		})
	}
}

// A fence may be ahead of the clock of its server: that was set back, or the Locker knows a greater one of another
// server. It stays known, after the release too, until the clock has passed it, so that the next holder's is greater
// although its Locker knows nothing.
func TestAFenceAheadOfTheClockStaysKnown(t *testing.T) {
	t.Parallel()
	for how, acquire := range map[string]func(*testing.T, *lock.Locker) *lock.Lease{
		"Try": func(t *testing.T, l *lock.Locker) *lock.Lease { return must(t)(l.Try(t.Context(), "x")) },
		"Acquire": func(t *testing.T, l *lock.Locker) *lock.Lease {
			return must(t)(l.Acquire(t.Context(), "x"))
		},
		"AcquireAll": func(t *testing.T, l *lock.Locker) *lock.Lease {
			all, err := l.AcquireAll(t.Context(), "x", "y")
			require.NoError(t, err)
			require.NoError(t, all[1].Release(t.Context()))
			return all[0]
		},
		"Steal": func(t *testing.T, l *lock.Locker) *lock.Lease { return must(t)(l.Steal(t.Context(), "x")) },
		"after a release": func(t *testing.T, l *lock.Locker) *lock.Lease { // whose record is stored still
			require.NoError(t, must(t)(l.Try(t.Context(), "x")).Release(t.Context()))
			return must(t)(l.Try(t.Context(), "x"))
		},
		"after an extension": func(t *testing.T, l *lock.Locker) *lock.Lease {
			lease := must(t)(l.Try(t.Context(), "x"))
			require.NoError(t, lease.Extend(t.Context()))
			return lease
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server, now := miniredis.RunT(t), time.Now()
			c := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer c.Close()
			knows, knowsNothing := lab.Locker(t, c, &lock.Options{Tag: "t"}), lab.Locker(t, c, &lock.Options{Tag: "t"})
			server.SetTime(now.Add(10 * time.Millisecond))
			require.NoError(t, must(t)(knows.Try(t.Context(), "other")).Release(t.Context()))
			server.SetTime(now)
			first := acquire(t, knows)
			require.NoError(t, first.Release(t.Context()))
			next := must(t)(knowsNothing.Try(t.Context(), "x"))
			require.Greater(t, next.Fence(), first.Fence())
			require.NoError(t, next.Release(t.Context()))
			server.FastForward(11 * time.Millisecond)
			require.Empty(t, server.Keys(), "the clock has passed the fences")
		})
	}
}

// must returns the lease of a call that must not fail.
func must(t *testing.T) func(*lock.Lease, error) *lock.Lease {
	return func(l *lock.Lease, err error) *lock.Lease {
		t.Helper()
		require.NoError(t, err)
		return l
	}
}

// Where a clock was set back far, a released lock stays for a minute.
func TestAFenceFarAheadOfTheClockStaysForAMinute(t *testing.T) {
	t.Parallel()
	server, now := miniredis.RunT(t), time.Now()
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	l := lab.Locker(t, c, nil)
	server.SetTime(now.Add(time.Hour))
	require.NoError(t, must(t)(l.Try(t.Context(), "x")).Release(t.Context()))
	server.SetTime(now)
	require.NoError(t, must(t)(l.Try(t.Context(), "x")).Release(t.Context()))
	require.Equal(t, time.Minute, server.TTL("lock:{x}"))
}

// The clocks of the servers of a Ring differ by some ms, and a Locker sends the fences of one to another.
func TestFencesGrowOnServersWhoseClocksDiffer(t *testing.T) {
	t.Parallel()
	ahead, behind, now := miniredis.RunT(t), miniredis.RunT(t), time.Now()
	at := func(d time.Duration) {
		ahead.SetTime(now.Add(d + 10*time.Millisecond))
		behind.SetTime(now.Add(d))
	}
	process := func() *lock.Locker {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"ahead": ahead.Addr(),
			"behind": behind.Addr()}})
		t.Cleanup(func() { _ = ring.Close() })
		return lab.Locker(t, ring, nil)
	}
	at(0)
	first, second := process(), process()
	name := ""
	for i := 0; !ahead.Exists("lock:{" + name + "}"); i++ { // until it is on the server that is ahead
		name = fmt.Sprint("a", i)
		lease := must(t)(first.Try(t.Context(), name))
		defer lease.Release(t.Context())
	}
	for i := 0; ; i++ {
		at(time.Duration(2*i) * time.Millisecond)
		name = fmt.Sprint("b", i)
		was := must(t)(first.Try(t.Context(), name))
		there := behind.Exists("lock:{" + name + "}")
		require.NoError(t, was.Release(t.Context()))
		if there {
			at(time.Duration(2*i+1) * time.Millisecond)
			require.Greater(t, must(t)(second.Try(t.Context(), name)).Fence(), was.Fence())
			return
		}
	}
}

// An operator takes a lock away, by a Locker that knows nothing of the holder's Afterlife. The record stays for that,
// so the next fence is greater although the clock is set back.
func TestALockThatIsTakenAwayKeepsItsAfterlife(t *testing.T) {
	t.Parallel()
	server, now := miniredis.RunT(t), time.Now()
	step := func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(now)
		server.FastForward(max(d, 0))
	}
	step(0)
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	last, err := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Afterlife: time.Hour}).Try(t.Context(), "x")
	require.NoError(t, err)
	done, err := lab.Locker(t, c, nil).ForceRelease(t.Context(), "x", last.Fence())
	require.NoError(t, err)
	require.True(t, done)
	step(30 * time.Minute)
	step(-40 * time.Minute)
	next, err := lab.Locker(t, c, nil).Try(t.Context(), "x")
	require.NoError(t, err)
	require.Greater(t, next.Fence(), last.Fence())
}

// A waiter that leaves does not prolong the lease of the holder, whatever Afterlife the waiter's Locker has.
func TestAWithdrawalDoesNotProlongTheLeaseOfTheHolder(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease := must(t)(l.Try(t.Context(), name))
	ctx, cancel := context.WithCancel(t.Context())
	got := lab.AcquireLater(ctx, l.With(lock.Options{Afterlife: time.Hour}), name)
	lab.WaitFor(t, l, name, 1)
	cancel()
	require.Error(t, lab.Soon(t, 20*time.Second, "the end of Acquire", got).Err)
	lab.WaitFor(t, l, name, 0)
	require.Less(t, c.PTTL(t.Context(), lease.Key()).Val(), 2*time.Minute)
}

// An afterlife that no Locker writes takes no right from an operator: the record stays for as long as can be said.
func TestALockWithACraftedAfterlifeCanBeTakenAway(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, nil)
	const life, after = "4000000000000000000", "2000000000000000000" // both in ms, and Redis takes them
	key := "lock:{" + name + "}"
	require.NoError(t, c.Do(t.Context(), "SET", key, "2 7 0 - p.1 0 "+after+" note", "PX", life).Err())
	done, err := l.ForceRelease(t.Context(), name, 0)
	require.NoError(t, err)
	require.True(t, done)
	require.Greater(t, c.PTTL(t.Context(), key).Val(), 24*time.Hour)
	_, err = l.Try(t.Context(), name)
	require.NoError(t, err)
}
