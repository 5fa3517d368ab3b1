package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

func TestShardsTakeIsFair(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := newShards(t, 3)
	q := s.Queues()
	lab.Push(t, q[0], lab.Bodies(300)...)
	lab.Push(t, q[2], queue.Job{ID: "alone"})
	found := 0
	for round := range 3 {
		taken, err := s.Take(ctx, 10)
		require.NoError(t, err)
		require.Len(t, taken.Deliveries, 10)
		for _, d := range taken.Deliveries {
			if d.ID == "alone" {
				found++
			}
		}
		require.NoError(t, s.Ack(ctx, taken.Deliveries...), round)
	}
	require.Equal(t, 1, found, "within one round")
	taken, err := s.Take(ctx, 1000)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 271, "all jobs")
	require.False(t, taken.Now.IsZero())
	_, err = s.Take(ctx, 0)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
}
