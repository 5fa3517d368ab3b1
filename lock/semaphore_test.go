package lock_test

import (
	"context"
	"fmt"
	"sync"
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

// newSemaphore returns a semaphore of the test's own.
func newSemaphore(t testing.TB, limit int, opts *lock.Options) (*lock.Semaphore, *lock.Locker, string, *redis.Client) {
	t.Helper()
	l, name, c := lab.NewLocker(t, opts)
	return l.Semaphore(name, limit), l, name, c
}

// waitForPermits returns when n wait.
func waitForPermits(t testing.TB, s *lock.Semaphore, n int) {
	t.Helper()
	luatomictest.Eventually(t, 20*time.Second, fmt.Sprint(n, " wait"), func() bool {
		info, err := s.Info(t.Context())
		require.NoError(t, err)
		return info.Waiting == n
	})
}

// acquiring acquires in the background.
func acquiring(ctx context.Context, s *lock.Semaphore, weight int) <-chan lab.Acquired {
	got := make(chan lab.Acquired, 1)
	go func() {
		lease, err := s.Acquire(ctx, weight)
		got <- lab.Acquired{Lease: lease, Err: err, Id: weight}
	}()
	return got
}

// permit waits for the permit.
func permit(t testing.TB, got <-chan lab.Acquired) *lock.Lease {
	t.Helper()
	select {
	case a := <-got:
		require.NoError(t, a.Err)
		return a.Lease
	case <-time.After(20 * time.Second):
		require.Fail(t, "no permit came")
		return nil
	}
}

func TestSemaphoreTryExtendRelease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 3, &lock.Options{TTL: time.Minute, Note: "worker:7"})
	one, err := s.Try(ctx, 1)
	require.NoError(t, err)
	two, err := s.Try(ctx, 2)
	require.NoError(t, err)
	require.Greater(t, two.Fence(), one.Fence())
	require.InDelta(t, time.Minute.Seconds(), time.Until(two.Deadline()).Seconds(), 5)
	require.Equal(t, "sem:{"+name+"}", one.Key())
	score := func(member string) float64 { return c.ZScore(ctx, one.GuardKey(), member).Val() }
	require.Equal(t, score(one.GuardToken()), score(one.GuardToken()+"\nworker:7"))

	_, err = s.Try(ctx, 1)
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "worker:7", held.Holder)
	require.InDelta(t, time.Minute.Seconds(), held.Remaining.Seconds(), 5)

	info, err := s.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, info.Limit)
	require.Equal(t, 3, info.Used)
	require.Equal(t, two.Fence(), info.Fence)
	require.Len(t, info.Holders, 2)
	require.Equal(t, "worker:7", info.Holders[0].Note)
	require.Equal(t, 3, info.Holders[0].Weight+info.Holders[1].Weight)

	require.NoError(t, two.Extend(ctx))
	require.NoError(t, two.Release(ctx))
	require.NoError(t, two.Release(ctx), "released by you is an answer")
	require.ErrorIs(t, two.Extend(ctx), lock.ErrLost)
	next, err := s.Try(ctx, 2)
	require.NoError(t, err)
	require.Greater(t, next.Fence(), two.Fence())
	require.NoError(t, next.Release(ctx))
	require.NoError(t, one.Release(ctx))
	info, err = s.Info(ctx)
	require.NoError(t, err)
	require.Zero(t, info.Used)
	require.Empty(t, info.Holders)
	require.Positive(t, c.PTTL(ctx, one.Key()).Val(), "no key stays behind")
}

