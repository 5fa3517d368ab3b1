package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
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

// Shards that hang do not use up the leases of the jobs that another has given.
func TestShardsTakeBesideHungShards(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	s, err := queue.NewShards(c, name, 4, &queue.Options{Lease: time.Second})
	require.NoError(t, err)
	lab.Push(t, s.Queues()[0], queue.Job{})
	c.AddHook(hung{beside: "{" + name + ".0}", until: t.Context().Done()})
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	taken, err := s.Take(ctx, 10)
	require.ErrorContains(t, err, s.Queues()[1].Name())
	require.Len(t, taken.Deliveries, 1)
	now, err := c.Time(t.Context()).Result()
	require.NoError(t, err)
	require.True(t, taken.Deliveries[0].Deadline().After(now), "the lease holds")
}

// hung lets a server answer the calls on keys of one tag and no others.
type hung struct {
	lab.Before
	beside string
	until  <-chan struct{}
}

func (h hung) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
			return next(ctx, cmds[0])
		})(ctx, []redis.Cmder{cmd})
	}
}

func (h hung) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		last := fmt.Sprint(cmds[len(cmds)-1].Args())
		if !strings.Contains(last, "{") || strings.Contains(last, h.beside) {
			return next(ctx, cmds)
		}
		select {
		case <-ctx.Done():
		case <-h.until: // calls that share a round trip have no deadline
		}
		return context.Canceled
	}
}
