package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// A shard that fails does not keep the jobs of the others from the worker.
func TestShardsTakeInPart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := newShards(t, 3)
	for _, q := range s.Queues() {
		lab.Push(t, q, queue.Job{}, queue.Job{Delay: time.Hour})
	}
	require.NoError(t, c.Del(ctx, lab.Key(s.Queues()[1], "b")).Err())
	require.NoError(t, c.Set(ctx, lab.Key(s.Queues()[1], "b"), "x", 0).Err())
	taken, err := s.Take(ctx, 10)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, s.Queues()[1].Name())
	require.Len(t, taken.Deliveries, 2)
	require.False(t, taken.Paused)
	due, ok := taken.NextDue.Get()
	require.True(t, ok)
	require.WithinDuration(t, taken.Now.Add(time.Hour), due, time.Minute)

	// Ack names the lost leases of all shards.
	for _, d := range taken.Deliveries {
		require.NoError(t, d.Return(ctx, time.Hour))
	}
	var lost *queue.LeaseLostError
	err = s.Ack(ctx, taken.Deliveries...)
	require.ErrorAs(t, err, &lost)
	require.Len(t, lost.IDs, 2)
	other, _ := lab.NewQueue(t, nil)
	lab.Push(t, other, queue.Job{ID: "foreign"})
	require.ErrorContains(t, s.Ack(ctx, lab.TakeOne(t, other)), `job "foreign" was not taken from these Shards`)
	require.NoError(t, s.Ack(ctx))
}
