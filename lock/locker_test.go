package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
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

func TestLockAcquireExtendRelease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Note: "worker-7"})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.Equal(t, "lock:{"+name+"}", lease.Key())
	require.InDelta(t, time.Minute.Seconds(), time.Until(lease.Deadline()).Seconds(), 5)
	require.LessOrEqual(t, time.Until(lease.Deadline()), time.Minute-time.Minute/1000, "clocks run at different speeds")

	_, err = l.Try(ctx, name)
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.ErrorIs(t, err, lock.ErrHeld)
	require.Equal(t, "worker-7", held.Holder)
	require.InDelta(t, time.Minute.Seconds(), held.Remaining.Seconds(), 5)

	require.NoError(t, lease.Extend(ctx))
	require.NoError(t, lease.Release(ctx))
	require.NoError(t, lease.Release(ctx), "released by you is an answer")
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrLost)
	require.Zero(t, c.Exists(ctx, lease.Key()).Val(), "no key stays behind")

	next, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence())
	require.NoError(t, lease.Release(ctx), "the late release of the last owner")
	require.NoError(t, next.Extend(ctx), "and the next holder still has it")
}

// The guard is the comparison of the owner in release and extend.
func TestOldOwnerCannotTouchTheSuccessorsLock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 20 * time.Millisecond})
	old, err := l.Try(ctx, name)
	require.NoError(t, err)
	long := lab.Locker(t, luatomictest.Client(t), nil)
	next, err := long.Acquire(ctx, name)
	require.NoError(t, err)
	require.Greater(t, next.Fence(), old.Fence())
	require.ErrorIs(t, old.Extend(ctx), lock.ErrLost)
	require.ErrorIs(t, old.Release(ctx), lock.ErrLost)
	require.ErrorContains(t, old.Release(ctx), "another owner")
	require.NoError(t, next.Extend(ctx))
	require.NoError(t, next.Release(ctx))
	require.ErrorIs(t, old.Extend(ctx), lock.ErrLost, "extend never creates a lock")
}

// The guard is the comparison of the lease's end with the clock.
func TestExpiredLeaseIsLostAlthoughNobodyTookIt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Millisecond})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	// The end is that of a key, in whole ms and one more: never earlier than the holder believes.
	end := time.UnixMicro(lease.Fence()).Add(3 * time.Millisecond)
	luatomictest.Eventually(t, 20*time.Second, "the lease ends", func() bool { return c.Time(ctx).Val().After(end) })
	state, err := lockscript.Extend(ctx, c, lockscript.ExtendParams{
		Lock: lease.Key(), Owner: lease.Token(), TTL: time.Second,
	})
	require.NoError(t, err)
	require.Equal(t, lockscript.ExtendResultExpired, state)
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrLost)
	require.ErrorIs(t, lease.Release(ctx), lock.ErrLost)
	next, err := l.Try(ctx, name)
	require.NoError(t, err, "an expired lock is free")
	require.Greater(t, next.Fence(), lease.Fence())
}

// The guard is max(previous + 1, clock): with the clock set back, or the string deleted.
func TestFenceGrowsAcrossClockStepsAndLostKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, nil)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	k := "lock:{" + name + "}"
	require.NoError(t, c.Set(ctx, k, "2 "+strconv.FormatInt(ahead, 10)+" 0 - - 0 0 ", time.Minute).Err())
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.Equal(t, ahead+1, lease.Fence(), "one more than a fence from a clock that was ahead")
	require.NoError(t, lease.Release(ctx))

	last := int64(0)
	for range 20 {
		require.NoError(t, c.Del(ctx, k).Err())
		lease, err := l.Try(ctx, name)
		require.NoError(t, err)
		require.Greater(t, lease.Fence(), last, "the key was gone")
		last = lease.Fence()
	}
}

func TestReleaseWorksAfterTheContextIsCancelled(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	cancel()
	require.NoError(t, lease.Release(ctx))
	_, err = l.Try(t.Context(), name)
	require.NoError(t, err, "the lock is free")
}

// An acquire that is cancelled between request and reply leaves no lock behind:
// the guard is undo.
func TestCancelledAcquireLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	name := luatomictest.Namespace(t)
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute})
	warm, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, warm.Release(t.Context()))

	ctx, cancel := context.WithCancel(t.Context())
	acquire := luatomictest.Command("EVALSHA")
	proxy.Drop(1, func(args []string) bool {
		if !acquire(args) {
			return false
		}
		cancel()
		return true
	})
	_, err = l.Try(ctx, name)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	// The call that gives back goes on when the caller has left.
	luatomictest.Eventually(t, 20*time.Second, "no orphan holds the lock", func() bool {
		_, err = l.Try(t.Context(), name)
		return err == nil
	})
}

