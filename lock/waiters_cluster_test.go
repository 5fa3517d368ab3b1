package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A slot that moves takes the queues of its locks along, but not the subscriptions of the waiters: the next release
// finds no subscriber and removes their entries. The waiters are notified of that, and do not wait until the lease
// would have ended.
func TestWaitersFollowASlotThatMoves(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	l := lab.Locker(t, cluster.Client(), &lock.Options{TTL: 5 * time.Minute})
	others := lab.Locker(t, cluster.Client(), &lock.Options{TTL: 5 * time.Minute})
	for kind, of := range map[string]struct {
		acquire func(context.Context, *lock.Locker) (*lock.Lease, error)
		wait    func(n int)
	}{
		"lock": {
			func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) { return l.Acquire(ctx, "x") },
			func(n int) { lab.WaitFor(t, l, "x", n) },
		},
		"permit": {
			func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) {
				return l.Semaphore("x", 1).Acquire(ctx, 1)
			},
			func(n int) { waitForPermits(t, l.Semaphore("x", 1), n) },
		},
		"rw": {
			func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) { return l.RW("x").Acquire(ctx) },
			func(n int) { waitForRW(t, l.RW("x"), n) },
		},
	} {
		held := lab.Must(of.acquire(ctx, l))
		got := make(chan lab.Acquired, 2)
		for range cap(got) {
			go func() {
				lease, err := of.acquire(ctx, others)
				got <- lab.Acquired{Lease: lease, Err: err}
			}()
		}
		of.wait(cap(got))
		slot, err := cluster.Slot(ctx, "{x}")
		require.NoError(t, err)
		from, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
		require.NoError(t, err)
		require.NoError(t, m.Finish(ctx))

		require.NoError(t, held.Release(ctx))
		for range cap(got) {
			next := lab.Soon(t, 10*time.Second, kind+" after its slot has moved", got)
			require.NoError(t, next.Err)
			require.NoError(t, next.Lease.Release(ctx))
		}
	}
}

// While a slot migrates, its server refuses a key that a script has emptied: the last waiter leaves an empty queue. A
// release hands over all the same, or frees the lock where all waiters are dead, and its caller has no error.
func TestQueuesThatBecomeEmptyWhileTheirSlotMigrates(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := lock.Options{TTL: 5 * time.Minute, Tag: "x"}
	l, alive := lab.Locker(t, cluster.Client(), &opts), lab.Locker(t, cluster.Client(), &opts)
	client := cluster.Client()
	dead := lab.Locker(t, client, &opts)
	brief := l.With(lock.Options{TTL: time.Second})
	held := []*lock.Lease{
		lab.Must(l.Try(ctx, "lock")), lab.Must(l.Semaphore("permit", 1).Try(ctx, 1)),
		lab.Must(l.Try(ctx, "dead")), lab.Must(l.Semaphore("dead", 1).Try(ctx, 1)),
	}
	lab.Must(brief.Semaphore("over", 1).Try(ctx, 1))
	lab.Must(brief.Semaphore("wide", 2).Try(ctx, 1))
	lab.Must(l.Semaphore("wide", 2).Try(ctx, 1)) // and stays
	gotLock := lab.AcquireLater(ctx, alive, "lock")
	gotPermit := acquiring(ctx, alive.Semaphore("permit", 1), 1)
	lab.AcquireLater(ctx, dead, "dead")
	acquiring(ctx, dead.Semaphore("dead", 1), 1)
	acquiring(ctx, dead.Semaphore("over", 1), 1)
	acquiring(ctx, dead.Semaphore("wide", 2), 1)
	lab.WaitFor(t, l, "lock", 1)
	waitForPermits(t, l.Semaphore("permit", 1), 1)
	lab.WaitFor(t, l, "dead", 1)
	waitForPermits(t, l.Semaphore("dead", 1), 1)
	waitForPermits(t, l.Semaphore("over", 1), 1)
	waitForPermits(t, l.Semaphore("wide", 2), 1)
	require.NoError(t, client.Close())
	luatomictest.Eventually(t, 20*time.Second, "the lease is over", func() bool {
		return lab.Must(l.Semaphore("over", 1).Info(ctx)).Used == 0 &&
			lab.Must(l.Semaphore("wide", 2).Info(ctx)).Used == 1
	})

	slot, err := cluster.Slot(ctx, "{x}")
	require.NoError(t, err)
	from, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
	require.NoError(t, err)
	for _, lease := range held {
		require.NoError(t, lease.Release(ctx), lease.Name())
	}
	_, err = l.Semaphore("over", 1).Try(ctx, 1)
	require.NoError(t, err)
	_, err = l.Semaphore("wide", 2).Try(ctx, 2)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, m.Finish(ctx))
	require.NoError(t, lab.Soon(t, 10*time.Second, "the lock", gotLock).Err)
	require.NoError(t, lab.Soon(t, 10*time.Second, "the permit", gotPermit).Err)
	_, err = l.Try(ctx, "dead")
	require.NoError(t, err)
}
