package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	priorities := []int{0, -1000, 5, 1000, 0, 5, -1, 1000}
	got := make(chan lab.Acquired, len(priorities))
	for i, p := range priorities {
		from := l.With(lock.Options{TTL: time.Minute, Priority: p})
		go func() {
			lease, err := from.Acquire(ctx, name)
			got <- lab.Acquired{Lease: lease, Err: err, Id: i}
		}()
		lab.WaitFor(t, l, name, i+1)
	}
	want := []int{0, 1, 2, 3, 4, 5, 6, 7}
	slices.SortStableFunc(want, func(a, b int) int { return priorities[b] - priorities[a] })
	var order []int
	for range priorities {
		require.NoError(t, lease.Release(ctx))
		next := lab.Soon(t, 20*time.Second, "handed over", got)
		require.NoError(t, next.Err)
		order = append(order, next.Id)
		lease = next.Lease
	}
	require.Equal(t, want, order)
	require.NoError(t, lease.Release(ctx))
	for _, p := range []int{-1001, 1001} {
		_, err := l.With(lock.Options{Priority: p}).Try(ctx, name)
		require.ErrorContains(t, err, "Priority")
	}
}

// The lock rests after a lease that ran out, and not after a release.
func TestLockDelayFollowsALossOnly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const delay = 400 * time.Millisecond
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: 50 * time.Millisecond, LockDelay: delay})
	plain := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	for _, how := range []string{"try", "queue", "all"} {
		t.Run(how, func(t *testing.T) {
			name := name + how
			_, err := l.Try(ctx, name) // and dies
			require.NoError(t, err)
			end := lockEnd(t, c, name)
			var fence int64
			switch how {
			case "try":
				luatomictest.Eventually(t, 20*time.Second, "free", func() bool {
					next, err := plain.Try(ctx, name)
					if err == nil {
						fence = next.Fence()
						require.NoError(t, next.Release(ctx))
					}
					return err == nil
				})
			case "queue":
				next := lab.Soon(t, 20*time.Second, "free", lab.AcquireLater(ctx, plain, name))
				require.NoError(t, next.Err)
				fence = next.Lease.Fence()
				require.NoError(t, next.Lease.Release(ctx))
			case "all":
				next, err := plain.AcquireAll(ctx, name, name+"2")
				require.NoError(t, err)
				fence = next[0].Fence()
				require.NoError(t, next.Release(ctx))
			}
			require.GreaterOrEqual(t, fence-end, delay.Microseconds())
		})
	}
	_, err := l.Try(ctx, name)
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "it rests", func() bool {
		info, err := plain.Info(ctx, name)
		require.NoError(t, err)
		return !info.Held
	})
	long := l.With(lock.Options{TTL: time.Minute, LockDelay: time.Minute})
	lease, err := long.Try(ctx, name+"r")
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
	next, err := plain.Try(ctx, name+"r")
	require.NoError(t, err, "no delay after a release")
	require.NoError(t, next.Release(ctx))
}

// Two that steal from each other: the old holder's context ends at once, and those
// who wait are served after.
func TestStealTellsTheHolder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Note: "old"})
	thief := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	listening(t, name)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	start := time.Now()
	stolen, err := thief.Steal(ctx, name)
	require.NoError(t, err)
	<-kept.Done()
	t.Logf("told after %v", time.Since(start))
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrRevoked)
	require.ErrorIs(t, lease.Release(ctx), lock.ErrRevoked)
	require.Greater(t, stolen.Fence(), lease.Fence())
	require.NoError(t, stolen.Extend(ctx), "the old one's release did not touch it")
	require.NoError(t, stolen.Release(ctx))
	next := lab.Soon(t, 15*time.Second, "who waits is served after", got)
	require.NoError(t, next.Err)

	done, err := thief.ForceRelease(ctx, name, next.Lease.Fence()-1)
	require.NoError(t, err)
	require.False(t, done, "another holder was meant")
	require.NoError(t, next.Lease.Extend(ctx))
	last := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	done, err = thief.ForceRelease(ctx, name, next.Lease.Fence())
	require.NoError(t, err)
	require.True(t, done)
	after := lab.Soon(t, 15*time.Second, "handed on by force", last)
	require.NoError(t, after.Err)
	require.Greater(t, after.Lease.Fence(), next.Lease.Fence())
	require.ErrorIs(t, next.Lease.Extend(ctx), lock.ErrLost)
	require.NoError(t, after.Lease.Release(ctx))
	done, err = thief.ForceRelease(ctx, name, 0)
	require.NoError(t, err)
	require.False(t, done, "nobody held it")
}

