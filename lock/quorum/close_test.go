package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/luatomictest"
)

// An Acquire that waits ends with its Quorum, however many there are, and later calls are refused.
func TestQuorumCloseEndsItsWaiters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, clients := independent(t, 3)
	holder := newQuorum(t, clients, &quorum.Options{TTL: time.Hour, NodeTimeout: nodeTimeout})
	const waiters = 40
	for i := range waiters {
		_, err := holder.Try(ctx, fmt.Sprint("x", i))
		require.NoError(t, err)
	}
	for n := range 10 {
		poll := []time.Duration{time.Millisecond, time.Hour}[n%2] // waiters that try, waiters that sleep
		q := quorum.New(clients, &quorum.Options{Poll: poll, NodeTimeout: nodeTimeout})
		ended := make(chan error, waiters)
		for i := range waiters {
			go func() {
				_, err := q.Acquire(ctx, fmt.Sprint("x", i))
				ended <- err
			}()
		}
		time.Sleep(5 * time.Millisecond) // some of them are in an attempt, some before it, some after it
		require.NoError(t, q.Close())
		for range waiters {
			require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end of a waiter", ended), lock.ErrClosed)
		}
		_, err := q.Try(ctx, "free")
		require.ErrorIs(t, err, lock.ErrClosed)
		_, err = q.Acquire(ctx, "free")
		require.ErrorIs(t, err, lock.ErrClosed)
		require.ErrorIs(t, q.Do(ctx, "free", func(context.Context, *quorum.Lease) error { return nil }), lock.ErrClosed)
		require.NoError(t, q.Close(), "a second Close")
	}
}

// An attempt to which no server answers ends with the Quorum too, and what it may have acquired is released.
func TestQuorumCloseEndsAnAttempt(t *testing.T) {
	t.Parallel()
	servers, clients := independent(t, 3)
	q := quorum.New(clients, &quorum.Options{TTL: time.Hour, NodeTimeout: time.Minute})
	for _, s := range servers[:2] {
		s.Pause()
	}
	ended := make(chan error, 1)
	go func() {
		_, err := q.Acquire(t.Context(), "x")
		ended <- err
	}()
	luatomictest.Eventually(t, 30*time.Second, "one server has granted it", func() bool {
		return fenceAt(t, clients[2]) != 0
	})
	closed := make(chan error, 1)
	go func() { closed <- q.Close() }()
	require.ErrorIs(t, lab.Soon(t, 30*time.Second, "the end of Acquire", ended), lock.ErrClosed)
	for _, s := range servers[:2] {
		s.Resume()
	}
	require.NoError(t, lab.Soon(t, 90*time.Second, "the end of Close", closed))
	freeAt(t, clients...)
}

// Close releases nothing; a lease can be released after it, as that of one server.
func TestQuorumReleaseAfterClose(t *testing.T) {
	t.Parallel()
	_, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Hour, NodeTimeout: nodeTimeout})
	lease, err := q.Try(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, q.Close())
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Extend(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
	freeAt(t, clients...)
}
