package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A later Keep ends with its own parent and with the lease, and not with the first
// one's parent.
func TestKeepOutlivesTheFirstOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	parent, cancel := context.WithCancel(ctx)
	before, first := lease.Keep(parent), lease.Keep(ctx)
	cancel()
	<-before.Done()
	after := lease.Keep(ctx)
	for range 10 {
		require.NoError(t, lease.Extend(ctx))
	}
	for _, kept := range []context.Context{first, after} {
		require.NoError(t, kept.Err())
	}
	require.NoError(t, lease.Release(ctx))
	for _, kept := range []context.Context{first, after} {
		<-kept.Done()
		require.ErrorIs(t, context.Cause(kept), lock.ErrReleased)
	}
	require.ErrorIs(t, context.Cause(before), context.Canceled)
}

// A lease that was noticed to be over stays so, although a renewal was on its way and
// the server had it longer.
func TestExtendOfALeaseThatEndsMeanwhileSaysSo(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := lab.Locker(t, c, &lock.Options{TTL: 300 * time.Millisecond})
	lease, err := l.Try(ctx, luatomictest.Namespace(t))
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	c.AddHook(&lab.Around{Sha: gen.LockExtendScript.SHA, Do: func(run func() error) error {
		err := run()
		<-kept.Done()
		return err
	}})
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrLost)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
}

// Who releases the lock inside Do, or resigns inside Lead, has lost nothing.
func TestReleaseInsideDoIsNoLoss(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	require.NoError(t, l.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) error {
		require.NoError(t, lease.Release(ctx))
		<-ctx.Done()
		return nil
	}))
	require.NoError(t, l.Election(name).Lead(ctx, "v", func(ctx context.Context, lead *lock.Leadership) error {
		return lead.Resign(ctx)
	}))
	err := l.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) error {
		_, err := l.ForceRelease(ctx, name, lease.Fence())
		return err
	})
	require.ErrorIs(t, err, lock.ErrLost)
}

// A permit that was taken away is not released: its holder learns of it, and a second
// Revoke, or one of a permit that was given back, takes nothing.
func TestReleaseOfARevokedPermitSaysSo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, _ := newSemaphore(t, 1, &lock.Options{TTL: time.Minute})
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	was, err := s.Revoke(ctx, lease.Token())
	require.NoError(t, err)
	require.True(t, was)
	other, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.ErrorIs(t, lease.Release(ctx), lock.ErrLost, "another has it")
	require.NoError(t, other.Release(ctx))
	was, err = s.Revoke(ctx, other.Token())
	require.NoError(t, err)
	require.False(t, was, "it was given back")
	info, err := s.Info(ctx)
	require.NoError(t, err)
	require.Zero(t, info.Used)
}

// However many permits were given back lately, a dead holder's is free at once.
func TestDeadPermitIsFreeBehindManyThatWereGivenBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 1, &lock.Options{TTL: time.Minute})
	dead, err := s.Try(ctx, 1)
	require.NoError(t, err)
	key, now := "sem:{"+name+"}", float64(c.Time(ctx).Val().UnixMilli())
	gone := []redis.Z{{Score: now - 1, Member: dead.Token()}}
	for i := range 1000 {
		gone = append(gone, redis.Z{Score: 20_000 - now, Member: "p." + string(rune('A'+i)) + ":1"})
	}
	require.NoError(t, c.ZAdd(ctx, key, gone...).Err())
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
}

// Several leases are given back at the same time: with a server that does not answer that
// takes as long as one does.
func TestLeasesAreReleasedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	c := luatomictest.Client(t)
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	all, err := l.AcquireAll(ctx, space+"a", space+"b", space+"c")
	require.NoError(t, err)
	var came sync.WaitGroup
	came.Add(len(all))
	together := make(chan struct{})
	go func() {
		came.Wait()
		close(together)
	}()
	c.AddHook(&lab.Around{Sha: gen.LockReleaseScript.SHA, Do: func(run func() error) error {
		select {
		case <-together:
			return run() // sent again, with the script
		default:
		}
		came.Done()
		select {
		case <-together:
			return run()
		case <-time.After(20 * time.Second):
			came.Add(1)
			return context.DeadlineExceeded
		}
	}})
	require.NoError(t, all.Release(ctx))
}

// Who observes with options that cannot be is told so, and does not look without a pause.
func TestObserveWithBadOptions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: -1})
	var got []error
	for _, err := range l.Election(name).Observe(ctx) {
		got = append(got, err)
	}
	require.Len(t, got, 1)
	require.ErrorIs(t, got[0], lua.ErrOutOfRange)
}
