package quorum_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/luatomictest"
)

// acquiresBy has each acquire at the server made by do.
func acquiresBy(c redis.UniversalClient, do func(run func() error) error) {
	c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.AcquireScript), Do: do})
}

// One server refuses at once, and a majority says that the lock is held, one of them a little later: the error says
// who holds it, not that there was no majority.
func TestQuorumReportsTheHolderAlsoWhereARefusalIsFaster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, clients := clocked(t, 0, 0, 0)
	opts := quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout, Note: "worker-7"}
	holder := newQuorum(t, clients, &opts)
	_, err := holder.Acquire(ctx, "x")
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "all three have it", func() bool {
		return fenceAt(t, clients[0]) != 0 && fenceAt(t, clients[1]) != 0 && fenceAt(t, clients[2]) != 0
	})
	acquiresBy(clients[0], func(func() error) error { return refusal("NOPERM") })
	acquiresBy(clients[2], func(run func() error) error {
		time.Sleep(50 * time.Millisecond) // a slow server: the others have answered before
		return run()
	})
	_, err = newQuorum(t, clients, &opts).Try(ctx, "x")
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "worker-7", held.Holder)
	require.NotErrorIs(t, err, quorum.ErrNoQuorum)

	acquiresBy(clients[1], func(func() error) error { return refusal("NOPERM") })
	_, err = newQuorum(t, clients, &opts).Try(ctx, "x")
	require.ErrorIs(t, err, quorum.ErrNoQuorum)
	require.NotErrorIs(t, err, lock.ErrHeld)
}

// What one server says decides nothing: the answers that are missing do.
func TestQuorumWaitsForTheAnswersThatDecideAndForNoOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, clients := clocked(t, 0, 0, 0)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: 20 * time.Second})
	_, err := lab.Locker(t, clients[0], &lock.Options{TTL: time.Hour}).Try(ctx, "x")
	require.NoError(t, err)
	acquiresBy(clients[2], func(run func() error) error {
		time.Sleep(50 * time.Millisecond) // a slow server: the others have answered before
		return run()
	})
	lease, err := q.Try(ctx, "x")
	require.NoError(t, err, "the last one decides")
	require.NoError(t, lease.Release(ctx))

	answer := make(chan struct{})
	defer close(answer)
	for _, c := range clients[:2] {
		acquiresBy(c, func(func() error) error { return refusal("NOPERM") })
	}
	acquiresBy(clients[2], func(run func() error) error {
		<-answer
		return run()
	})
	begun := time.Now()
	_, err = q.Try(ctx, "y")
	require.ErrorIs(t, err, quorum.ErrNoQuorum)
	require.Less(t, time.Since(begun), 10*time.Second, "the last one cannot decide")
}