// Row 20: what cannot be is refused before anything is sent.
func TestSemaphoreRefusesBadNumbersBeforeAnyIO(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	l := lab.Locker(t, c, nil)
	for _, bad := range []struct{ limit, weight int }{{0, 1}, {-1, 1}, {1<<30 + 1, 1}, {2, 0}, {2, -1},
		{2, 1<<30 + 1}} {
		s := l.Semaphore("x", bad.limit)
		_, err := s.Try(t.Context(), bad.weight)
		require.ErrorIs(t, err, lua.ErrOutOfRange, bad)
		_, err = s.Acquire(t.Context(), bad.weight)
		require.ErrorIs(t, err, lua.ErrOutOfRange, bad)
		require.ErrorIs(t, s.Do(t.Context(), bad.weight, nil), lua.ErrOutOfRange, bad)
	}
	require.ErrorIs(t, l.Semaphore("x", 1).Resize(t.Context(), 0), lua.ErrOutOfRange)
	_, err := l.Semaphore("x", 1).Revoke(t.Context(), "nonsense")
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	for _, opts := range []lock.Options{{LockDelay: 1}, {Replicas: 1}, {TTL: 500 * time.Microsecond}} {
		_, err := l.With(opts).Semaphore("x", 1).Try(t.Context(), 1)
		require.ErrorIs(t, err, lua.ErrOutOfRange, opts)
		_, err = l.With(opts).RW("x").RTry(t.Context())
		require.ErrorIs(t, err, lua.ErrOutOfRange, opts)
	}
	_, err = l.Semaphore("{x}", 1).Try(t.Context(), 1)
	require.ErrorIs(t, err, lua.ErrBadName)
}

// Rows 18 and "no starvation": a heavy one at the head is not overtaken by light ones
// that would fit, neither by the waiters nor by a try.
func TestSemaphoreServesTheHeadFirst(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, l, name, _ := newSemaphore(t, 4, &lock.Options{TTL: time.Minute})
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute}).Semaphore(name, 4)
	first, err := s.Try(ctx, 2)
	require.NoError(t, err)
	heavy := acquiring(ctx, s, 4)
	waitForPermits(t, s, 1)
	const light = 6
	got := make(chan lab.Acquired, light)
	for i := range light {
		from := []*lock.Semaphore{s, other}[i%2]
		go func() {
			lease, err := from.Acquire(ctx, 1)
			got <- lab.Acquired{Lease: lease, Err: err, Id: i}
		}()
		waitForPermits(t, s, i+2)
	}
	_, err = other.Try(ctx, 1)
	require.ErrorIs(t, err, lock.ErrHeld, "there is room, but the head is first")
	require.Empty(t, got)
	require.NoError(t, first.Release(ctx))
	whole := permit(t, heavy)
	require.Empty(t, got)
	require.NoError(t, whole.Release(ctx))

	last := whole.Fence()
	holders := make(map[int]*lock.Lease)
	for range 4 { // as many from the head as fit, in one call
		a := <-got
		require.NoError(t, a.Err)
		require.Less(t, a.Id, 4)
		require.Greater(t, a.Lease.Fence(), whole.Fence())
		holders[a.Id] = a.Lease
	}
	for i := range 4 {
		require.Greater(t, holders[i].Fence(), last, "the fences grow in the order of grants")
		last = holders[i].Fence()
	}
	require.Empty(t, got)
	require.NoError(t, holders[2].Release(ctx))
	next := <-got
	require.NoError(t, next.Err)
	require.Equal(t, 4, next.Id)
	require.NoError(t, l.Close())
}

// Row 19: waiters that left or died in the queue delay nobody, also when they are at
// the head and the live ones behind them are lighter.
func TestSemaphoreDeadWaitersArePassedOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, name, c := newSemaphore(t, 3, &lock.Options{TTL: time.Minute})
	one, err := s.Try(ctx, 2)
	require.NoError(t, err)
	bury := func(n, weight int) {
		for i := range n {
			require.NoError(t, c.ZAdd(ctx, "semq:{"+name+"}", redis.Z{
				Score: float64(-1000 + i), Member: fmt.Sprintf("dead%d.1:%d 60000\n", i, weight),
			}).Err())
		}
	}
	bury(10, 3)
	begun := time.Now()
	light, err := s.Acquire(ctx, 1)
	require.NoError(t, err, "the head is dead, and there is room")
	bury(10, 1)
	more := acquiring(ctx, s, 3)
	waitForPermits(t, s, 11)
	require.NoError(t, light.Release(ctx))
	require.NoError(t, one.Release(ctx))
	require.NoError(t, permit(t, more).Release(ctx))
	require.Less(t, time.Since(begun), 25*time.Second,
		"less than the lease of one of them, or the time between two looks")
	bury(1, 3)
	again, err := s.Try(ctx, 3)
	require.NoError(t, err, "the queue is of the dead")
	info, err := s.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, info.Used)
	require.NoError(t, again.Release(ctx))
}

