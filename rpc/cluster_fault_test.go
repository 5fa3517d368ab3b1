package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The keys of a bus move to another server of the cluster while it is used, and on to a
// third one and back. No call is lost, refused or run twice, and all follow the slot
// because the server says so: the lease is so long that nothing else would tell them.
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
				text := fmt.Sprint(done.Add(1))
				if err := f(text); err != nil {
					t.Errorf("call %s: %v", text, err)
				}
			}
		})
	}
	for range 4 {
		again(func(text string) error {
			out, err := lab.Echo.Call(ctx, caller, text)
			if err == nil && out != text {
				return errors.New("the answer is " + out)
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
		luatomictest.Eventually(t, time.Minute, "calls go on", func() bool { return done.Load() > calls && gathers.Load() > all || t.Failed() })
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
		require.Equal(t, want, n, "%q", text)
	}
}

// A node follows its slot later than the caller. What is sent meanwhile is kept for it
// and not refused: it has said nothing for a moment, and is not dead.
func TestRPCNodeThatFollowsItsSlotLate(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 2 * time.Minute, Timeout: 29 * time.Second} // no look comes in time
	var d door
	node := lab.Serving(t, lab.Echo, d.client(cluster), "late", opts, lab.Upper)
	caller := lab.OpenBus(t, cluster.Client(), "late", opts)
	_, err := lab.Echo.Call(ctx, caller, "before")
	require.NoError(t, err)

	d.set(true)
	_, from := home(t, cluster, "late")
	moveSlot(t, cluster, "late")
	luatomictest.Eventually(t, 20*time.Second, "the caller has followed", func() bool {
		return len(lab.Must(cluster.Nodes()[(from+1)%3].Client().PubSubShardChannels(ctx, "*").Result())) == 2
	})
	results := make(chan error, 3)
	call := func(f func() (string, error)) {
		go func() {
			out, err := f()
			if err == nil && out != "X" {
				err = errors.New(out)
			}
			results <- err
		}()
	}
	call(func() (string, error) { return lab.Echo.Call(ctx, caller, "x") })
	call(func() (string, error) {
		return lab.Echo.CallWith(ctx, caller, "x", &rpc.CallOptions{Node: node.Node()})
	})
	call(func() (out string, err error) {
		for p, e := range lab.Echo.Gather(ctx, caller, "x") {
			out, err = p.Result, e
		}
		return out, err
	})
	select {
	case err := <-results:
		t.Fatalf("it has an answer already: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	d.set(false)
	for range 3 {
		require.NoError(t, <-results)
	}
}

// A migration that stands still: the keys are there, and who listens is here. What was
// sent before has its answer, and the nodes do not subscribe anew all the time.
func TestRPCWhileAMigrationStandsStill(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	opts := &rpc.Options{Lease: 6 * time.Second, Timeout: time.Minute}
	entered, leave := make(chan struct{}), make(chan struct{})
	node := lab.Serving(t, hold, cluster.Client(), "still", opts, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return "done", nil
	})
	require.NoError(t, lab.Echo.Serve(node, lab.Upper))
	caller := lab.OpenBus(t, cluster.Client(), "still", opts)
	require.NoError(t, caller.Ready(ctx))
	answer := make(chan error, 1)
	go func() {
		_, err := hold.Call(ctx, caller, "x")
		answer <- err
	}()
	<-entered
	slot, from := home(t, cluster, "still")
	m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
	require.NoError(t, err)
	for {
		n, err := m.Move(ctx, 100)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	close(leave)
	require.NoError(t, <-answer)

	source := cluster.Nodes()[from].Client()
	before := lab.CommandCalls(t, source)["ssubscribe"]
	luatomictest.Eventually(t, 30*time.Second, "they find that nobody hears them", func() bool {
		return lab.CommandCalls(t, source)["ssubscribe"] >= before+4
	})
	<-time.After(2 * time.Second)
	require.Less(t, lab.CommandCalls(t, source)["ssubscribe"], before+60, "each twice as late, then once for each sign of life")
	require.ErrorIs(t, lab.Echo.Cast(ctx, caller, "x"), rpc.ErrNoResponders, "a cast is not kept")
	luatomictest.Eventually(t, 20*time.Second, "it leaves its link alone", func() bool { return node.Deaf() >= 100*time.Millisecond })
	require.NoError(t, m.Finish(ctx))
	out, err := lab.Echo.Call(ctx, caller, "x")
	require.NoError(t, err)
	require.Equal(t, "X", out)
	luatomictest.Eventually(t, 30*time.Second, "the next time it is quick again", func() bool { return node.Deaf() == 0 })
}

// follower starts a replica of a node.
func follower(t *testing.T, cluster *luatomictest.Cluster, node int) *luatomictest.Server {
	t.Helper()
	ctx, replica := t.Context(), luatomictest.StartServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
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
		return strings.Contains(lab.Must(replica.Client().Info(ctx, "replication").Result()), "master_link_status:up") &&
			strings.Contains(lab.Must(replica.Client().ClusterInfo(ctx).Result()), "cluster_state:ok")
	})
	return replica
}

// The server that owns the slot hands over to its replica. The processes may read from
// replicas; their links lead to the master all the same, and follow it.
func TestRPCWhileAClusterFailsOver(t *testing.T) {
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
			out, err := lab.Echo.Call(ctx, caller, "x")
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
	luatomictest.Eventually(t, 20*time.Second, "all listen there", func() bool {
		return len(lab.Must(replica.Client().PubSubShardChannels(ctx, "*").Result())) == 4
	})
}
