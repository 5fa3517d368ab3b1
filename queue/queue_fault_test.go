package queue_test

import (
	"context"
	"errors"
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

// No server: the error names the address and the class of the failure.
func TestNoServer(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = q.Push(ctx, lab.Bodies(1)...)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.True(t, errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "refused"))
}

// A server over its memory limit refuses producers whole and lets consumers drain. The guard is the first write of
// take, nack and reclaim.
func TestMemoryLimitRefusesProducersAndLetsConsumersDrain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := queue.New(c, "q", &queue.Options{Lease: 50 * time.Millisecond})
	require.NoError(t, err)
	_, err = q.Push(ctx, lab.Bodies(10)...)
	require.NoError(t, err)
	_, err = q.Push(ctx, queue.Job{ID: "due", Delay: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1mb").Err())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())

	before := lab.Dump(ctx, t, c, "q")
	_, err = q.Push(ctx, lab.Bodies(1)...)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, before, lab.Dump(ctx, t, c, "q"))

	luatomictest.Eventually(t, 20*time.Second, "the job is due", func() bool {
		p, err := q.Promote(ctx)
		require.NoError(t, err)
		return p.Moved == 1
	})
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 3)
	require.NoError(t, taken.Deliveries[0].Ack(ctx))
	require.NoError(t, taken.Deliveries[1].Nack(ctx, time.Minute, ""))
	require.NoError(t, taken.Deliveries[2].Extend(ctx, 60*time.Millisecond))
	luatomictest.Eventually(t, 5*time.Second, "the lease ends", func() bool {
		r, err := q.Reclaim(ctx)
		require.NoError(t, err)
		return r.Returned == 1
	})
	left, err := q.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, left.Deliveries, 9)
	require.NoError(t, q.Ack(ctx, left.Deliveries...))
}