func TestAcquireWaitsAndGivesUpWithTheContext(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, name)
		got <- err
	}()
	cancel()
	err = <-got
	require.ErrorIs(t, err, context.Canceled)

	// Long enough for a first answer, however slow the machine: the error is made of it.
	short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = l.Acquire(short, name)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, lock.ErrHeld, "it says what it waited for")

	go func() {
		_, err := l.Acquire(t.Context(), name)
		got <- err
	}()
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, <-got)
}

func TestBadTTL(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	for _, ttl := range []time.Duration{500 * time.Microsecond, -time.Second} {
		_, err := lab.Locker(t, c, &lock.Options{TTL: ttl}).Try(t.Context(), "x")
		require.ErrorIs(t, err, lua.ErrOutOfRange, ttl)
		require.ErrorContains(t, err, "at least 1ms")
	}
}

func TestKeepRenewsAndReportsTheLoss(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 8 * time.Second})
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	first, stored := lease.Deadline(), c.PExpireTime(t.Context(), lease.Key()).Val()
	kept := lease.Keep(t.Context())
	renewed(t, lease, first)
	require.Greater(t, c.PExpireTime(t.Context(), lease.Key()).Val(), stored)
	require.NoError(t, kept.Err())
	require.NoError(t, c.Del(t.Context(), lease.Key()).Err())
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrLost)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
	require.ErrorIs(t, lease.Release(t.Context()), lock.ErrLost)
}

// The server falls silent: the loss is noticed by the local clock, not when the
// socket gives up.
func TestKeepNoticesALossWhileTheServerIsSilent(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	opts.ReadTimeout = time.Minute
	c := redis.NewClient(opts)
	defer c.Close()
	lease, err := lab.Locker(t, c, &lock.Options{TTL: 300 * time.Millisecond}).Try(t.Context(),
		luatomictest.Namespace(t))
	require.NoError(t, err)
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	kept := lease.Keep(t.Context())
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrLost)
	require.Less(t, time.Since(lease.Deadline()), 10*time.Second, "the socket would take a minute")
}

func TestDoRunsUnderTheLockAndReleases(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 3 * time.Second})
	boom := errors.New("boom")
	err := l.Do(t.Context(), name, func(ctx context.Context, lease *lock.Lease) error {
		_, err := l.Try(ctx, name)
		require.ErrorIs(t, err, lock.ErrHeld)
		return boom
	})
	require.ErrorIs(t, err, boom)
	require.PanicsWithValue(t, "oh", func() {
		_ = l.Do(t.Context(), name, func(context.Context, *lock.Lease) error { panic("oh") })
	})
	err = l.Do(t.Context(), name, func(ctx context.Context, lease *lock.Lease) error {
		require.NoError(t, c.Del(ctx, lease.Key()).Err())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, lock.ErrLost, "a loss is not silent although f succeeded")
	lease, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// Mutual exclusion under contention: a counter that is read and written in two
// steps stays exact, and fences only grow.
func TestLockExcludesAndFencesGrow(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Claim: time.Minute, Poll: 2 * time.Millisecond})
	const workers, rounds = 8, 25
	var wg sync.WaitGroup
	var mu sync.Mutex
	last := int64(0)
	errs := make(chan error, workers)
	for range workers {
		wg.Go(func() {
			for range rounds {
				err := l.Do(t.Context(), name, func(ctx context.Context, lease *lock.Lease) error {
					mu.Lock()
					grew := lease.Fence() > last
					last = lease.Fence()
					mu.Unlock()
					n, err := c.Get(ctx, name).Int()
					if err != nil && err != redis.Nil {
						return err
					}
					if !grew {
						return fmt.Errorf("fence %d is not greater than the one before", lease.Fence())
					}
					return c.Set(ctx, name, n+1, 0).Err()
				})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	require.NoError(t, <-errs)
	require.Equal(t, workers*rounds, lab.Must(c.Get(t.Context(), name).Int()))
}

// An uncontended pair is two round trips, and nothing else goes out.
func TestLockPairIsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	pair := func() {
		lease, err := l.Try(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	pair() // connects and loads the scripts
	before := proxy.Executed(nil)
	pair()
	require.Equal(t, 2, proxy.Executed(nil)-before)
}

// An acquire whose reply was lost finds the lock its own, under the same fence: a
// new one would refuse writes that the caller does not know of.
func TestRepeatedAcquireKeepsTheFence(t *testing.T) {
	t.Parallel()
	c, k := luatomictest.Client(t), luatomictest.Namespace(t)
	acquire := func() lockscript.AcquireResult {
		out, err := lockscript.Acquire(t.Context(), c, lockscript.AcquireParams{
			Lock: k, Queue: k, Own: " me 0 1000 ", TTL: time.Minute,
		})
		require.NoError(t, err)
		require.True(t, out.Acquired)
		return out
	}
	require.Equal(t, acquire().Fence, acquire().Fence)
}
