package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Shards are on all nodes of a cluster. While the slot of one is half-way to another node its jobs wait. In the end
// each job has finished once.
func TestShardsWhileASlotMigrates(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	s, err := queue.NewShards(c, "spread", 8, nil)
	require.NoError(t, err)
	nodes := make(map[int]int)
	for _, q := range s.Queues() {
		slot, err := cluster.Slot(ctx, lab.Key(q, "r"))
		require.NoError(t, err)
		node, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		nodes[node]++
	}
	require.Len(t, nodes, 3)

	const total, batch = 2000, 50
	work, stop := context.WithCancel(ctx)
	defer stop()
	consumed, ended := queue.Consumed{}, make(chan struct{})
	var mu sync.Mutex
	runs := make(map[string]int)
	go func() {
		defer close(ended)
		consumed, _ = s.Consume(work, nil, func(_ context.Context, d *queue.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			runs[d.ID]++
			return nil
		})
	}()
	pushed, failed := atomic.Int64{}, make(chan error, 1)
	go func() {
		for range total / batch {
			out, err := s.Push(ctx, lab.Bodies(batch)...)
			if pushed.Add(int64(out.Ready)); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	luatomictest.Eventually(t, 30*time.Second, "some work is done", func() bool { return pushed.Load() > 200 })
	migrate(t, cluster, s.Queues()[3], &pushed)
	require.NoError(t, <-failed)
	require.Equal(t, int64(total), pushed.Load())
	luatomictest.Eventually(t, 60*time.Second, "all is done", func() bool {
		left, err := s.Stats(ctx)
		return err == nil && left.Ready+left.Scheduled+left.Leased == 0
	})
	stop()
	<-ended
	consumed.Retried = 0 // a busy machine may keep a handler for so long that its consumer returns others
	require.Equal(t, queue.Consumed{Acked: total}, consumed)
	require.Len(t, runs, total)
	for id, n := range runs {
		require.Equal(t, 1, n, id)
	}
}

// migrate moves the slot of a queue to another node and stays half-way for a while.
func migrate(t *testing.T, cluster *luatomictest.Cluster, q *queue.Queue, pushed *atomic.Int64) {
	ctx := t.Context()
	slot, err := cluster.Slot(ctx, lab.Key(q, "r"))
	require.NoError(t, err)
	from, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
	require.NoError(t, err)
	require.NoError(t, m.MoveKeys(ctx, lab.Key(q, "r"), lab.Key(q, "b")))
	before := pushed.Load()
	time.Sleep(300 * time.Millisecond) // half-way; the calls on this shard are refused and repeated
	require.Less(t, pushed.Load(), before+200, "pushes wait for the shard")
	require.NoError(t, m.Finish(ctx))
}
