package luatomic_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Every primitive on a Redis Cluster, with names on all three nodes, and while a slot migrates to another node.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	for i := range 12 {
		name := fmt.Sprint("name", i)
		q, err := queue.New(c, name, nil)
		require.NoError(t, err)
		_, err = q.Push(ctx, queue.Job{}, queue.Job{Delay: time.Millisecond})
		require.NoError(t, err)
		out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true}, func(context.Context, *queue.Delivery) error {
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, out.Acked)

		lease, err := lock.New(c, nil).Try(ctx, name)
		require.NoError(t, err)
		require.NoError(t, lease.Extend(ctx))
		require.NoError(t, lease.Release(ctx))

		b := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
		answer, err := lab.Echo.Call(ctx, b, "on a cluster", nil)
		require.NoError(t, err)
		require.Equal(t, "ON A CLUSTER", answer)
	}
}

func TestQueueWhileItsSlotMigrates(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	q, err := queue.New(c, "moving", nil)
	require.NoError(t, err)
	_, err = q.Push(ctx, lab.Bodies(50)...)
	require.NoError(t, err)
	slot, err := cluster.Slot(ctx, "{moving}:r")
	require.NoError(t, err)
	from, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
	require.NoError(t, err)
	require.NoError(t, m.MoveKeys(ctx, "{moving}:r"))

	// Half of the keys have moved: a script is refused before its first line (TRYAGAIN) until all have. The runtime
	// retries until then.
	pushed := make(chan error, 1)
	go func() {
		_, err := q.Push(ctx, queue.Job{ID: "during"})
		pushed <- err
	}()
	select {
	case err := <-pushed:
		require.NoError(t, err)
		t.Fatal("the push did not wait for the slot")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, m.Finish(ctx))
	require.NoError(t, <-pushed)
	taken, err := q.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 51, "nothing lost, nothing twice")
}
