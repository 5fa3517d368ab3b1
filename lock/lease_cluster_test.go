package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// keptBeside keeps the locks of each server, stops the server 0, and expects that the leases of the others are renewed
// a TTL later still, while those of the server 0 end by their own clock.
func keptBeside(t *testing.T, client redis.UniversalClient, servers []*luatomictest.Server, at func(name string) int) {
	t.Helper()
	const ttl = 6 * time.Second
	ctx := t.Context()
	l := lab.Locker(t, client, &lock.Options{TTL: ttl})
	kept, of := make(map[*lock.Lease]context.Context), make([]int, len(servers))
	for i := 0; of[0] < 3 || of[1] < 3; i++ {
		lease, err := l.Try(ctx, fmt.Sprint("kept", i))
		require.NoError(t, err)
		kept[lease] = lease.Keep(ctx)
		of[at(lease.Name())]++
	}
	servers[0].Pause()
	defer servers[0].Resume()
	stopped := time.Now()
	luatomictest.Eventually(t, 10*ttl, "each lease of another server is renewed a TTL later", func() bool {
		renewed := true
		for lease, k := range kept {
			if at(lease.Name()) != 0 {
				require.NoError(t, context.Cause(k), "%s is at a server that answers, %v after the other one stopped",
					lease.Name(), time.Since(stopped))
				renewed = renewed && lease.Deadline().After(stopped.Add(2*ttl))
			}
		}
		return renewed
	})
	for lease, k := range kept {
		if at(lease.Name()) == 0 {
			require.ErrorIs(t, context.Cause(k), lock.ErrLost, lease.Name())
		}
	}
}

// A node of a cluster that hangs ends no lease of another node, with the default options of go-redis.
func TestHungNodeEndsNoLeaseOfAnother(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx := t.Context()
	cluster := luatomictest.StartCluster(t)
	for _, n := range cluster.Nodes() {
		require.NoError(t, n.Client().ConfigSet(ctx, "cluster-require-full-coverage", "no").Err())
	}
	owners := make(map[string]int)
	keptBeside(t, cluster.Client(), cluster.Nodes(), func(name string) int {
		owner, known := owners[name]
		if !known {
			slot, err := cluster.Slot(ctx, "lock:{"+name+"}")
			require.NoError(t, err)
			owner, err = cluster.Owner(ctx, slot)
			require.NoError(t, err)
			owners[name] = owner
		}
		return owner
	})
}

// A shard of a ring that hangs ends no lease of another shard.
func TestHungShardEndsNoLeaseOfAnother(t *testing.T) {
	t.Parallel()
	servers := []*luatomictest.Server{luatomictest.StartServer(t), luatomictest.StartServer(t)}
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:              map[string]string{"0": servers[0].Addr(), "1": servers[1].Addr()},
		HeartbeatFrequency: time.Hour, // the ring does not move the keys of a shard that hangs
	})
	t.Cleanup(func() { _ = ring.Close() })
	keptBeside(t, ring, servers, func(name string) int {
		shard, err := ring.GetShardClientForKey("lock:{" + name + "}")
		require.NoError(t, err)
		if shard.Options().Addr == servers[0].Addr() {
			return 0
		}
		return 1
	})
}
