package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// gauge is what is held at a moment, as its holders know it.
type gauge struct {
	limit  int64
	fences sync.Map

	mu   sync.Mutex
	held map[*lock.Lease]int64
	most int64
}

// inside runs f while the lease counts, and reports a permit too many or a fence that
// came twice. A lease counts as long as its holder takes it for good, which ends
// before the server's own time: however late the machine runs, these permits are held.
func (g *gauge) inside(lease *lock.Lease, weight int64, f func()) error {
	now := g.enter(lease, weight)
	defer g.leave(lease)
	if now > g.limit {
		return fmt.Errorf("%d of %d are held", now, g.limit)
	}
	if _, twice := g.fences.LoadOrStore(lease.Fence(), true); twice {
		return fmt.Errorf("the fence %d was given twice", lease.Fence())
	}
	f()
	return nil
}

func (g *gauge) enter(lease *lock.Lease, weight int64) (now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = make(map[*lock.Lease]int64)
	}
	g.held[lease] = weight
	for l, w := range g.held {
		if l.Err() == nil {
			now += w
		}
	}
	g.most = max(g.most, now)
	return now
}

func (g *gauge) leave(lease *lock.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, lease)
}

// faultyClients are clients through proxies that cut and lose what they carry, until
// the test ends.
func faultyClients(t *testing.T, server *luatomictest.Server, n int) []*redis.Client {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	clients := make([]*redis.Client, n)
	for i := range clients {
		proxy := luatomictest.NewLossyProxy(t, server.URL())
		opts, err := redis.ParseURL(proxy.URL())
		require.NoError(t, err)
		clients[i] = redis.NewClient(opts)
		t.Cleanup(func() { require.NoError(t, clients[i].Close()) })
		sent := luatomictest.Command("EVALSHA")
		proxy.Drop(1<<30, func(args []string) bool { return sent(args) && rand.IntN(20) == 0 })
		running.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; ctx.Err() == nil; n++ {
				timer := time.NewTimer(time.Duration(10+rnd.IntN(40)) * time.Millisecond)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
				}
				if n%3 == 0 {
					proxy.CutAll()
				}
				if i == 0 && n%5 == 0 {
					_ = server.Client().ScriptFlush(ctx).Err()
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return clients
}

// Many clients whose connections break and whose replies get lost, some of which
// never give back: never more is held than the limit, no writer meets a reader, each
// fence is given once, and in the end everything is free.
func TestSemaphoreHistoryUnderFaults(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	rounds := 40
	if os.Getenv("LUATOMIC_DRILL") != "" {
		rounds = 1000
	}
	server := luatomictest.StartServer(t)
	clients := faultyClients(t, server, 6)
	run := func(name string, limit int64, acquire func(l *lock.Locker,
		rnd *rand.Rand) (func(context.Context) (*lock.Lease, error), int64)) {
		g := gauge{limit: limit}
		var wg sync.WaitGroup
		var done, crashed atomic.Int64
		for i, c := range clients {
			l := lab.Locker(t, c, &lock.Options{TTL: 500 * time.Millisecond})
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 2))
				for range rounds {
					call, weight := acquire(l, rnd)
					err := historyStep(t.Context(), &g, call, weight, rnd, &crashed)
					if err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
				}
			})
		}
		wg.Wait()
		t.Logf("%s: %d held in turn, %d never gave back, at most %d of %d at once", name, done.Load(),
			crashed.Load(), g.most, limit)
		require.Positive(t, crashed.Load())
	}
	run("semaphore", 4, func(l *lock.Locker, rnd *rand.Rand) (func(context.Context) (*lock.Lease, error), int64) {
		weight := 1 + rnd.IntN(3)
		acquire := func(ctx context.Context) (*lock.Lease, error) { return l.Semaphore("s", 4).Acquire(ctx, weight) }
		return acquire, int64(weight)
	})
	const all = 1000
	run("read-write lock", all, func(l *lock.Locker, rnd *rand.Rand) (func(context.Context) (*lock.Lease, error),
		int64) {
		if rnd.IntN(4) == 0 {
			return l.RW("rw").Acquire, all
		}
		return l.RW("rw").RAcquire, 1
	})
	last := lab.Locker(t, server.Client(), nil)
	lease, err := last.Semaphore("s", 4).Acquire(t.Context(), 4)
	require.NoError(t, err, "everything came back")
	require.NoError(t, lease.Release(t.Context()))
	lease, err = last.RW("rw").Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// historyStep acquires, holds for a moment and gives back, but for one time in twenty.
func historyStep(
	ctx context.Context, g *gauge, acquire func(context.Context) (*lock.Lease, error), weight int64,
	rnd *rand.Rand, crashed *atomic.Int64,
) error {
	var lease *lock.Lease
	for {
		one, cancel := context.WithTimeout(ctx, time.Duration(50+rnd.IntN(2000))*time.Millisecond)
		got, err := acquire(one)
		cancel()
		if err == nil {
			lease = got
			break
		}
		if ctx.Err() != nil {
			return err // faults and the end of the wait are part of it
		}
	}
	crashes := rnd.IntN(20) == 0
	err := g.inside(lease, weight, func() {
		if crashes {
			crashed.Add(1)
		}
		end := time.Now().Add(time.Duration(rnd.IntN(3)) * time.Millisecond)
		for lease.Err() == nil && (crashes || time.Now().Before(end)) {
			pauseFor(time.Millisecond)
		}
	})
	if crashes || err != nil {
		return err
	}
	_ = lease.Release(ctx) // under these faults a lease may be over
	return nil
}

// pauseFor lets others run: the time is part of what is tested.
func pauseFor(d time.Duration) { <-time.After(d) }

// A holder that dies gives its permit back when its own lease is over, although the
// others go on; a waiter makes an attempt then.
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

// The holder of a kept permit is notified that it was taken away, long before its next
// renewal.
func TestSemaphoreRevokeNotifiesTheHolder(t *testing.T) {
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
	require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked)
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
	state, err := lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: k, Queue: q, Owner: token})
	require.NoError(t, err)
	require.Equal(t, lockscript.SemReleaseResultExpired, state)
	require.Positive(t, c.PTTL(ctx, k).Val())
	r, err := lockscript.SemAcquire(ctx, c, lockscript.SemAcquireParams{
		Permits: k, Queue: q, Owner: token, Limit: 1, TTL: time.Minute, Entry: "me.1:1 1000\n",
	})
	require.NoError(t, err)
	require.False(t, r.Acquired)
	require.Zero(t, c.Exists(ctx, q).Val())
	state, err = lockscript.SemRelease(ctx, c, lockscript.SemReleaseParams{Permits: k, Queue: q, Owner: token})
	require.NoError(t, err)
	require.Equal(t, lockscript.SemReleaseResultExpired, state, "it was not released by a release")
	lease, err := s.Try(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
}

// A semaphore stays as long as its longest lease, also when a shorter one follows.
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
		proxy.Drop(1, lab.Sent(&lockscript.SemAcquireScript))
		lease, err := s.Try(t.Context(), 2)
		require.NoError(t, err)
		proxy.Drop(1, lab.Sent(&lockscript.SemReleaseScript))
		require.NoError(t, lease.Release(t.Context()), "released by you")
	}
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.Used)
}