// A waiter that gives up at the head lets the next ones go on.
func TestSemaphoreHeadThatGivesUpMakesRoom(t *testing.T) {
	t.Parallel()
	s, _, _, _ := newSemaphore(t, 2, &lock.Options{TTL: time.Minute})
	one, err := s.Try(t.Context(), 1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	heavy := acquiring(ctx, s, 2)
	waitForPermits(t, s, 1)
	light := acquiring(t.Context(), s, 1)
	waitForPermits(t, s, 2)
	cancel()
	require.ErrorIs(t, (<-heavy).Err, context.Canceled)
	require.NoError(t, permit(t, light).Release(t.Context()))
	require.NoError(t, one.Release(t.Context()))
}

// Row 23: one call for each hand-over, whatever the number of waiters, and none for
// waiting; several at once where several fit.
func TestSemaphoreHandOverIsOneCall(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	opts.PoolSize = 50
	c := redis.NewClient(opts)
	defer c.Close()
	s := lab.Locker(t, c, &lock.Options{TTL: time.Minute}).Semaphore(luatomictest.Namespace(t), 5)
	whole, err := s.Try(t.Context(), 5)
	require.NoError(t, err)
	const waiters = 100
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			lease, err := s.Acquire(t.Context(), 1)
			if err == nil {
				err = lease.Release(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	waitForPermits(t, s, waiters)
	answered(t, proxy)
	// which confirms, if it is first
	evalsha, extend := luatomictest.Command("EVALSHA"), lab.Sent(&lockscript.SemExtendScript)
	sent := func(args []string) bool { return evalsha(args) && !extend(args) }
	before := proxy.Executed(sent)
	require.NoError(t, whole.Release(t.Context()))
	wg.Wait()
	require.LessOrEqual(t, proxy.Executed(sent)-before, waiters+1+waiters/10)
}

// An uncontended pair is two round trips, and nothing else goes out.
func TestSemaphoreAndRWPairsAreTwoRoundTrips(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	for _, acquire := range []func() (*lock.Lease, error){
		func() (*lock.Lease, error) { return l.Semaphore(name, 3).Try(t.Context(), 2) },
		func() (*lock.Lease, error) { return l.Semaphore(name, 3).Acquire(t.Context(), 2) },
		func() (*lock.Lease, error) { return l.RW(name).Try(t.Context()) },
		func() (*lock.Lease, error) { return l.RW(name).RTry(t.Context()) },
	} {
		pair := func() {
			lease, err := acquire()
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		pair() // connects and loads the scripts
		before := proxy.Executed(nil)
		pair()
		require.Equal(t, 2, proxy.Executed(nil)-before)
	}
}

// More are granted by one call than its cap of 64; the next call follows immediately.
func TestSemaphoreGrantsBeyondTheCap(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _, _ := newSemaphore(t, 150, &lock.Options{TTL: time.Minute})
	whole, err := s.Try(ctx, 150)
	require.NoError(t, err)
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 150 {
		wg.Go(func() {
			if _, err := s.Acquire(ctx, 1); err != nil {
				t.Error(err)
				return
			}
			got.Add(1)
		})
	}
	waitForPermits(t, s, 150)
	require.NoError(t, whole.Release(ctx))
	luatomictest.Eventually(t, 20*time.Second, "all have one", func() bool { return got.Load() == 150 })
	wg.Wait()
}
