package quorum_test

import (
	"context"
	"io"
	"sync/atomic"
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

// lossy leads the first client through a proxy.
func lossy(t *testing.T, servers []*luatomictest.Server, clients []redis.UniversalClient) *luatomictest.LossyProxy {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, servers[0].URL())
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	clients[0] = c
	return proxy
}

// A release whose reply is lost is repeated. That it finds nothing is no loss, unless the lock was taken away.
func TestQuorumReleaseWhoseReplyIsLostIsNoLoss(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for what, revoked := range map[string]bool{"held": false, "taken away": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers, clients := independent(t, 3)
			proxy := lossy(t, servers, clients)
			_, err := lab.Locker(t, clients[2], &lock.Options{TTL: time.Hour}).Try(ctx, "x") // the others decide
			require.NoError(t, err)
			q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
			lease, err := q.Acquire(ctx, "x") // loads the scripts
			require.NoError(t, err)
			require.NoError(t, lease.Release(ctx))
			lease, err = q.Acquire(ctx, "x")
			require.NoError(t, err)
			proxy.Drop(1, lab.Sent(&lockscript.ReleaseScript))
			if revoked {
				_, err := lab.Locker(t, servers[0].Client(), nil).ForceRelease(ctx, "x", 0)
				require.NoError(t, err)
				require.ErrorIs(t, lease.Release(ctx), lock.ErrLost)
			} else {
				require.NoError(t, lease.Release(ctx))
			}
			require.EqualValues(t, 1, proxy.Stats().Lost)
		})
	}
}

// A release that failed is tried again. A server that has released the lock already counts, also where the first call
// released it later than it returned.
func TestQuorumReleaseThatIsTriedAgainCountsWhoHasReleased(t *testing.T) {
	t.Parallel()
	for what, down := range map[string]error{"that refuses": refusal("NOPERM"), "that does not answer": io.EOF} {
		t.Run("a server "+what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			_, clients := independent(t, 3)
			var fails [3]atomic.Bool
			for i, c := range clients {
				c.AddHook(&lab.Around{Sha: lab.Digest(&lockscript.ReleaseScript), Do: func(run func() error) error {
					if fails[i].Load() {
						return down
					}
					return run()
				}})
			}
			q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: 3 * time.Second})
			lease, err := q.Acquire(ctx, "x") // loads the scripts
			require.NoError(t, err)
			require.NoError(t, lease.Release(ctx))
			freeAt(t, clients...)
			lease, err = q.Acquire(ctx, "x")
			require.NoError(t, err)
			luatomictest.Eventually(t, 20*time.Second, "all three have it", func() bool {
				return fenceAt(t, clients[0]) != 0 && fenceAt(t, clients[1]) != 0 && fenceAt(t, clients[2]) != 0
			})
			fails[1].Store(true)
			fails[2].Store(true)
			require.ErrorIs(t, lease.Release(ctx), quorum.ErrNoQuorum)
			require.Zero(t, fenceAt(t, clients[0]), "one has released it")
			fails[1].Store(false)
			require.NoError(t, lease.Release(ctx))
		})
	}
}

// refusal is an error of a server.
type refusal string

func (r refusal) Error() string { return string(r) + " this user has no permissions" }
func (refusal) RedisError()     {}

// A request of an acquire that was sent twice can arrive once more, after the lease. It holds nothing.
func TestACopyOfAnAcquireOfAQuorumHoldsNothing(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*testing.T, *quorum.Lease, []redis.UniversalClient){
		"released": func(t *testing.T, lease *quorum.Lease, _ []redis.UniversalClient) {
			require.NoError(t, lease.Release(t.Context()))
		},
		"lost": func(t *testing.T, lease *quorum.Lease, clients []redis.UniversalClient) {
			for _, c := range clients {
				require.NoError(t, c.Del(t.Context(), lease.Key()).Err())
			}
			require.ErrorIs(t, lease.Extend(t.Context()), lock.ErrLost)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers, clients := independent(t, 3)
			proxy := lossy(t, servers, clients)
			q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
			proxy.Drop(1, lab.Sent(&lockscript.AcquireScript))
			lease, err := q.Acquire(t.Context(), "x")
			require.NoError(t, err)
			luatomictest.Eventually(t, 20*time.Second, "all three have it", func() bool {
				return fenceAt(t, clients[0]) != 0 && fenceAt(t, clients[1]) != 0 && fenceAt(t, clients[2]) != 0
			})
			end(t, lease, clients)
			luatomictest.Eventually(t, 5*time.Second, "its token is void", func() bool {
				r, err := lockscript.Acquire(t.Context(), clients[0], lockscript.AcquireParams{
					Lock: lease.Key(), Queue: "lockq:{x}", TTL: time.Millisecond,
					Own: " " + lease.Token() + " 0 60000 ",
				})
				require.NoError(t, err)
				return r.Place == lockscript.AcquirePlaceVoid
			})
		})
	}
}
