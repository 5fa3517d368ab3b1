package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A holder that dies gives its permit back when its own lease is over, although the
// others go on; whoever waits looks then.
func TestSemaphoreDeadHolderGivesBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, l, name, _ := newSemaphore(t, 2, &lock.Options{TTL: time.Minute})
	live, err := s.Try(ctx, 1)
	require.NoError(t, err)
	dead, err := l.With(lock.Options{TTL: 300 * time.Millisecond}).Semaphore(name, 2).Try(ctx, 1)
	require.NoError(t, err)
	begun := time.Now()
	next, err := s.Acquire(ctx, 1)
	require.NoError(t, err)
	require.Less(t, time.Since(begun), 20*time.Second, "its own lease, not the minute of the other")
	require.ErrorIs(t, dead.Err(), lock.ErrLost)
	require.ErrorIs(t, dead.Extend(ctx), lock.ErrLost)
	require.ErrorIs(t, dead.Release(ctx), lock.ErrLost)
	require.ErrorIs(t, dead.Release(ctx), lock.ErrLost, "and again")
	info, err := s.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, info.Used)
	require.NoError(t, live.Release(ctx))
	require.NoError(t, next.Release(ctx))
}

// A lease that is over by the clock is not extended, although nobody came since.
func TestSemaphoreExpiredPermitIsLost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, c := newSemaphore(t, 1, &lock.Options{TTL: time.Millisecond})
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	end := time.UnixMicro(lease.Fence()).Add(2 * time.Millisecond)
	luatomictest.Eventually(t, 20*time.Second, "the lease ends", func() bool { return c.Time(ctx).Val().After(end) })
	state, err := gen.SemExtend(ctx, c, gen.SemExtendParams{Permits: lease.Key(), Owner: lease.Token(), TTL: time.Second})
	require.NoError(t, err)
	require.Equal(t, gen.SemExtendResultExpired, state)
	next, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence())
}

func TestSemaphoreKeepRenews(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, _ := newSemaphore(t, 2, &lock.Options{TTL: 3 * time.Second, Note: "n"})
	lease, err := s.Try(ctx, 2)
	require.NoError(t, err)
	first := lease.Deadline()
	kept := lease.Keep(ctx)
	luatomictest.Eventually(t, 30*time.Second, "the lease outlives its TTL", func() bool { return time.Now().After(first.Add(200 * time.Millisecond)) })
	_, err = s.Try(ctx, 1)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.NoError(t, kept.Err())
	require.NoError(t, lease.Release(ctx))
}

// Whoever keeps a permit is told at once that it was taken away, long before its next
// renewal.
func TestSemaphoreRevokeTells(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, c := newSemaphore(t, 2, &lock.Options{TTL: time.Hour})
	lease, err := s.Try(ctx, 2)
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	process, _, _ := strings.Cut(lease.Token(), ".")
	luatomictest.Eventually(t, 20*time.Second, "it listens", func() bool {
		inbox := "lock:c:" + process
		return c.PubSubNumSub(ctx, inbox).Val()[inbox] == 1
	})
	next := acquiring(ctx, s, 1)
	waitForPermits(t, s, 1)
	was, err := s.Revoke(ctx, lease.Token())
	require.NoError(t, err)
	require.True(t, was)
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
	require.NoError(t, permit(t, next).Release(ctx))
	require.ErrorIs(t, lease.Release(ctx), lock.ErrLost)
	was, err = s.Revoke(ctx, "nobody.1:1")
	require.NoError(t, err)
	require.False(t, was)
}

// An acquire that comes after the call that gave back what it might have got takes
// nothing: the guard is the mark that the release leaves.
func TestSemaphoreLateAcquireTakesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 1, nil)
	const token = "me.1:1"
	k, q := "sem:{"+name+"}", "semq:{"+name+"}"
	state, err := gen.SemRelease(ctx, c, gen.SemReleaseParams{Permits: k, Queue: q, Owner: token})
	require.NoError(t, err)
	require.Equal(t, gen.SemReleaseResultExpired, state)
	require.Positive(t, c.PTTL(ctx, k).Val())
	r, err := gen.SemAcquire(ctx, c, gen.SemAcquireParams{Permits: k, Queue: q, Owner: token, Limit: 1, TTL: time.Minute, Entry: "me.1:1 1000 0 c\n"})
	require.NoError(t, err)
	require.False(t, r.Acquired)
	require.Zero(t, c.Exists(ctx, q).Val())
	state, err = gen.SemRelease(ctx, c, gen.SemReleaseParams{Permits: k, Queue: q, Owner: token})
	require.NoError(t, err)
	require.Equal(t, gen.SemReleaseResultExpired, state, "it was not released by a release")
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
}

// Fences grow across a lost key and a clock that was ahead.
func TestSemaphoreFenceGrows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 1, nil)
	last := int64(0)
	for range 5 {
		lease, err := s.Try(ctx, 1)
		require.NoError(t, err)
		require.Greater(t, lease.Fence(), last, "the key was gone")
		last = lease.Fence()
		require.NoError(t, c.Del(ctx, lease.Key()).Err())
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, c.ZAdd(ctx, "sem:{"+name+"}", redis.Z{Score: float64(ahead), Member: "fence"}).Err())
	for i := range int64(3) {
		lease, err := s.Try(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, ahead+i+1, lease.Fence())
		require.NoError(t, lease.Release(ctx))
	}
}

// A semaphore stays as long as its longest lease, whoever comes after with a short one.
func TestSemaphoreOutlivesItsLongestLease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, l, name, c := newSemaphore(t, 2, &lock.Options{TTL: time.Hour})
	long, err := s.Try(ctx, 1)
	require.NoError(t, err)
	short, err := l.With(lock.Options{TTL: 20 * time.Second}).Semaphore(name, 2).Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, short.Extend(ctx))
	require.NoError(t, short.Release(ctx))
	require.Greater(t, c.PTTL(ctx, long.Key()).Val(), time.Hour)
	require.NoError(t, long.Release(ctx))
}

// Lost replies of a whole life: the caller holds what it thinks it holds.
func TestSemaphoreSurvivesLostReplies(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	s := lab.Locker(t, c, nil).Semaphore(luatomictest.Namespace(t), 2)
	for range 3 {
		proxy.Drop(1, luatomictest.Command("EVALSHA", gen.SemAcquireSHA))
		lease, err := s.Try(t.Context(), 2)
		require.NoError(t, err)
		proxy.Drop(1, luatomictest.Command("EVALSHA", gen.SemReleaseSHA))
		require.NoError(t, lease.Release(t.Context()), "released by you")
	}
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.Used)
}
