package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
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
	}{"": {&gen.LockTryScript, 3}, "t": {&gen.LockAcquireAllScript, 2}} {
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
