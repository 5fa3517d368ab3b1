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
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// A kept lease that is lost, released or out of time says so once.
func TestObserveReportsEachEvent(t *testing.T) {
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
	// A renewal in the background may have found it, and reports it after that.
	luatomictest.Eventually(t, 20*time.Second, "told of the loss", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(events) > 0
	})
	seen = take()
	require.Len(t, seen, 1, "a loss is reported once, and is no release")
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

// Wait is that of the whole acquire, for each of its locks.
func TestTheWaitOfAcquireAllIsThatOfAllItsLocks(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"", "t"} {
		var waits []time.Duration
		l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Tag: tag, Observe: func(e lock.Event) {
			if e.Kind == lock.EventAcquired {
				waits = append(waits, e.Wait)
			}
		}})
		held := lab.Must(lab.Locker(t, c, &lock.Options{TTL: time.Minute, Tag: tag}).Try(t.Context(), name+"b"))
		time.AfterFunc(200*time.Millisecond, func() { _ = held.Release(context.Background()) })
		begun := time.Now()
		leases, err := l.AcquireAll(t.Context(), name+"a", name+"b")
		took := time.Since(begun)
		require.NoError(t, err)
		for _, wait := range waits[len(waits)-1:] {
			require.InDelta(t, took.Seconds(), wait.Seconds(), 0.1)
		}
		require.NoError(t, leases.Release(t.Context()))
	}
}
