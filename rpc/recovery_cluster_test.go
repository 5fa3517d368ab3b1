package rpc_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The keys of a bus move to another server of the cluster while it is used, and on to a
// third one and back. No call is lost, refused or run twice, and all follow the slot
// because the server says so: the lease is so long that nothing else would reveal it.
func TestRPCWhileItsSlotMigrates(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 5 * time.Minute, Timeout: time.Minute}
	var mu sync.Mutex
	runs := make(map[string]int)
	for range 3 {
		lab.Serving(t, lab.Echo, cluster.Client(), "moving", opts, func(_ context.Context, s string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			runs[s]++
			return s, nil
		})
	}
	caller := lab.OpenBus(t, cluster.Client(), "moving", opts)
	require.NoError(t, caller.Ready(ctx))

	sizes := []int{0, 0, rpc.BesideMin, 0, 100_000} // with the digits above each threshold
	stop := make(chan struct{})
	var calls sync.WaitGroup
	var done, gathers atomic.Int64
	again := func(f func(text string) error) {
		calls.Go(func() {
			for !t.Failed() {
				select {
				case <-stop:
					return
				default:
				}
				n := done.Add(1)
				text := fmt.Sprint(n) + strings.Repeat(".", sizes[n%int64(len(sizes))])
				if err := f(text); err != nil {
					t.Errorf("call %d of %d bytes: %v", n, len(text), err)
				}
			}
		})
	}
	for range 4 {
		again(func(text string) error {
			out, err := lab.Echo.Call(ctx, caller, text, nil)
			if err == nil && out != text {
				return fmt.Errorf("the answer has %d bytes", len(out))
			}
			return err
		})
	}
	again(func(text string) error {
		n := 0
		for _, err := range lab.Echo.Gather(ctx, caller, "all "+text) {
			if err != nil {
				return err
			}
			n++
		}
		gathers.Add(1)
		if n != 3 {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
	more := func(n int64) {
		calls, all := done.Load()+n, gathers.Load()+10
		luatomictest.Eventually(t, time.Minute, "calls go on",
			func() bool { return done.Load() > calls && gathers.Load() > all || t.Failed() })
	}
	for range 4 {
		more(200)
		moveSlot(t, cluster, "moving")
	}
	more(200)
	close(stop)
	calls.Wait()
	for text, n := range runs {
		want := 1
		if strings.HasPrefix(text, "all") {
			want = 3
		}
		require.Equal(t, want, n, "%.20q", text)
	}
}

// follower starts a replica of a node.
func follower(t *testing.T, cluster *luatomictest.Cluster, node int) *luatomictest.Server {
	t.Helper()
	ctx, replica := t.Context(), luatomictest.StartServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout",
		"5000")
	host, port, err := net.SplitHostPort(cluster.Nodes()[node].Addr())
	require.NoError(t, err)
	require.NoError(t, replica.Client().ClusterMeet(ctx, host, port).Err())
	master := lab.Must(cluster.Nodes()[node].Client().ClusterMyID(ctx).Result())
	luatomictest.Eventually(t, 20*time.Second, "the nodes know each other", func() bool {
		return replica.Client().ClusterReplicate(ctx, master).Err() == nil
	})
	luatomictest.Eventually(t, 20*time.Second, "the replica follows, and all know of it", func() bool {
		for _, n := range cluster.Nodes() {
			if !strings.Contains(lab.Must(n.Client().ClusterNodes(ctx).Result()), "slave") {
				return false
			}
		}
		return strings.Contains(lab.Must(replica.Client().Info(ctx, "replication").Result()),
			"master_link_status:up") &&
			strings.Contains(lab.Must(replica.Client().ClusterInfo(ctx).Result()), "cluster_state:ok")
	})
	return replica
}

// The server that owns the slot hands over to its replica, and the links of all processes follow it, also on clients
// that may read from replicas: the old master is one then. TestNothingIsReadFromAReplica holds what they read.
func TestRPCWhileAClusterFailsOver(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	_, owner := home(t, cluster, "bus")
	replica := follower(t, cluster, owner)
	reading := func() *redis.ClusterClient {
		return cluster.Client(func(o *redis.ClusterOptions) { o.ReadOnly = true })
	}
	opts := &rpc.Options{Lease: 5 * time.Minute, Timeout: time.Minute}
	for range 2 {
		lab.Serving(t, lab.Echo, reading(), "bus", opts, lab.Upper)
	}
	caller := lab.OpenBus(t, reading(), "bus", opts)
	call := func() {
		t.Helper()
		for range 20 {
			out, err := lab.Echo.Call(ctx, caller, "x", nil)
			require.NoError(t, err)
			require.Equal(t, "X", out)
		}
		n := 0
		for _, err := range lab.Echo.Gather(ctx, caller, "x") {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n)
	}
	call()
	var asked time.Time
	luatomictest.Eventually(t, time.Minute, "the replica takes over", func() bool {
		if strings.Contains(lab.Must(replica.Client().Info(ctx, "replication").Result()), "role:master") {
			return true
		}
		if time.Since(asked) > 10*time.Second { // a busy server lets an attempt time out
			asked = time.Now()
			_ = replica.Client().Do(ctx, "CLUSTER", "FAILOVER").Err()
		}
		return false
	})
	call()
	luatomictest.Eventually(t, 20*time.Second, "all are subscribed there", func() bool {
		return len(lab.Must(replica.Client().PubSubShardChannels(ctx, "*").Result())) == 4
	})
}
