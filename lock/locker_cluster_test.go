package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// Philosophers take two forks each, in one slot and across slots, in any order that
// they name them: all eat, and none holds a fork while it waits.
func TestPhilosophersEat(t *testing.T) {
	t.Parallel()
	for _, tagged := range []bool{true, false} {
		t.Run(fmt.Sprint("tagged ", tagged), func(t *testing.T) {
			t.Parallel()
			space := luatomictest.Namespace(t)
			opts := &lock.Options{TTL: time.Minute}
			if tagged {
				opts.Tag = space
			}
			const philosophers, meals = 5, 5
			var mu sync.Mutex
			taken := make(map[string]bool)
			var wg sync.WaitGroup
			for i := range philosophers {
				l := lab.Locker(t, luatomictest.Client(t), opts)
				left, right := fmt.Sprint(space, i), fmt.Sprint(space, (i+1)%philosophers)
				wg.Go(func() {
					for range meals {
						forks, err := l.AcquireAll(t.Context(), left, right)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						both := !taken[left] && !taken[right]
						taken[left], taken[right] = true, true
						mu.Unlock()
						runtime.Gosched()
						mu.Lock()
						taken[left], taken[right] = false, false
						mu.Unlock()
						if err := forks.Release(t.Context()); err != nil || !both {
							t.Error("two hold one fork", err)
							return
						}
					}
				})
			}
			eaten := make(chan struct{})
			go func() {
				wg.Wait()
				close(eaten)
			}()
			lab.Soon(t, 5*time.Minute, "all have eaten", eaten)
		})
	}
}

// serverCPU is the processor time of the server's main thread so far.
func serverCPU(t *testing.T, c *redis.Client) (d time.Duration) {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "cpu").Result()
	require.NoError(t, err)
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		require.NoError(t, err)
		d += time.Duration(seconds * float64(time.Second))
	}
	return d
}

// Ten thousand leases are renewed by one goroutine, some hundreds in one round trip.
func TestTenThousandLeasesAreKeptByOneGoroutine(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	c := server.Client()
	const leases, ttl = 10_000, 15 * time.Second
	l := lock.New(c, &lock.Options{TTL: ttl, Tag: "t"})
	var kept []context.Context
	var all lock.Leases
	for from := 0; from < leases; from += 100 {
		names := make([]string, 100)
		for i := range names {
			names[i] = fmt.Sprint(from + i)
		}
		some, err := l.AcquireAll(ctx, names...)
		require.NoError(t, err)
		for _, lease := range some {
			kept = append(kept, lease.Keep(ctx))
		}
		all = append(all, some...)
	}
	stack := make([]byte, 64<<20)
	stack = stack[:runtime.Stack(stack, true)]
	mine := strings.Count(string(stack), "keeper.(*server).run(")
	require.Positive(t, mine, "the keeper has another name")
	start, cpu := time.Now(), serverCPU(t, c)
	before := lab.Calls(t, c)["evalsha"]
	luatomictest.Eventually(t, time.Minute, "each lease is renewed", func() bool {
		return !slices.ContainsFunc(all, func(l *lock.Lease) bool { return l.Deadline().Before(start.Add(ttl)) })
	})
	renewed := lab.Calls(t, c)["evalsha"] - before
	share := float64(serverCPU(t, c)-cpu) / float64(time.Since(start))
	turns := int(time.Since(start)/(ttl/3)) + 2 // as planned, and the first and the last of which we saw a part
	lost := 0
	for _, k := range kept {
		if k.Err() != nil {
			lost++
		}
	}
	t.Logf("%d renewals in %v for %d leases of %v, %.1f%% of a core of the server; %d lost; %d goroutines renew in "+
		"this process", renewed, time.Since(start), leases, ttl, 100*share, lost, mine)
	require.Less(t, share, 0.1)
	require.Zero(t, lost)
	require.LessOrEqual(t, renewed, leases*turns, "not more often than planned")
	require.NoError(t, l.Close())
	later := -1
	for now := lab.Calls(t, c)["evalsha"]; now != later; now = lab.Calls(t, c)["evalsha"] { // a round may be under way
		later = now
		time.Sleep(200 * time.Millisecond)
	}
	for _, lease := range all[:10] {
		require.NoError(t, lease.Err(), "Close does not end a lease")
	}
	for _, lease := range all[10:20] {
		require.NoError(t, lease.Release(ctx))
	}
	require.LessOrEqual(t, lab.Calls(t, c)["evalsha"]-later, 20, "and renews none")
	for _, lease := range all {
		_ = lease.Release(ctx)
	}
}

