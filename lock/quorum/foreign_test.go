package quorum_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// foreign stores something else under a key of the lock "x", and says how a call reports that.
var foreign = map[string]struct {
	store  func(ctx context.Context, c redis.UniversalClient) error
	report error
}{
	"a value of another program": {func(ctx context.Context, c redis.UniversalClient) error {
		return c.Set(ctx, "lock:{x}", "foreign", 0).Err()
	}, lock.ErrNotALock},
	"a key of another type": {func(ctx context.Context, c redis.UniversalClient) error {
		return c.Do(ctx, "LPUSH", "lock:{x}", "foreign").Err()
	}, lua.ErrWrongType},
}

// No attempt changes a key that holds something else: so an Acquire does not wait for that.
func TestAQuorumReportsKeysThatHoldSomethingElse(t *testing.T) {
	t.Parallel()
	for what, of := range foreign {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, clients := independent(t, 3)
			q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
			require.NoError(t, of.store(ctx, clients[0]))
			lease, err := q.Acquire(ctx, "x")
			require.NoError(t, err, "a majority is left")
			require.NoError(t, lease.Release(ctx))
			freeAt(t, clients[1:]...)

			require.NoError(t, clients[1].Del(ctx, "lock:{x}").Err())
			require.NoError(t, of.store(ctx, clients[1]))
			for call, err := range map[string]error{
				"Try": second(q.Try(ctx, "x")), "Acquire": second(q.Acquire(ctx, "x")), "Do": q.Do(ctx, "x", nil),
			} {
				require.ErrorIs(t, err, of.report, call)
				require.NotErrorIs(t, err, quorum.ErrNoQuorum, call)
				require.ErrorContains(t, err, "lock:{x}", call)
			}
			require.NoError(t, ctx.Err())
			freeAt(t, clients[2])
		})
	}
}

// One server has a key of something else, and one refuses for a while: that one decides.
func TestAnAcquireOfAQuorumWaitsForAServerBesideOneWhoseKeyHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, clients := independent(t, 3)
	require.NoError(t, clients[0].Set(ctx, "lock:{x}", "foreign", 0).Err())
	var refusals atomic.Int32
	acquiresBy(clients[1], func(run func() error) error {
		if refusals.Add(1) <= 3 {
			return refusal("NOPERM")
		}
		return run()
	})
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
	_, err := q.Try(ctx, "x")
	require.ErrorIs(t, err, quorum.ErrNoQuorum)
	require.ErrorIs(t, err, lock.ErrNotALock, "it is among the reasons")
	lease, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.Greater(t, refusals.Load(), int32(3))
	require.NoError(t, lease.Release(ctx))
}

func second(_ *quorum.Lease, err error) error { return err }

// The keys of a lease come to hold something else. Whether the lease is over then, nobody knows.
func TestALeaseOfAQuorumReportsKeysThatHoldSomethingElse(t *testing.T) {
	t.Parallel()
	for what, of := range foreign {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			_, clients := independent(t, 3)
			q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
			lease, err := q.Acquire(ctx, "x")
			require.NoError(t, err)
			luatomictest.Eventually(t, 20*time.Second, "all three have it", func() bool {
				return fenceAt(t, clients[0]) != 0 && fenceAt(t, clients[1]) != 0 && fenceAt(t, clients[2]) != 0
			})
			for _, c := range clients[:2] {
				require.NoError(t, c.Del(ctx, "lock:{x}").Err())
				require.NoError(t, of.store(ctx, c))
			}
			for call, err := range map[string]error{"Extend": lease.Extend(ctx), "Release": lease.Release(ctx)} {
				require.ErrorIs(t, err, of.report, call)
				require.NotErrorIs(t, err, quorum.ErrNoQuorum, call)
				require.ErrorContains(t, err, "lock:{x}", call)
			}
		})
	}
}
