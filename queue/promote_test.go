package queue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

func TestPromoteMovesWhatIsDueEarliestFirst(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, queue.Job{ID: "b", Delay: 2 * time.Hour}, queue.Job{ID: "a", Delay: time.Hour},
		queue.Job{ID: "later", Delay: 3 * time.Hour})
	require.NoError(t, err)
	none, err := q.Promote(ctx)
	require.NoError(t, err)
	require.Zero(t, none.Moved, "never early")
	require.InDelta(t, time.Hour.Seconds(), none.NextDue.Or(time.Time{}).Sub(none.Now).Seconds(), 60)

	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: 1, Member: "a"},
		redis.Z{Score: 2, Member: "b"}).Err())
	p, err := q.Promote(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, p.Moved)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, "a", taken.Deliveries[0].ID)
	require.Equal(t, "b", taken.Deliveries[1].ID)
	require.Equal(t, p.Now.Truncate(time.Millisecond), taken.Deliveries[0].EnqueuedAt, "enqueued when it became ready")
	require.True(t, taken.NextDue.Or(time.Time{}).After(taken.Now))
}

func TestPromoteIsBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for range 3 {
		var due []redis.Z
		pushed, err := q.Push(ctx, delayed(queue.MaxBatch/2)...)
		require.NoError(t, err)
		for _, id := range pushed.IDs {
			due = append(due, redis.Z{Score: 1, Member: id})
		}
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), due...).Err())
	}
	p, err := q.Promote(ctx)
	require.NoError(t, err)
	require.Equal(t, queue.MaxBatch, p.Moved)
	require.False(t, p.NextDue.Or(time.Time{}).After(p.Now), "more is due")
	p, err = q.Promote(ctx)
	require.NoError(t, err)
	require.Equal(t, queue.MaxBatch/2, p.Moved)
	_, more := p.NextDue.Get()
	require.False(t, more)
}

func delayed(n int) []queue.Job {
	jobs := lab.Bodies(n)
	for i := range jobs {
		jobs[i].Delay = time.Hour
	}
	return jobs
}
