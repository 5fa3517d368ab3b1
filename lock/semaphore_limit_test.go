package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/lock"
)

// While a new limit is rolled out neither the old processes nor the new ones get an error. The stored limit counts.
func TestSemaphoreNewLimitRollsOut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	old, l, name, _ := newSemaphore(t, 2, nil)
	one, err := old.Try(ctx, 1)
	require.NoError(t, err)
	deployed := l.Semaphore(name, 3)
	two, err := deployed.Try(ctx, 1)
	require.NoError(t, err)
	_, err = deployed.Try(ctx, 1)
	require.ErrorIs(t, err, lock.ErrHeld, "the old limit counts until Resize")
	waits := acquiring(ctx, old, 1)
	waitForPermits(t, old, 1)
	require.NoError(t, deployed.Resize(ctx, 3))
	three := permit(t, waits)
	_, err = old.Try(ctx, 1)
	require.ErrorIs(t, err, lock.ErrHeld)
	for _, lease := range []*lock.Lease{one, two, three} {
		require.NoError(t, lease.Release(ctx))
	}
	heavy, err := old.Try(ctx, 3)
	require.NoError(t, err, "a weight above the limit of the old process")
	require.NoError(t, heavy.Release(ctx))
	info, err := old.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, info.Limit)
}

func TestSemaphoreWeightAboveTheStoredLimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, l, name, _ := newSemaphore(t, 2, nil)
	one, err := s.Try(ctx, 1)
	require.NoError(t, err)
	_, err = l.Semaphore(name, 3).Acquire(ctx, 3)
	var limit *lock.LimitError
	require.ErrorAs(t, err, &limit)
	require.ErrorIs(t, err, lock.ErrLimit)
	require.Equal(t, lock.LimitError{Name: name, Weight: 3, Limit: 2}, *limit)
	require.ErrorContains(t, err, "has 2, the permit weighs 3")
	require.NoError(t, one.Release(ctx))
}

func failure(_ *lock.Lease, err error) error { return err }

// Where nothing is stored the limit is that of the call.
func TestSemaphoreWeightAboveItsOwnLimit(t *testing.T) {
	t.Parallel()
	s, _, name, c := newSemaphore(t, 2, nil)
	for _, err := range []error{
		failure(s.Try(t.Context(), 3)), failure(s.Acquire(t.Context(), 3)), s.Do(t.Context(), 3, nil),
	} {
		var limit *lock.LimitError
		require.ErrorAs(t, err, &limit)
		require.Equal(t, lock.LimitError{Name: name, Weight: 3, Limit: 2}, *limit)
	}
	require.Zero(t, c.Exists(t.Context(), "sem:{"+name+"}", "semq:{"+name+"}").Val())
}

func TestSemaphoreResizeGrantsAndTakesNothingAway(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, _ := newSemaphore(t, 1, &lock.Options{TTL: time.Minute})
	one, err := s.Try(ctx, 1)
	require.NoError(t, err)
	a := acquiring(ctx, s, 1)
	waitForPermits(t, s, 1)
	b := acquiring(ctx, s, 1)
	waitForPermits(t, s, 2)
	require.NoError(t, s.Resize(ctx, 3))
	second, third := permit(t, a), permit(t, b)
	require.NoError(t, s.Resize(ctx, 1))
	for _, l := range []*lock.Lease{one, second, third} {
		require.NoError(t, l.Extend(ctx))
		_, err := s.Try(ctx, 1)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, l.Release(ctx))
	}
	last, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, last.Release(ctx))
}

// A waiter for more than a smaller limit is notified, and delays nobody.
func TestSemaphoreShrunkUnderAWaiter(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, _ := newSemaphore(t, 3, &lock.Options{TTL: time.Minute})
	one, err := s.Try(ctx, 2)
	require.NoError(t, err)
	heavy := acquiring(ctx, s, 3)
	waitForPermits(t, s, 1)
	light := acquiring(ctx, s, 1)
	waitForPermits(t, s, 2)
	require.NoError(t, s.Resize(ctx, 2))
	require.ErrorIs(t, (<-heavy).Err, lock.ErrLimit)
	require.NoError(t, one.Release(ctx))
	require.NoError(t, permit(t, light).Release(ctx))
}

// A new limit is known for a minute, also where nobody has held or waited for a permit for a while, or has only left.
func TestSemaphoreNewLimitStaysForAMinute(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for what, use := range map[string]func(*testing.T, *lock.Semaphore, *redis.Client, string){
		"idle": func(t *testing.T, s *lock.Semaphore, c *redis.Client, key string) {
			lease, err := s.Try(ctx, 1)
			require.NoError(t, err)
			require.NoError(t, lease.Release(ctx))
			require.NoError(t, c.PExpire(ctx, key, 20*time.Second).Err())
		},
		"left": func(t *testing.T, _ *lock.Semaphore, c *redis.Client, key string) {
			_, err := lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: key, Queue: "semq" + key[3:],
				Owner: "p.1:1"})
			require.NoError(t, err)
		},
		"unknown": func(*testing.T, *lock.Semaphore, *redis.Client, string) {},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, _, name, c := newSemaphore(t, 2, nil)
			key := "sem:{" + name + "}"
			use(t, s, c, key)
			require.NoError(t, s.Resize(ctx, 5))
			require.InDelta(t, 60, c.PTTL(ctx, key).Val().Seconds(), 20)
		})
	}
}
