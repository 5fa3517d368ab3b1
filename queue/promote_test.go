package queue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestPromoteMovesWhatIsDueEarliestFirst(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, queue.Job{ID: "b", Delay: 2 * time.Hour}, queue.Job{ID: "a", Delay: time.Hour}, queue.Job{ID: "later", Delay: 3 * time.Hour})
	require.NoError(t, err)
	none, err := q.Promote(ctx)
	require.NoError(t, err)
	require.Zero(t, none.Moved, "never early")
	require.InDelta(t, time.Hour.Seconds(), none.NextDue.Or(time.Time{}).Sub(none.Now).Seconds(), 60)

	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Err())
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

// Take promotes by itself, so delays work with no poller.
func TestTakePromotesWhatIsDue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	pushed, err := q.Push(ctx, queue.Job{ID: "d", Body: []byte("x"), Delay: 30 * time.Millisecond})
	require.NoError(t, err)
	var got *queue.Delivery
	luatomictest.Eventually(t, 5*time.Second, "the job is due", func() bool {
		taken, err := q.Take(ctx, 1)
		require.NoError(t, err)
		if len(taken.Deliveries) == 1 {
			got = taken.Deliveries[0]
			require.False(t, taken.Now.Before(pushed.Now.Add(30*time.Millisecond)), "never early by the server's clock")
		}
		return got != nil
	})
	require.Equal(t, []byte("x"), got.Body)
}

// Several pollers and a taker at once: each job moves once, and none before its
// time.
func TestPollersMoveEachJobOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	const n = queue.MaxTake
	jobs := lab.Bodies(n)
	for i := range jobs {
		jobs[i].Delay = time.Duration(i%100+1) * time.Millisecond
	}
	pushed, err := q.Push(t.Context(), jobs...)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	moved := 0
	opts := &queue.PollerOptions{OnPromote: func(_ *queue.Queue, p queue.Promoted) {
		mu.Lock()
		defer mu.Unlock()
		moved += p.Moved
	}}
	var pollers sync.WaitGroup
	for range 4 {
		pollers.Go(func() { require.ErrorIs(t, queue.NewPoller(opts, q).Run(ctx), context.Canceled) })
	}
	luatomictest.Eventually(t, 30*time.Second, "all moves are reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return moved >= n
	})
	cancel()
	pollers.Wait()
	require.Equal(t, n, moved)
	require.EqualValues(t, n, c.LLen(t.Context(), lab.Key(q, "r")).Val())
	taken, err := q.Take(t.Context(), n)
	require.NoError(t, err)
	at := make(map[string]time.Time)
	for i, id := range pushed.IDs {
		at[id] = pushed.Now.Add(jobs[i].Delay)
	}
	for _, d := range taken.Deliveries {
		require.False(t, d.EnqueuedAt.Before(at[d.ID]), "job %s became ready early", d.ID)
		delete(at, d.ID)
	}
	require.Empty(t, at)
}

func TestPollerReturnsAtOnceAndReportsErrors(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	down, err := queue.New(c, "down", nil)
	require.NoError(t, err)
	idle, _ := lab.NewQueue(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- queue.NewPoller(&queue.PollerOptions{Idle: time.Hour}, idle, down).Run(ctx) }()
	luatomictest.Eventually(t, 5*time.Second, "the poller is asleep", func() bool {
		return c.PoolStats().Misses > 0
	})
	start := time.Now()
	cancel(context.Canceled)
	require.ErrorIs(t, <-done, context.Canceled)
	require.Less(t, time.Since(start), 10*time.Second, "it slept for an hour")
}
