package plainlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

var _ io.Closer = (*plainlock.Locker)(nil) // as a lock.Locker is

// An Acquire that waits ends with its Locker, for the lock and for its turn, and later calls are refused.
func TestCloseEndsItsWaiters(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := bounded(t), luatomictest.Client(t), luatomictest.Namespace(t)
	holder := open(t, c, plainlock.Options{Prefix: prefix, TTL: time.Hour})
	const names = 20
	for i := range names {
		_, err := holder.Try(ctx, fmt.Sprint("x", i))
		require.NoError(t, err)
	}
	for range 10 {
		l := plainlock.New(c, &plainlock.Options{Prefix: prefix, Poll: time.Millisecond})
		ended := make(chan error, 2*names)
		for i := range 2 * names {
			go func() {
				_, err := l.Acquire(ctx, fmt.Sprint("x", i/2))
				ended <- err
			}()
		}
		time.Sleep(5 * time.Millisecond) // some of them are in an attempt, some before it, some after it
		require.NoError(t, l.Close())
		for range 2 * names {
			require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end of a waiter", ended), plainlock.ErrClosed)
		}
		_, err := l.Try(ctx, "free")
		require.ErrorIs(t, err, plainlock.ErrClosed)
		_, err = l.Acquire(ctx, "free")
		require.ErrorIs(t, err, plainlock.ErrClosed)
		require.ErrorIs(t, l.Do(ctx, "free", func(context.Context) error { return nil }), plainlock.ErrClosed)
		require.NoError(t, l.Close(), "again")
	}
}

// Close returns soon, even if a waiter waits for a server that hangs.
func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	l := plainlock.New(server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute }), nil)
	_, err := l.Try(t.Context(), "connected")
	require.NoError(t, err)
	server.Pause()
	t.Cleanup(server.Resume)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = l.Acquire(ctx, "x") // what the request may have acquired is released later
	require.ErrorIs(t, err, context.DeadlineExceeded)
	began := time.Now()
	require.NoError(t, l.Close())
	require.Less(t, time.Since(began), 30*time.Second, "go-redis itself waits for a minute")
}

// Close releases nothing; a lock can be released after it.
func TestReleaseAfterClose(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{TTL: time.Hour})
	lock, err := l.Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Extend(ctx))
	require.NoError(t, lock.Release(ctx))
	require.Zero(t, c.Exists(ctx, lock.Key()).Val())
}

// Each waiter whose context ends reports the holder, even if the waiter waited for its turn.
func TestEveryWaiterReportsWhoKeptIt(t *testing.T) {
	t.Parallel()
	ctx, c := bounded(t), luatomictest.Client(t)
	l := open(t, c, plainlock.Options{TTL: time.Hour, Poll: time.Hour})
	lock, err := l.Try(ctx, "x")
	require.NoError(t, err)
	first, stop := context.WithCancel(ctx)
	ended := make(chan error, 3)
	acquire := func(ctx context.Context) {
		_, err := l.Acquire(ctx, "x")
		ended <- err
	}
	go acquire(first)
	luatomictest.Eventually(t, time.Minute, "the first waits for the lock", func() bool {
		name := "luatomic:released:" + lock.Key()
		return c.PubSubNumSub(ctx, name).Val()[name] == 1
	})
	late, cancel := context.WithCancelCause(ctx)
	for range 2 {
		go acquire(late)
	}
	enough := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
	for range 2 {
		err := lab.Soon(t, time.Minute, "the end of a waiter", ended)
		require.ErrorIs(t, err, enough)
		var held *plainlock.HeldError
		require.ErrorAs(t, err, &held)
		require.Equal(t, "x", held.Name)
	}
	stop()
	require.ErrorIs(t, lab.Soon(t, time.Minute, "the end of the first", ended), plainlock.ErrHeld)
}
