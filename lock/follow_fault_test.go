package lock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// replaced is a cluster of one master, which is replaced by its replica at another address.
type replaced struct {
	addr            atomic.Value // of the master
	master, replica *luatomictest.Server
}

func newReplaced(t *testing.T) *replaced {
	r := &replaced{master: luatomictest.StartServer(t), replica: luatomictest.StartServer(t)}
	r.addr.Store(r.master.Addr())
	host, port, err := net.SplitHostPort(r.master.Addr())
	require.NoError(t, err)
	require.NoError(t, r.replica.Client().Do(t.Context(), "REPLICAOF", host, port).Err())
	return r
}

func (r *replaced) locker(t *testing.T) *lock.Locker {
	c := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			master := redis.ClusterNode{Addr: r.addr.Load().(string)}
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{master}}}, nil
		},
		ReadTimeout: time.Second, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = c.Close() })
	return lab.Locker(t, c, &lock.Options{TTL: 5 * time.Minute})
}

// failover kills the master once the replica has the key, and waits until the replica serves all that was subscribed.
func (r *replaced) failover(t *testing.T, key string, channels int) {
	ctx, replica := t.Context(), r.replica.Client()
	luatomictest.Eventually(t, 20*time.Second, "the replica has "+key, func() bool {
		return replica.Exists(ctx, key).Val() == 1
	})
	require.NoError(t, replica.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	r.addr.Store(r.replica.Addr())
	r.master.Kill()
	luatomictest.Eventually(t, 20*time.Second, "all is subscribed at the new master", func() bool {
		return len(replica.PubSubChannels(ctx, "*").Val()) == channels
	})
}

// A waiter of a master that was replaced keeps its place in the queue, and a release hands the lock to it.
func TestAWaiterFollowsAMasterThatIsReplaced(t *testing.T) {
	t.Parallel()
	r := newReplaced(t)
	l, other := r.locker(t), r.locker(t)
	held := lab.Must(other.Try(t.Context(), "x"))
	got := lab.AcquireLater(t.Context(), l, "x")
	lab.WaitFor(t, other, "x", 1)
	r.failover(t, "lockq:{x}", 1)
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, lab.Soon(t, 5*time.Second, "the lock, which is handed over", got).Err)
}

// The holder of a lease that is kept, and the observer of an election, are notified by a master that was replaced.
func TestNotificationsFollowAMasterThatIsReplaced(t *testing.T) {
	t.Parallel()
	ctx, r := t.Context(), newReplaced(t)
	l, other := r.locker(t), r.locker(t)
	kept := lab.Must(l.Try(ctx, "x")).Keep(ctx)
	leader := make(chan lock.Leader, 10)
	go func() {
		for who, err := range l.Election("e").Observe(ctx) {
			if err == nil {
				leader <- who
			}
		}
	}()
	require.Zero(t, lab.Soon(t, 5*time.Second, "that nobody leads", leader))
	luatomictest.Eventually(t, 20*time.Second, "both are subscribed", func() bool {
		return len(r.master.Client().PubSubChannels(ctx, "*").Val()) == 2
	})
	r.failover(t, "lock:{x}", 2)
	_, err := other.Steal(ctx, "x")
	require.NoError(t, err)
	lab.Soon(t, 5*time.Second, "the end of the lease", kept.Done())
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
	_, err = other.Election("e").Campaign(ctx, "me")
	require.NoError(t, err)
	for who := (lock.Leader{}); who.Value != "me"; {
		who = lab.Soon(t, 5*time.Second, "the leader", leader)
	}
}

// The first lease that is kept finds no server to subscribe at. Its holder is notified all the same, later.
func TestTheHolderOfALeaseIsNotifiedAfterAnOutage(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	open := func() (*redis.Ring, *lock.Locker) {
		ring := redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"one": server.Addr()}, HeartbeatFrequency: 50 * time.Millisecond,
			ReadTimeout: 200 * time.Millisecond, DialTimeout: 200 * time.Millisecond,
		})
		t.Cleanup(func() { _ = ring.Close() })
		return ring, lab.Locker(t, ring, &lock.Options{TTL: 5 * time.Minute})
	}
	ring, l := open()
	lease := lab.Must(l.Try(ctx, "x"))
	server.Pause()
	t.Cleanup(server.Resume)
	luatomictest.Eventually(t, 20*time.Second, "the Ring has no shard", func() bool { return ring.Len() == 0 })
	kept := lease.Keep(ctx)
	server.Resume()
	luatomictest.Eventually(t, 20*time.Second, "it is subscribed", func() bool {
		return len(server.Client().PubSubChannels(ctx, "*").Val()) == 1
	})
	luatomictest.Eventually(t, 20*time.Second, "the Ring has its shard", func() bool { return ring.Len() == 1 })
	_, other := open()
	_, err := other.Steal(ctx, "x")
	require.NoError(t, err)
	lab.Soon(t, 5*time.Second, "the end of the lease", kept.Done())
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked)
}
