package locktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/locktest"
	"github.com/luatomic/luatomic/luatomictest"
)

// locks is an interface that a program would write for itself.
type locks interface {
	Try(ctx context.Context, name string) (*lock.Lease, error)
	Acquire(ctx context.Context, name string) (*lock.Lease, error)
	Do(ctx context.Context, name string, f func(context.Context, *lock.Lease) error) error
	TryDo(ctx context.Context, name string, f func(context.Context, *lock.Lease) error) error
}

// faults are what others do to a lock: by command in memory, in fact on a server.
type faults struct {
	locks
	hold, steal func() *lock.Lease
	lose        func()
}

// onServer is a Locker of the shared server. A lost lease is noticed by its renewal, a third of the TTL later.
func onServer(t *testing.T, name string) faults {
	client := luatomictest.Client(t)
	newLocker := func(note string) *lock.Locker {
		l := lock.New(client, &lock.Options{TTL: 15 * time.Second, Claim: time.Minute, Note: note})
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return l
	}
	other := newLocker("another process")
	get := func(take func(context.Context, string) (*lock.Lease, error)) *lock.Lease {
		lease, err := take(context.Background(), name)
		require.NoError(t, err)
		return lease
	}
	return faults{
		newLocker("me"), func() *lock.Lease { return get(other.Try) }, func() *lock.Lease { return get(other.Steal) },
		func() { require.NoError(t, client.Del(context.Background(), "lock:{"+name+"}").Err()) },
	}
}

// inMemory is the double. With a TTL of a day nothing is noticed by a renewal that is due.
func inMemory(t *testing.T, name string) faults {
	l := locktest.New(t, &lock.Options{TTL: 24 * time.Hour, Claim: time.Minute, Note: "me"})
	return faults{
		l, func() *lock.Lease { return l.Hold(name) }, func() *lock.Lease { return l.Steal(name) },
		func() { l.Lose(name) },
	}
}

// The contract of a Locker, for both.
var lockContract = map[string]func(t *testing.T, l faults, name string){
	"try": func(t *testing.T, l faults, name string) {
		first, err := l.Try(t.Context(), name)
		require.NoError(t, err)
		_, err = l.Try(t.Context(), name)
		var held *lock.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "me", held.Holder)
		require.NoError(t, first.Extend(t.Context()))
		require.NoError(t, first.Release(t.Context()))
		require.NoError(t, first.Release(t.Context()))
		next, err := l.Try(t.Context(), name)
		require.NoError(t, err)
		require.Greater(t, next.Fence(), first.Fence())
		require.NoError(t, next.Release(t.Context()))
	},
	"acquire waits for another process": func(t *testing.T, l faults, name string) {
		other := l.hold()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, name)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "another process")
		go func() { _ = other.Release(context.Background()) }()
		lease, err := l.Acquire(t.Context(), name)
		require.NoError(t, err)
		require.Greater(t, lease.Fence(), other.Fence())
		require.NoError(t, lease.Release(t.Context()))
	},
	"every waiter is served": func(t *testing.T, l faults, name string) {
		other := l.hold()
		served := make(chan int, 3)
		for i := range 3 {
			go func() {
				_ = l.Do(t.Context(), name, func(context.Context, *lock.Lease) error { served <- i; return nil })
			}()
		}
		require.NoError(t, other.Release(t.Context()))
		require.ElementsMatch(t, []int{0, 1, 2}, []int{<-served, <-served, <-served})
	},
	"stolen under Do": func(t *testing.T, l faults, name string) {
		err := l.Do(t.Context(), name, func(ctx context.Context, lease *lock.Lease) error {
			thief := l.steal()
			ended(t, ctx)
			require.ErrorIs(t, context.Cause(ctx), lock.ErrRevoked)
			require.Greater(t, thief.Fence(), lease.Fence())
			return ctx.Err()
		})
		require.ErrorIs(t, err, lock.ErrRevoked)
		require.ErrorIs(t, err, lock.ErrLost)
	},
	"lost under Do": func(t *testing.T, l faults, name string) {
		err := l.Do(t.Context(), name, func(ctx context.Context, _ *lock.Lease) error {
			l.lose()
			ended(t, ctx)
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			return nil
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.NotErrorIs(t, err, lock.ErrRevoked)
		require.NoError(t, l.TryDo(t.Context(), name, func(context.Context, *lock.Lease) error { return nil }))
	},
	"lost while it is not kept": func(t *testing.T, l faults, name string) {
		lease, err := l.Try(t.Context(), name)
		require.NoError(t, err)
		l.lose()
		require.NoError(t, lease.Err(), "nothing has notified it")
		require.ErrorIs(t, lease.Release(t.Context()), lock.ErrLost)
	},
	"TryDo runs alone": func(t *testing.T, l faults, name string) {
		boom := errors.New("boom")
		require.ErrorIs(t, l.TryDo(t.Context(), name, func(ctx context.Context, _ *lock.Lease) error {
			require.ErrorIs(t, l.TryDo(ctx, name, func(context.Context, *lock.Lease) error {
				t.Error("it is held")
				return nil
			}), lock.ErrHeld)
			return boom
		}), boom)
		lease, err := l.Try(t.Context(), name)
		require.NoError(t, err, "it was released")
		require.NoError(t, lease.Release(t.Context()))
	},
}

func ended(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the context lives on")
	}
}

func TestLocksInMemoryKeepTheContractOfTheServer(t *testing.T) {
	t.Parallel()
	for what, check := range lockContract {
		for where, start := range map[string]func(*testing.T, string) faults{"server": onServer, "memory": inMemory} {
			t.Run(where+"/"+what, func(t *testing.T) {
				t.Parallel()
				name := luatomictest.Namespace(t)
				check(t, start(t, name), name)
			})
		}
	}
}

// A command to a lock ends its own lease and no other.
func TestLoseEndsOneLease(t *testing.T) {
	t.Parallel()
	l := locktest.New(t, nil)
	require.NoError(t, l.Do(t.Context(), "a", func(a context.Context, _ *lock.Lease) error {
		require.ErrorIs(t, l.Do(a, "b", func(b context.Context, _ *lock.Lease) error {
			l.Lose("b")
			ended(t, b)
			return nil
		}), lock.ErrLost)
		l.Lose("none")
		return a.Err()
	}))
	_, err := l.Try(t.Context(), "{bad}")
	require.Error(t, err)
}

func TestLoseIsSeenOnAConnectionWhoseCutIsNot(t *testing.T) {
	t.Parallel()
	for range 5 {
		l := locktest.NewBlind(t, &lock.Options{TTL: 24 * time.Hour})
		lease, err := l.Try(t.Context(), "x")
		require.NoError(t, err)
		l.Lose("x")
		require.ErrorIs(t, lease.Release(t.Context()), lock.ErrLost)
	}
}

// A lock that nobody holds has a fence to lose, where it has an afterlife.
func TestLoseDoesNothingToAFreeLock(t *testing.T) {
	t.Parallel()
	l := locktest.New(t, &lock.Options{Afterlife: time.Hour})
	lease, err := l.Try(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	l.Lose("x")
	info, err := l.Info(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, lease.Fence(), info.Fence)
}
