package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/queue"
)

func TestRequeueRevivesTheDead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a", Body: []byte("aa")}, queue.Job{ID: "b"}, queue.Job{ID: "c"})
	for range 3 {
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	}
	require.Equal(t, 2, stats(t, q).DeadBytes)
	n, err := q.Requeue(ctx, "b", "none")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	d := lab.TakeOne(t, q)
	require.Equal(t, "b", d.ID)
	require.Equal(t, 1, d.Attempt, "no failure is counted")
	n, err = q.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Zero(t, c.Exists(ctx, lab.Key(q, "n"), lab.Key(q, "d")).Val())
	require.Zero(t, stats(t, q).DeadBytes)
}

func TestTrimKeepsTheDeadWithinLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for i := range 6 {
		lab.Push(t, q, queue.Job{ID: fmt.Sprint(i), Body: make([]byte, 10)})
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"),
			redis.Z{Score: float64(time.Now().UnixMilli() - 1000 + int64(i)), Member: fmt.Sprint(i)}).Err())
	}
	trim := func(l queue.DeadLimits) int {
		n, err := q.Trim(ctx, l)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, trim(queue.DeadLimits{}), "no limits")
	require.Zero(t, trim(queue.DeadLimits{Jobs: 6, Bytes: 60, Age: time.Hour}))
	require.Equal(t, 1, trim(queue.DeadLimits{Jobs: 5}))
	require.Equal(t, 2, trim(queue.DeadLimits{Bytes: 35}))
	left, err := q.Peek(ctx, queue.Dead, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "3", left[0].ID, "the oldest are deleted")
	require.Equal(t, 30, stats(t, q).DeadBytes)
	require.Equal(t, 3, trim(queue.DeadLimits{Age: 500 * time.Millisecond}))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "d"), lab.Key(q, "b"), lab.Key(q, "n")).Val())
}
