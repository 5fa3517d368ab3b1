package quorum_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/luatomictest"
)

// A release without a majority of answers goes on. One that is tried again finds what the first has released, which is
// no loss.
func TestQuorumReleaseThatIsTriedAgainFindsItsOwn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: 500 * time.Millisecond})
	lease, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	servers[0].Pause()
	servers[1].Pause()
	err = lease.Release(ctx)
	require.ErrorIs(t, err, quorum.ErrNoQuorum)
	require.NotErrorIs(t, err, lock.ErrLost)
	servers[0].Resume()
	servers[1].Resume()
	freeAt(t, clients...)
	luatomictest.Eventually(t, 30*time.Second, "a majority answers in time", func() bool {
		err := lease.Release(ctx)
		require.NotErrorIs(t, err, lock.ErrLost)
		return err == nil
	})
}

// An extension ends with its context, although servers have more time to answer.
func TestQuorumExtendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	servers, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: 20 * time.Second})
	lease, err := q.Acquire(t.Context(), "x")
	require.NoError(t, err)
	for _, s := range servers {
		s.Pause()
		defer s.Resume()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	require.ErrorIs(t, lease.Extend(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 10*time.Second)
	require.NoError(t, lease.Err())
	require.ErrorIs(t, lease.Extend(ctx), context.DeadlineExceeded, "a context that has ended")
}
