package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
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
	luatomictest.Eventually(t, 20*time.Second, "notified of the loss", func() bool {
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

// Wait is that of the whole acquire, for the locks that it acquires after its wait for another one.
func TestTheWaitOfAcquireAllIsThatOfAllItsLocks(t *testing.T) {
	t.Parallel()
	const least = 100 * time.Millisecond
	for _, tag := range []string{"", "t"} {
		var waits []time.Duration
		queued := make(chan struct{}, 1)
		l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Tag: tag, Observe: func(e lock.Event) {
			switch e.Kind {
			case lock.EventAcquired:
				waits = append(waits, e.Wait)
			case lock.EventQueued:
				queued <- struct{}{}
			}
		}})
		held := lab.Must(lab.Locker(t, c, &lock.Options{TTL: time.Minute, Tag: tag}).Try(t.Context(), name+"b"))
		go func() {
			<-queued
			time.AfterFunc(least, func() { _ = held.Release(context.Background()) })
		}()
		begun := time.Now()
		leases, err := l.AcquireAll(t.Context(), name+"a", name+"b")
		took := time.Since(begun)
		require.NoError(t, err)
		last := waits[len(waits)-1] // the lock that was free
		require.GreaterOrEqual(t, last, least)
		require.LessOrEqual(t, last, took)
		require.NoError(t, leases.Release(t.Context()))
	}
}

// A loss that only the release finds is reported, once.
func TestObserveReportsALossThatTheReleaseFinds(t *testing.T) {
	t.Parallel()
	var events []lock.Event
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
		events = append(events, e)
	}})
	for _, acquire := range []func() (*lock.Lease, error){
		func() (*lock.Lease, error) { return l.Try(t.Context(), name) },
		func() (*lock.Lease, error) { return l.Semaphore(name, 1).Try(t.Context(), 1) },
	} {
		events = nil
		lease, err := acquire()
		require.NoError(t, err)
		require.NoError(t, c.Del(t.Context(), lease.Key()).Err())
		for range 2 {
			require.ErrorIs(t, lease.Release(t.Context()), lock.ErrLost)
		}
		require.Len(t, events, 2)
		require.Equal(t, lock.EventLost, events[1].Kind)
		require.ErrorIs(t, events[1].Err, lock.ErrLost)
		require.Positive(t, events[1].Held)
	}
}

// A lock that AcquireAll has waited for and gives back was released, not lost.
func TestAcquireAllThatFailsReportsTheReleaseOfItsLock(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	to, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(to)
	t.Cleanup(func() { _ = c.Close() })
	opts := lock.Options{TTL: time.Minute, Tag: "t"}
	other := lab.Locker(t, server.Client(), &opts)
	all, err := other.AcquireAll(t.Context(), "a", "b") // loads the scripts
	require.NoError(t, err)
	require.NoError(t, all[1].Release(t.Context()))
	var mu sync.Mutex
	var kinds []string
	opts.Observe = func(e lock.Event) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, e.Kind.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempts := 0
	proxy.Drop(1, func(args []string) bool {
		if lab.Sent(&lockscript.AcquireAllScript)(args) {
			attempts++
		}
		if attempts == 2 {
			cancel()
		}
		return attempts == 2
	})
	got := acquireAllLater(ctx, lab.Locker(t, c, &opts), "a", "b")
	lab.WaitFor(t, other, "a", 1)
	require.NoError(t, all[0].Release(t.Context()))
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", got).err, context.Canceled)
	luatomictest.Eventually(t, 20*time.Second, "the release", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(kinds, []string{"queued", "acquired", "released"})
	})
	luatomictest.Eventually(t, 20*time.Second, "both are free", func() bool {
		_, err := other.AcquireAll(t.Context(), "a", "b")
		return err == nil
	})
}
