package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// nodeTimeout is that of the tests: on a busy machine a server may be slow for a while.
const nodeTimeout = 5 * time.Second

// independent starts n servers that do not know of each other.
func independent(t *testing.T, n int) ([]*luatomictest.Server, []redis.UniversalClient) {
	t.Helper()
	servers, clients := make([]*luatomictest.Server, n), make([]redis.UniversalClient, n)
	for i := range servers {
		servers[i] = luatomictest.StartServer(t)
		clients[i] = servers[i].Client(func(o *redis.Options) { o.ContextTimeoutEnabled, o.DialerRetries = true, 1 })
	}
	return servers, clients
}

// newQuorum makes a Quorum that is closed with the test.
func newQuorum(t *testing.T, clients []redis.UniversalClient, opts *quorum.Options) *quorum.Quorum {
	t.Helper()
	q := quorum.New(clients, opts)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

// fenceAt is the fence of the lock "x" on a server, 0 when it is not held there.
func fenceAt(t *testing.T, c redis.UniversalClient) int64 {
	t.Helper()
	info, err := lockscript.Info(t.Context(), c, lockscript.InfoParams{Lock: "lock:{x}", Queue: "lockq:{x}"})
	require.NoError(t, err)
	if !info.Held {
		return 0
	}
	return info.Fence
}

// freeAt waits until the lock "x" is free on these servers.
func freeAt(t *testing.T, clients ...redis.UniversalClient) {
	t.Helper()
	luatomictest.Eventually(t, 30*time.Second, "the lock is free everywhere", func() bool {
		for _, c := range clients {
			if fenceAt(t, c) != 0 {
				return false
			}
		}
		return true
	})
}

func TestQuorumAcquireExtendRelease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout, Note: "n"})
	lease, err := q.Try(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, lease.Err())
	require.InDelta(t, time.Minute.Seconds(), time.Until(lease.Deadline()).Seconds(), 5)
	agreed := 0
	for _, c := range clients {
		if fenceAt(t, c) >= lease.Fence() {
			agreed++
		}
	}
	require.GreaterOrEqual(t, agreed, 2, "a majority has the fence")
	_, err = q.Try(ctx, "x")
	var held *lock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "n", held.Holder)
	require.NoError(t, lease.Extend(ctx))
	require.NoError(t, lease.Release(ctx))
	require.NoError(t, lease.Release(ctx))
	require.ErrorIs(t, lease.Extend(ctx), lock.ErrLost)
	freeAt(t, clients...)
	boom := errors.New("boom")
	require.ErrorIs(t, q.Do(ctx, "x", func(ctx context.Context, next *quorum.Lease) error {
		require.NoError(t, ctx.Err())
		require.Greater(t, next.Fence(), lease.Fence())
		return boom
	}), boom)

	_, err = quorum.New(nil, nil).Try(ctx, "x")
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	_, err = newQuorum(t, clients, &quorum.Options{TTL: 1}).Try(ctx, "x")
	require.ErrorIs(t, err, lua.ErrOutOfRange)
	_, err = q.Try(ctx, "{x}")
	require.ErrorIs(t, err, lua.ErrBadName)
}

// The fence grows although the majorities share one server only, and although that
// one had the smaller fence: the guard is the second round.
func TestQuorumFenceGrowsOverChangingMajorities(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
	// The first server was ahead.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, clients[0].Set(ctx, "lock:{x}", fmt.Sprintf("2 %d 0 - - 0 0 ", ahead), time.Minute).Err())
	servers[2].Pause()
	one, err := q.Try(ctx, "x")
	require.NoError(t, err)
	require.Equal(t, ahead+1, one.Fence())
	require.NoError(t, one.Release(ctx))
	servers[2].Resume()
	servers[0].Pause()
	defer servers[0].Resume()
	two, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.Greater(t, two.Fence(), one.Fence())
	require.NoError(t, two.Release(ctx))
}

