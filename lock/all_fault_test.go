package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// acquireAllLater starts an AcquireAll that reports on the channel.
func acquireAllLater(ctx context.Context, l *lock.Locker, names ...string) <-chan allAcquired {
	got := make(chan allAcquired, 1)
	go func() {
		leases, err := l.AcquireAll(ctx, names...)
		got <- allAcquired{leases, err}
	}()
	return got
}

type allAcquired struct {
	leases lock.Leases
	err    error
}

// The lock that AcquireAll waits for may be all that it wants, and the replicas have that.
func TestAcquireAllWaitsForItsOnlyLockWithReplicas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, _ := replicas(t)
	l := lab.Locker(t, first.Client(), &lock.Options{Replicas: 1, ReplicaTimeout: 20 * time.Second, TTL: time.Minute})
	held, err := l.Try(ctx, "x")
	require.NoError(t, err)
	got := acquireAllLater(ctx, l, "x")
	lab.WaitFor(t, l, "x", 1)
	require.NoError(t, held.Release(ctx))
	all := lab.Soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, all.err)
	require.NoError(t, all.leases.Release(ctx))
}

// The lease of the lock that AcquireAll waited for can end before it has the others: it waits again.
func TestAcquireAllOutlivesTheLockItWaitedFor(t *testing.T) {
	t.Parallel()
	for tag, attempt := range map[string]struct {
		script *lua.Script
		second int64 // the number of the call after the wait
	}{"": {&lockscript.TryScript, 3}, "t": {&lockscript.AcquireAllScript, 2}} {
		t.Run("tag "+tag, func(t *testing.T) {
			t.Parallel()
			ctx, space := t.Context(), luatomictest.Namespace(t)
			a, b := space+"a", space+"b"
			opts := &lock.Options{TTL: time.Minute}
			if tag != "" {
				opts.Tag = space
			}
			other := lab.Locker(t, luatomictest.Client(t), opts)
			held, err := other.Try(ctx, a)
			require.NoError(t, err)
			c, calls := luatomictest.Client(t), atomic.Int64{}
			c.AddHook(&lab.Around{Sha: lab.Digest(attempt.script), Do: func(run func() error) error {
				if calls.Add(1) == attempt.second {
					_, err := other.ForceRelease(ctx, a, 0)
					if err = errors.Join(err, c.Del(ctx, held.Key()).Err()); err != nil {
						return err
					}
				}
				return run()
			}})
			l := lab.Locker(t, lua.Direct(c), opts)
			got := acquireAllLater(ctx, l, a, b)
			lab.WaitFor(t, other, a, 1)
			require.NoError(t, held.Release(ctx))
			all := lab.Soon(t, 20*time.Second, "the locks", got)
			require.NoError(t, all.err)
			require.NoError(t, all.leases.Err())
			require.NoError(t, all.leases.Release(ctx))
			require.Greater(t, calls.Load(), attempt.second)
		})
	}
}

// The calls of several leases share a round trip, and that one of them was repeated says nothing of the others: a lease
// that was lost is reported though the release of another one had to be sent again.
func TestALeaseThatWasLostIsReportedBesideARepeatedRelease(t *testing.T) {
	t.Parallel()
	a, b := luatomictest.StartServer(t), luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, b.URL())
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr(), "b": proxy.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	l := lab.Locker(t, ring, &lock.Options{TTL: time.Minute})
	names := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"} // each shard has some
	leases, err := l.AcquireAll(t.Context(), names...)
	require.NoError(t, err)
	require.NoError(t, leases.Release(t.Context())) // the scripts are loaded
	leases, err = l.AcquireAll(t.Context(), names...)
	require.NoError(t, err)
	onA, err := a.Client().Keys(t.Context(), "lock:*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, onA)
	require.Less(t, len(onA), len(names))
	require.NoError(t, a.Client().Del(t.Context(), onA[0]).Err())
	name := strings.Trim(strings.TrimPrefix(onA[0], "lock:"), "{}")
	_, err = lab.Locker(t, a.Client(), &lock.Options{TTL: time.Minute}).Try(t.Context(), name)
	require.NoError(t, err)
	before := proxy.Stats().Lost
	proxy.Drop(1, lab.Sent(&lockscript.ReleaseScript))
	require.ErrorIs(t, leases.Release(t.Context()), lock.ErrLost)
	require.Equal(t, before+1, proxy.Stats().Lost)
}

// The lease of the lock that AcquireAll waited for ends each time before the others are there, and another process has
// it by then: the rounds follow each other at intervals of Poll, and not as fast as the server answers.
func TestAcquireAllWhoseFirstLockKeepsEndingIsPaced(t *testing.T) {
	t.Parallel()
	space := luatomictest.Namespace(t)
	opts := &lock.Options{TTL: 2 * time.Millisecond, Poll: 200 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, calls := luatomictest.Client(t), atomic.Int64{}
	other := lab.Locker(t, luatomictest.Client(t), opts)
	c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.TryScript), Do: func(run func() error) error {
		calls.Add(1)
		_, _ = other.Try(t.Context(), space+"a")
		err := run()
		time.Sleep(3 * time.Millisecond) // longer than the lease
		return err
	}})
	_, _ = lab.Locker(t, lua.Direct(c), opts).AcquireAll(ctx, space+"a", space+"b") // on a slow machine it may succeed
	require.Less(t, calls.Load(), int64(80), "within a second")
}
