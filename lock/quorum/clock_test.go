package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
)

// clocked starts servers whose clocks are ahead by that much.
func clocked(t *testing.T, ahead ...time.Duration) ([]*launch.Server, []redis.UniversalClient) {
	t.Helper()
	servers, clients := make([]*launch.Server, len(ahead)), make([]redis.UniversalClient, len(ahead))
	for i := range servers {
		var err error
		servers[i], err = launch.StartEmbedded()
		require.NoError(t, err)
		t.Cleanup(servers[i].Close)
		servers[i].Step(ahead[i])
		clients[i] = redis.NewClient(&redis.Options{Addr: servers[i].Addr(), ContextTimeoutEnabled: true,
			DialerRetries: 1})
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	return servers, clients
}

// With two servers both answers count, whichever is first.
func TestQuorumRefusesClocksThatDifferTooMuch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := clocked(t, 0, 35*time.Second)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
	_, err := q.Try(ctx, "x")
	require.ErrorIs(t, err, quorum.ErrClocks)
	require.ErrorContains(t, err, "may differ by 30s at most")
	freeAt(t, clients...)

	servers[1].Step(-10 * time.Second)
	lease, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
}

// A clock that is too far off is a fault of its server. A quorum leaves out a minority of such servers, in whatever
// order the servers answer: here the second one with a right clock answers last. The fences of the others grow.
func TestQuorumLeavesAMinorityOfClocksOut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, off := range []time.Duration{35 * time.Second, -35 * time.Second, 24 * time.Hour} {
		_, clients := clocked(t, 0, off, 0)
		answered := make(chan struct{}, 100)
		for _, c := range clients[:2] {
			acquiresBy(c, func(run func() error) error {
				defer func() { answered <- struct{}{} }()
				return run()
			})
		}
		acquiresBy(clients[2], func(run func() error) error {
			<-answered
			<-answered
			return run()
		})
		q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
		last := int64(0)
		for range 3 {
			lease, err := q.Try(ctx, "x")
			require.NoError(t, err, off)
			require.Greater(t, lease.Fence(), last, off)
			require.Less(t, lease.Fence(), time.Now().Add(30*time.Second).UnixMicro(), off)
			last = lease.Fence()
			_, err = newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout}).Try(ctx, "x")
			require.ErrorIs(t, err, lock.ErrHeld, off)
			require.NoError(t, lease.Release(ctx), off)
			freeAt(t, clients...)
		}
	}
}

// At the bound, the next fence is greater also when all records are deleted and the server that was ahead is away.
func TestQuorumFenceGrowsWithinTheBoundOfTheClocks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := clocked(t, 0, 28*time.Second, 0)
	opts := &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout}
	servers[2].Close()
	one, err := newQuorum(t, clients, opts).Acquire(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, one.Release(ctx))
	servers[1].Close()
	servers[0].Step(61 * time.Second)
	require.Zero(t, clients[0].Exists(ctx, "lock:{x}").Val(), "no record is left")
	fresh, others := clocked(t, 61*time.Second)
	defer fresh[0].Close()
	two, err := newQuorum(t, []redis.UniversalClient{clients[0], clients[1], others[0]}, opts).Acquire(ctx, "x")
	require.NoError(t, err)
	require.Greater(t, two.Fence(), one.Fence())
	require.NoError(t, two.Release(ctx))
}

// The fence grows for a Quorum that knows the last one, also where no server has a record and all clocks were set back.
func TestQuorumFenceGrowsForAProcessThatKnowsTheLast(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	servers, clients := clocked(t, 0, 0, 0)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
	one, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.NoError(t, one.Release(ctx))
	freeAt(t, clients...)
	for i, s := range servers {
		require.NoError(t, clients[i].Del(ctx, "lock:{x}").Err())
		s.Step(-10 * time.Second)
	}
	two, err := q.Acquire(ctx, "x")
	require.NoError(t, err)
	require.Greater(t, two.Fence(), one.Fence())
	require.NoError(t, two.Release(ctx))
}

// A fence that no script counts beyond is that of its own lock: the Quorum goes on with the others.
func TestQuorumBelievesNoFenceOutOfRange(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, clients := clocked(t, 0, 0, 0)
	q := newQuorum(t, clients, &quorum.Options{TTL: time.Minute, NodeTimeout: nodeTimeout})
	const last uint64 = 1<<52 - 1
	for _, c := range clients {
		require.NoError(t, c.Set(ctx, "lock:{x}", fmt.Sprintf("2 %d 0 - - 0 0 ", last), time.Minute).Err())
	}
	one, err := q.Try(ctx, "x")
	require.NoError(t, err)
	require.EqualValues(t, last+1, one.Fence())
	require.NoError(t, one.Release(ctx))
	other, err := q.Try(ctx, "y")
	require.NoError(t, err)
	require.Less(t, other.Fence(), one.Fence())
	require.NoError(t, other.Release(ctx))
}
