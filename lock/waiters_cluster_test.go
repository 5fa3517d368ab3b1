package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A slot that moves takes the queues of its locks along, but not the subscriptions of the waiters: the next release
// finds no subscriber and removes their entries. The waiters are notified of that, and do not wait until the lease would
// have ended.
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
			func(ctx context.Context, l *lock.Locker) (*lock.Lease, error) { return l.Semaphore("x", 1).Acquire(ctx, 1) },
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