func TestQuorumSurvivesAMinority(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	servers, clients := independent(t, 5)
	q := newQuorum(t, clients, &quorum.Options{TTL: 9 * time.Second, NodeTimeout: nodeTimeout})
	servers[1].Kill()
	servers[3].Pause()
	begun := time.Now()
	lease, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	first := lease.Deadline()
	kept := lease.Keep(ctx)
	luatomictest.Eventually(t, 30*time.Second, "the lease is renewed twice", func() bool {
		return lease.Deadline().Sub(first) > 5*time.Second
	})
	require.NoError(t, kept.Err())
	_, err = q.Try(ctx, "x")
	require.ErrorIs(t, err, lock.ErrHeld)
	luatomictest.Eventually(t, 30*time.Second, "it is released", func() bool { return lease.Release(ctx) == nil })
	servers[3].Resume()
	t.Log("with two of five away:", time.Since(begun))

	// Without a majority nothing is held, and what was got is given back.
	servers[0].Kill()
	servers[3].Kill()
	_, err = q.Try(ctx, "x")
	require.ErrorIs(t, err, quorum.ErrNoQuorum)
	require.NotErrorIs(t, err, lock.ErrHeld)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = q.Acquire(short, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	freeAt(t, clients[2], clients[4])
}

// The majority goes away under a lease that is kept: the loss shows by the local clock.
func TestQuorumLeaseEndsWithItsMajority(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: 6 * time.Second, NodeTimeout: nodeTimeout})
	lease, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	kept := lease.Keep(ctx)
	servers[0].Pause()
	servers[1].Pause()
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrLost)
	require.ErrorIs(t, lease.Err(), lock.ErrLost)
	servers[0].Resume()
	servers[1].Resume()
	luatomictest.Eventually(t, 30*time.Second, "a majority answers in time", func() bool {
		return errors.Is(lease.Release(ctx), lock.ErrLost)
	})

	again, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.Greater(t, again.Fence(), lease.Fence())
	// The acquire returns with a majority; another server may grant it later.
	luatomictest.Eventually(t, 20*time.Second, "a majority does not hold it", func() bool {
		for _, c := range clients[:2] {
			require.NoError(t, c.Del(ctx, "lock:{x}").Err())
		}
		return errors.Is(again.Extend(ctx), lock.ErrLost)
	})
	require.ErrorIs(t, again.Err(), lock.ErrLost)
}

// One holder at a time, and fences only grow.
func TestQuorumExcludesContenders(t *testing.T) {
	t.Parallel()
	_, clients := independent(t, 3)
	var inside, last atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		q := newQuorum(t, clients, &quorum.Options{
			TTL: time.Minute, NodeTimeout: nodeTimeout, Poll: 5 * time.Millisecond,
		})
		wg.Go(func() {
			for range 10 {
				err := q.Do(t.Context(), "x", func(_ context.Context, lease *quorum.Lease) error {
					if n := inside.Add(1); n != 1 {
						return errors.New("two are inside")
					}
					defer inside.Add(-1)
					if before := last.Swap(lease.Fence()); before >= lease.Fence() {
						return errors.New("the fence did not grow")
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	freeAt(t, clients...)
}

// A server that comes back empty is why a lock alone is not enough: two may hold it
// until the first lease is over. The fences still tell them apart.
func TestQuorumServerThatComesBackEmpty(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
	servers[2].Kill()
	one, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	begun := time.Now()
	luatomictest.Eventually(t, 20*time.Second, "nobody asks the third any more", func() bool {
		return time.Since(begun) > nodeTimeout+500*time.Millisecond
	})
	servers[2].Restart()
	servers[1].Restart()
	two, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.Greater(t, two.Fence(), one.Fence())
	require.ErrorIs(t, one.Extend(ctx), lock.ErrLost)
	require.NoError(t, two.Release(ctx))
}

// An attempt that is cancelled leaves nothing behind.
func TestQuorumCancelledAttemptIsGivenBack(t *testing.T) {
	t.Parallel()
	servers, clients := independent(t, 3)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: 20 * time.Second})
	servers[1].Pause()
	servers[2].Pause()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := q.Try(ctx, "x")
		failed <- err
	}()
	luatomictest.Eventually(t, 15*time.Second, "one server gave it", func() bool {
		return fenceAt(t, clients[0]) > 0
	})
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	servers[1].Resume()
	servers[2].Resume()
	freeAt(t, clients...)
}