// Info and List on one server, and on a cluster; hand-over there, and while the slot
// moves.
func TestLocksOnACluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := luatomictest.StartCluster(t)
	l := lab.Locker(t, cluster.Client(), &lock.Options{TTL: 8 * time.Second, Note: "me"})
	other := lab.Locker(t, cluster.Client(), &lock.Options{TTL: 8 * time.Second, Note: "other"})
	var want []string
	for i := range 20 {
		name := fmt.Sprint("name", i)
		want = append(want, name)
		_, err := l.With(lock.Options{TTL: time.Minute, Note: "me"}).Try(ctx, name)
		require.NoError(t, err)
	}
	got := lab.AcquireLater(ctx, other, "name3")
	lab.WaitFor(t, l, "name3", 1)
	var seen []string
	for info, err := range l.List(ctx) {
		require.NoError(t, err)
		require.True(t, info.Held)
		require.Equal(t, "me", info.Note)
		if info.Name == "name3" {
			require.Equal(t, []string{"other"}, info.Waiters)
		}
		seen = append(seen, info.Name)
	}
	slices.Sort(seen)
	slices.Sort(want)
	require.Equal(t, want, slices.Compact(seen))
	done, err := l.ForceRelease(ctx, "name3", 0)
	require.NoError(t, err)
	require.True(t, done)
	next := lab.Soon(t, 20*time.Second, "handed over", got)
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(ctx))

	slot, err := cluster.Slot(ctx, "lock:{moving}")
	require.NoError(t, err)
	for round := range 2 {
		from, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		holder, err := l.Try(ctx, "moving")
		require.NoError(t, err)
		const waiters = 6
		end := make(chan lab.Acquired, waiters)
		for i := range waiters {
			mine := []*lock.Locker{l, other}[i%2]
			go func() {
				lease, err := mine.Acquire(ctx, "moving")
				if err == nil {
					err = lease.Release(ctx)
				}
				end <- lab.Acquired{Lease: lease, Err: err, Id: i}
			}()
		}
		lab.WaitFor(t, l, "moving", waiters)
		m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
		require.NoError(t, err)
		require.NoError(t, m.Finish(ctx))
		require.NoError(t, holder.Release(ctx))
		start := time.Now()
		for range waiters {
			next := lab.Soon(t, 90*time.Second, "the lock, after its slot has moved", end)
			require.NoError(t, next.Err)
		}
		t.Logf("round %d: %d served in %v after the move", round, waiters, time.Since(start))
		lab.WaitFor(t, l, "moving", 0)
	}
}

// A Ring has its locks on several servers, and listens on each.
func TestLocksOnARing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	one, two := luatomictest.StartServer(t), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr(), "two": two.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	l := lab.Locker(t, ring, &lock.Options{TTL: time.Minute})
	names := make([]string, 8)
	for i := range names {
		name := fmt.Sprint("name", i)
		names[i] = name
		holder, err := l.Try(ctx, name)
		require.NoError(t, err)
		got := lab.AcquireLater(ctx, l, name)
		lab.WaitFor(t, l, name, 1)
		require.NoError(t, holder.Release(ctx))
		next := lab.Soon(t, 20*time.Second, "handed over", got)
		require.NoError(t, next.Err)
		require.NoError(t, next.Lease.Release(ctx))
	}
	leases, err := l.AcquireAll(ctx, names...)
	require.NoError(t, err)
	for _, name := range names {
		_, err := l.Try(ctx, name)
		require.ErrorIs(t, err, lock.ErrHeld, "each lock is where its next holder looks for it")
	}
	require.NoError(t, leases.Release(ctx))
}
