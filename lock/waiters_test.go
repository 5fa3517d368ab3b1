package lock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// dead adds n entries to the queue whose process is dead.
func dead(t testing.TB, c *redis.Client, name string, n int) {
	t.Helper()
	entries := make([]any, n)
	for i := range entries {
		entries[i] = fmt.Sprintf("60000 gone.%d 0 1000 ", i)
	}
	require.NoError(t, c.LPush(t.Context(), "lockq:{"+name+"}", entries...).Err())
	require.NoError(t, c.Expire(t.Context(), "lockq:{"+name+"}", time.Minute).Err())
}

// However many died in the queue, the release reaches the first that lives.
func TestManyDeadWaitersAreSkipped(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	got := lab.AcquireLater(t.Context(), l, name)
	lab.WaitFor(t, l, name, 1)
	dead(t, c, name, 1000) // before the one that lives
	require.NoError(t, holder.Release(t.Context()))
	next := lab.Soon(t, 20*time.Second, "the lock", got)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(t.Context()))
}

// More dead waiters than one call skips: the next attempt goes on, and does not wait for
// a lease of one of them.
func TestEndlessDeadWaitersAreSkippedBitByBit(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	// So that it goes to the queue at once.
	busy, err := l.Try(t.Context(), name+"w")
	require.NoError(t, err)
	warm := lab.AcquireLater(t.Context(), l, name+"w")
	lab.WaitFor(t, l, name+"w", 1)
	require.NoError(t, busy.Release(t.Context()))
	require.NoError(t, lab.Soon(t, 20*time.Second, "warm", warm).Err)
	dead(t, c, name, 25_000)
	require.NoError(t, c.Set(t.Context(), "lock:{"+name+"}", "2 1 1 - gone.0 0 60000 ", time.Minute).Err())
	next := lab.Soon(t, 20*time.Second, "the lock", lab.AcquireLater(t.Context(), l, name))
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Extend(t.Context()))
}

// A queue that its last waiter has left does not cost later acquires
// anything: the guard is the sign in the string, which is taken back.
func TestLockThatIsNoLongerWaitedForIsCheapAgain(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", got).Err, context.Canceled)
	lab.WaitFor(t, l, name, 0) // its withdrawal goes on when the caller has left
	require.Equal(t, "1", scriptcase.LockRecord(t, c, name)[scriptcase.RecordSign])
	require.NoError(t, holder.Release(t.Context()))
	next, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, "0", scriptcase.LockRecord(t, c, name)[scriptcase.RecordSign], "nobody waits")
	require.NoError(t, next.Release(t.Context()))
}

// The string was deleted, and another process acquired and released the lock before a waiter
// looked: the waiters are still served in order, and none is granted it twice.
func TestQueueOutlivesALostString(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 4 * time.Second}) // both wait before it is over
	other := lab.Locker(t, luatomictest.Client(t), nil)
	_, err := l.Try(ctx, name)
	require.NoError(t, err)
	first := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	second := lab.AcquireLater(ctx, other, name)
	lab.WaitFor(t, l, name, 2)
	require.NoError(t, c.Del(ctx, "lock:{"+name+"}").Err())
	passing, err := lab.Locker(t, luatomictest.Client(t), nil).Try(ctx, name)
	require.NoError(t, err)
	require.NoError(t, passing.Release(ctx))
	one := lab.Soon(t, 30*time.Second, "the first", first)
	require.NoError(t, one.Err)
	require.NoError(t, one.Lease.Release(ctx))
	two := lab.Soon(t, 30*time.Second, "the second", second)
	require.NoError(t, two.Err)
	require.Greater(t, two.Lease.Fence(), one.Lease.Fence())
	require.NoError(t, two.Lease.Release(ctx))
	require.Zero(t, c.Exists(ctx, "lockq:{"+name+"}").Val(), "nobody is left in the queue")
}

// The queue itself was lost: the first that makes an attempt wakes the others of its process.
func TestWaitersComeBackToALostQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, nil)
	short := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: 4 * time.Second})
	_, err := short.Try(ctx, name)
	require.NoError(t, err)
	var got []<-chan lab.Acquired
	for i := range 3 {
		got = append(got, lab.AcquireLater(ctx, l, name))
		lab.WaitFor(t, l, name, i+1)
	}
	require.NoError(t, c.Del(ctx, "lockq:{"+name+"}").Err())
	// Their order is lost. The first to acquire it hands it on to all the others.
	all := make(chan lab.Acquired, len(got))
	for _, g := range got {
		go func() { all <- <-g }()
	}
	for range got {
		next := lab.Soon(t, 15*time.Second, "the lock", all) // half of the time between two attempts
		require.NoError(t, next.Err)
		require.NoError(t, next.Lease.Release(ctx))
	}
}

// Of several waiters in one process, one makes an attempt when the lease of a dead holder is
// over. If that one leaves just then, another does.
func TestRecheckIsPassedOnWhenItsWaiterLeaves(t *testing.T) {
	t.Parallel()
	c, proxy := proxied(t, luatomictest.URL(t))
	l, name := lab.Locker(t, c, nil), luatomictest.Namespace(t)
	direct := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: 4 * time.Second})
	_, err := direct.Try(t.Context(), name) // and dies
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, direct, name, 1)
	second := lab.AcquireLater(t.Context(), l, name)
	lab.WaitFor(t, direct, name, 2)
	look := lab.Sent(&lockscript.AcquireScript)
	proxy.DropRequest(1, func(args []string) bool { return look(args) && cancelled(cancel) })
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", first).Err, context.Canceled)
	next := lab.Soon(t, 15*time.Second, "the lock", second)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(t.Context()))
}

