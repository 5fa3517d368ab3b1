package queue_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Pushes of one share round trips. Each has a job of its own, and all are in the order of their stamps.
func TestPushesOfOneTogether(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	q, err := queue.New(c, luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	var calls sync.WaitGroup
	ids := make([]string, 500)
	for i := range ids {
		calls.Go(func() {
			out, err := q.Push(ctx, queue.Job{Body: []byte(fmt.Sprint(i))})
			require.NoError(t, err)
			require.Equal(t, 1, out.Ready)
			require.False(t, out.Now.IsZero())
			ids[i] = out.IDs[0]
		})
	}
	calls.Wait()
	byID, last := make(map[string]string), time.Time{}
	for len(byID) < len(ids) {
		taken, err := q.Take(ctx, 100)
		require.NoError(t, err)
		require.NotEmpty(t, taken.Deliveries)
		for _, d := range taken.Deliveries {
			byID[d.ID] = string(d.Body)
			require.False(t, d.EnqueuedAt.Before(last))
			last = d.EnqueuedAt
		}
	}
	for i, id := range ids {
		require.Equal(t, fmt.Sprint(i), byID[id])
	}
}

// A limit holds for pushes of one, also for those of a Queue that does not know of it.
func TestPushOfOneIntoAFullQueue(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for range 3 {
		q, err := queue.New(c, name, nil)
		require.NoError(t, err)
		require.NoError(t, q.SetLimit(ctx, 1))
		for range 2 {
			_, err = q.Push(ctx, queue.Job{})
			if err == nil {
				continue
			}
			require.ErrorIs(t, err, queue.ErrFull)
		}
		stats, err := q.Stats(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.Ready)
	}
	q, err := queue.New(c, name, nil)
	require.NoError(t, err)
	require.NoError(t, q.SetLimit(ctx, 0))
	_, err = q.Push(ctx, queue.Job{})
	require.NoError(t, err)
}

// A push of one notifies a consumer that waits.
func TestPushOfOneNotifies(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	q, err := queue.New(c, luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	lab.Push(t, q, lab.Bodies(1)...)
	require.NoError(t, lab.TakeOne(t, q).Ack(t.Context()))
	sub := c.Subscribe(t.Context(), "{"+q.Name()+"}:w:one")
	defer sub.Close()
	_, err = sub.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Do(t.Context(), "ZADD", "{"+q.Name()+"}:w", time.Now().Add(time.Minute).UnixMilli(),
		"one").Err())
	_, err = q.Push(t.Context(), queue.Job{})
	require.NoError(t, err)
	_, err = sub.ReceiveTimeout(t.Context(), 10*time.Second)
	require.NoError(t, err)
}
