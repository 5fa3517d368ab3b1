package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// behindAReplica is a client that may read from a replica, which has nothing, and the master.
func behindAReplica(t *testing.T) (c *redis.ClusterClient, master *redis.Client) {
	t.Helper()
	first, replica := luatomictest.StartServer(t), luatomictest.StartServer(t)
	c = redis.NewClusterClient(&redis.ClusterOptions{
		ReadOnly: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			servers := []redis.ClusterNode{{Addr: first.Addr()}, {Addr: replica.Addr()}}
			return []redis.ClusterSlot{{End: 16383, Nodes: servers}}, nil
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c, first.Client()
}

// A queue on a client that may read from replicas reads at the master what is in it: a replica may have less. This one
// has nothing.
func TestListsAreNotReadFromAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, _ := behindAReplica(t)
	q, err := queue.New(c, "mail", nil)
	require.NoError(t, err)
	_, err = q.Push(ctx, queue.Job{ID: "a"})
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "the queue is listed", func() bool {
		listed, err := q.Listed(ctx)
		require.NoError(t, err)
		return listed
	})
	all, err := queue.Queues(ctx, c, nil)
	require.NoError(t, err)
	require.Len(t, all, 1)

	working := make(chan struct{})
	done := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	go func() {
		_, err := q.Consume(running, nil, func(context.Context, *queue.Delivery) error {
			close(working)
			return queue.Discard(context.Canceled)
		})
		done <- err
	}()
	<-working
	luatomictest.Eventually(t, 20*time.Second, "the worker is listed", func() bool {
		workers, err := queue.Workers(ctx, c, "")
		require.NoError(t, err)
		return len(workers) == 1
	})
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
	n, err := q.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	days, err := q.Counts(ctx, 2) // midnight may be now
	require.NoError(t, err)
	require.Equal(t, 1, days[0].Dead+days[1].Dead)
}

// An audit reads at the master: what a replica lacks is not lost.
func TestAuditIsNotOfAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, master := behindAReplica(t)
	q, err := queue.New(c, "mail", nil)
	require.NoError(t, err)
	lab.Push(t, q, queue.Job{ID: "dead", Body: []byte("four")})
	require.NoError(t, q.Bury(ctx, "why", lab.TakeOne(t, q)))
	lab.Push(t, q, queue.Job{ID: "lost"}, queue.Job{ID: "ready"}, queue.Job{ID: "named", Unique: "n", Delay: time.Hour})
	require.Equal(t, queue.Audited{Checked: 4}, audit(t, q, true))

	lab.Push(t, q, lab.Bodies(600)...)
	lab.Push(t, q, lab.Bodies(600)...)
	require.Equal(t, queue.Audited{Checked: 1204}, audit(t, q, true), "the middle of a long list is not lost")
	require.NoError(t, master.LRem(ctx, lab.Key(q, "r"), 1, master.LIndex(ctx, lab.Key(q, "r"), 0).Val()).Err())
	require.NoError(t, master.HDel(ctx, lab.Key(q, "b"), "named").Err())
	require.NoError(t, master.HSet(ctx, lab.Key(q, "c"), "dead_bytes", 1).Err())
	want := queue.Audited{Checked: 1203, Lost: []string{"lost"}, LostTotal: 1, Ghosts: []string{"named"}, GhostTotal: 1,
		StaleNames: 1, DeadBytes: 3, Repaired: 4}
	require.Equal(t, want, audit(t, q, true))
}