// listening returns when some process with a lease of the lock kept is heard.
func listening(t testing.TB, name string) {
	t.Helper()
	c := luatomictest.Client(t)
	luatomictest.Eventually(t, 20*time.Second, "the holder listens", func() bool {
		owner := scriptcase.LockRecord(t, c, name)[scriptcase.RecordOwner]
		process, _, _ := cutLast(owner, ".")
		return c.PubSubNumSub(t.Context(), "lock:c:"+process).Val()["lock:c:"+process] > 0
	})
}

func cutLast(s, sep string) (before, after string, ok bool) {
	for i := len(s) - len(sep); i >= 0; i-- {
		if s[i:i+len(sep)] == sep {
			return s[:i], s[i+len(sep):], true
		}
	}
	return s, "", false
}

// A kept lease that is lost, released or out of time says so once.
func TestObserveTellsTheTurnsOfALock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var mu sync.Mutex
	var events []lock.Event
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	take := func() []lock.Event {
		mu.Lock()
		defer mu.Unlock()
		out := events
		events = nil
		return out
	}
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	got := lab.AcquireLater(ctx, l, name)
	lab.WaitFor(t, l, name, 1)
	luatomictest.Eventually(t, 20*time.Second, "queued", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(events) == 2
	})
	waited := time.Now()
	require.NoError(t, lease.Release(ctx))
	next := lab.Soon(t, 20*time.Second, "handed over", got)
	require.NoError(t, next.Err)
	seen := take()
	kinds := make([]string, len(seen))
	for i, e := range seen {
		require.Equal(t, name, e.Name)
		kinds[i] = e.Kind.String()
	}
	slices.Sort(kinds[2:])
	require.Equal(t, []string{"acquired", "queued", "acquired", "released"}, kinds)
	require.Equal(t, 1, seen[1].Waiting)
	for _, e := range seen[2:] {
		if e.Kind == lock.EventAcquired {
			require.LessOrEqual(t, e.Wait, time.Since(waited)+time.Minute)
			require.Positive(t, e.Wait)
		} else {
			require.Positive(t, e.Held)
		}
	}
	kept := next.Lease.Keep(ctx)
	require.NoError(t, c.Del(ctx, next.Lease.Key()).Err())
	require.ErrorIs(t, next.Lease.Extend(ctx), lock.ErrLost)
	<-kept.Done()
	require.ErrorIs(t, next.Lease.Release(ctx), lock.ErrLost)
	// It may be a renewal in the background that found it, and tells it after that.
	luatomictest.Eventually(t, 20*time.Second, "told of the loss", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(events) > 0
	})
	seen = take()
	require.Len(t, seen, 1, "a loss is told once, and is no release")
	require.Equal(t, lock.EventLost, seen[0].Kind)
	require.True(t, errors.Is(seen[0].Err, lock.ErrLost))

	short := l.With(lock.Options{TTL: time.Millisecond, Observe: func(e lock.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}})
	lease, err = short.Try(ctx, name)
	require.NoError(t, err)
	for lease.Err() == nil {
		continue
	}
	require.ErrorIs(t, lease.Release(ctx), lock.ErrLost)
	seen = take()
	require.Len(t, seen, 2)
	require.Equal(t, lock.EventLost, seen[1].Kind, "also when it was found by the release")
	require.Equal(t, "unknown", lock.EventKind(99).String())
}
