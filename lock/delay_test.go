package lock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// The loss of a lease cuts short what its holder has sent. The release that follows, which Do makes, must not let the
// next holder in before that has arrived.
func TestAReleaseAfterTheLeaseLeavesTheLockDelay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 100 * time.Millisecond, LockDelay: time.Hour})
	other := lab.Locker(t, luatomictest.Client(t), nil)
	closed := func(name string) {
		t.Helper()
		_, err := other.Try(ctx, name)
		var held *lock.HeldError
		require.ErrorAs(t, err, &held)
		require.Greater(t, held.Remaining, 50*time.Minute)
	}
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	luatomictest.Eventually(t, 30*time.Second, "the end", func() bool { return lease.Err() != nil })
	require.ErrorIs(t, lease.Release(ctx), lock.ErrLost)
	closed(name)
	require.ErrorIs(t, lease.Release(ctx), lock.ErrLost)

	lease, err = l.With(lock.Options{TTL: time.Hour, MaxHold: time.Millisecond}).Try(ctx, name+"max")
	require.NoError(t, err)
	luatomictest.Eventually(t, 30*time.Second, "the end", func() bool { return lease.Err() != nil })
	require.ErrorIs(t, lease.Release(ctx), lock.ErrMaxHold)
	next, err := other.Try(ctx, name+"max")
	require.NoError(t, err, "MaxHold ends no lease at the server")
	require.NoError(t, next.Release(ctx))

	require.ErrorIs(t, l.Do(ctx, name+"do", func(ctx context.Context, _ *lock.Lease) error {
		require.NoError(t, l.Close()) // renews no lease
		<-ctx.Done()
		return nil
	}), lock.ErrLost)
	closed(name + "do")
}

// A lease that AcquireAll loses before it has the other locks has protected no work: no LockDelay follows it.
func TestAcquireAllLeavesNoLockDelayBehind(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	a, b := space+"a", space+"b"
	const delay = time.Hour
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	held, err := other.Try(ctx, a)
	require.NoError(t, err)
	c, calls := luatomictest.Client(t), atomic.Int64{}
	c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.TryScript), Do: func(run func() error) error {
		if calls.Add(1) == 3 { // that of b, after the wait for a
			if err := c.PExpire(ctx, held.Key(), delay).Err(); err != nil { // the lease of a is over
				return err
			}
		}
		return run()
	}})
	l := lab.Locker(t, lua.Direct(c), &lock.Options{TTL: time.Minute, LockDelay: delay})
	got := acquireAllLater(ctx, l, a, b)
	lab.WaitFor(t, other, a, 1)
	require.NoError(t, held.Release(ctx))
	all := lab.Soon(t, 20*time.Second, "the locks", got)
	require.NoError(t, all.err)
	require.NoError(t, all.leases.Release(ctx))
	require.Greater(t, calls.Load(), int64(3))
}

// The acquire was sent twice, so that its loss makes a late copy of it void. That frees no lock: the lease and the
// LockDelay end as they do without a copy.
func TestALossMakesLateCopiesVoidAndLeavesTheLockDelay(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	c, late := lab.HoldUp(t, &lockscript.TryScript, 0)
	lease, err := lab.Locker(t, c, &lock.Options{TTL: 3 * time.Second, LockDelay: time.Hour}).Try(ctx, name)
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	direct := luatomictest.Client(t)
	require.NoError(t, direct.PExpire(ctx, lease.Key(), time.Hour).Err()) // the lease is over
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrLost)
	luatomictest.Eventually(t, 20*time.Second, "it is made void, in the background", func() bool {
		return strings.Contains(direct.Get(ctx, lease.Key()).Val(), ","+lease.Token())
	})
	late.Arrive(t)
	_, err = lab.Locker(t, direct, nil).Try(ctx, name)
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.Greater(t, held.Remaining, 50*time.Minute)
}