// A waiter that has the lock by an attempt of its own, and lets the lease run out: the
// others of its process do not wait for ever.
func TestGroupRechecksAfterItsOwnHolder(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 200 * time.Millisecond})
	_, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	const waiters = 4
	got := make(chan lab.Acquired, waiters)
	for i := range waiters {
		go func() {
			lease, err := l.Acquire(t.Context(), name) // and never gives it back
			got <- lab.Acquired{Lease: lease, Err: err, Id: i}
		}()
	}
	fences := make(map[int64]bool)
	for range waiters {
		next := lab.Soon(t, 30*time.Second, "the lock", got)
		require.NoError(t, next.Err)
		fences[next.Lease.Fence()] = true
	}
	require.Len(t, fences, waiters, "one after the other")
}

// A message that comes after a newer answer of the server does not count.
func TestLateGrantDoesNotCount(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	holder, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	head := strings.Fields(c.LRange(ctx, "lockq:{"+name+"}", 0, 0).Val()[0])
	owner := head[1]
	process, _, _ := strings.Cut(owner, ".")
	channel := "lock:c:" + process
	now := c.Time(ctx).Val().UnixMicro()
	received, err := c.Publish(ctx, channel, fmt.Sprintf("g %s %d %d 60000 lock:{%s}", owner, holder.Fence()-1, now,
		name)).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, received)
	for _, nonsense := range []string{
		"", "g", "g " + owner, "g " + owner + " 1 x 1", "n " + owner + " x", "z " + owner, "n nobody 1", "r nobody key",
	} {
		require.NoError(t, c.Publish(ctx, channel, nonsense).Err())
	}
	select {
	case next := <-got:
		require.Fail(t, "it believes a late message", "%+v", next)
	case <-time.After(300 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", got).Err, context.Canceled)
	require.NoError(t, holder.Release(t.Context()))
}

// A waiter leaves after the string was deleted: its entry is removed all the same.
func TestLeavingALostLockLeavesItsQueue(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, nil)
	_, err := l.Try(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	require.NoError(t, c.Del(t.Context(), "lock:{"+name+"}").Err())
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", got).Err, context.Canceled)
	// The withdrawal goes on after a caller that has waited for it for a moment.
	luatomictest.Eventually(t, 20*time.Second, "its entry is removed", func() bool {
		return c.Exists(t.Context(), "lockq:{"+name+"}").Val() == 0
	})
}

// BenchmarkHandOver is the time from the call of Release to the next holder
// running, with that many waiters all the time, from one process, four and fifty.
func BenchmarkHandOver(b *testing.B) {
	benchPing(b)
	for _, lockers := range []int{1, 4} {
		for _, waiters := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("lockers=%d/waiters=%d", lockers, waiters), func(b *testing.B) {
				handOver(b, lockers, waiters)
			})
		}
	}
	b.Run("lockers=50/waiters=1000", func(b *testing.B) { handOver(b, 50, 1000) })
}

// benchPing is the yardstick: one round trip on one connection.
func benchPing(b *testing.B) {
	b.Run("ping", func(b *testing.B) {
		c := luatomictest.Client(b)
		took := make([]time.Duration, 0, b.N)
		for b.Loop() {
			start := time.Now()
			require.NoError(b, c.Ping(b.Context()).Err())
			took = append(took, time.Since(start))
		}
		report(b, took)
	})
}

func report(b *testing.B, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
}

func handOver(b *testing.B, lockers, waiters int) {
	name := luatomictest.Namespace(b)
	ctx, stop := context.WithCancel(b.Context())
	var released, count atomic.Int64 // ns since start; hand-overs
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	start, over := time.Now(), make(chan struct{})
	var once sync.Once
	from := make([]*lock.Locker, lockers)
	for i := range from {
		from[i] = lab.Locker(b, clientWithPool(b, waiters/lockers+2), &lock.Options{TTL: time.Minute})
	}
	for i := range waiters + 1 { // one of them holds it
		wg.Go(func() {
			for {
				lease, err := from[i%lockers].Acquire(ctx, name)
				if err != nil {
					return
				}
				now := time.Since(start)
				if at := released.Load(); at > 0 {
					mu.Lock()
					took = append(took, now-time.Duration(at))
					mu.Unlock()
				}
				if count.Add(1) >= int64(b.N) {
					once.Do(func() { close(over) })
				}
				released.Store(int64(time.Since(start)))
				if err := lease.Release(b.Context()); err != nil {
					return
				}
			}
		})
	}
	<-over
	b.StopTimer()
	stop()
	wg.Wait()
	report(b, took)
}

// clientWithPool is a client with connections for so many callers at once.
func clientWithPool(b *testing.B, size int) *redis.Client {
	opts, err := redis.ParseURL(luatomictest.URL(b))
	require.NoError(b, err)
	opts.PoolSize = min(size, 100)
	opts.PoolTimeout = time.Minute
	c := redis.NewClient(opts)
	b.Cleanup(func() { _ = c.Close() })
	return c
}
