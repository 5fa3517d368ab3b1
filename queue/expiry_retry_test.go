package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A job whose next delivery would come after it expires is due when it expires, however it is given back, and not
// earlier. One that expires later keeps its delay.
func TestARetryAfterTheEndOfAJobIsDueAtThat(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	ends := time.Now().Add(10 * time.Minute).Truncate(time.Millisecond)
	for name, give := range map[string]func(d *queue.Delivery, delay time.Duration) error{
		"nack":   func(d *queue.Delivery, delay time.Duration) error { return d.Nack(ctx, delay, "no") },
		"return": func(d *queue.Delivery, delay time.Duration) error { return d.Return(ctx, delay) },
	} {
		due := func(job queue.Job, delay time.Duration) time.Time {
			lab.Push(t, q, job)
			require.NoError(t, give(lab.TakeOne(t, q), delay))
			return time.UnixMilli(int64(c.ZScore(ctx, lab.Key(q, "s"), job.ID).Val()))
		}
		require.Equal(t, ends, due(queue.Job{ID: name + " ends", ExpiresAt: ends}, time.Hour), name)
		for id, expires := range map[string]time.Time{"later": ends.Add(time.Hour), "never": {}} {
			at := due(queue.Job{ID: name + id, Kind: "has options", ExpiresAt: expires}, 30*time.Minute)
			require.WithinDuration(t, ends.Add(20*time.Minute), at, time.Minute, name+id)
		}
	}
}

// So is one whose lease has ended twice in a row.
func TestAReclaimedJobIsDueWhenItExpires(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{MaxFailures: -1})
	ends := time.Now().Add(10 * time.Minute).Truncate(time.Millisecond)
	lab.Push(t, q, queue.Job{ID: "x", ExpiresAt: ends}, queue.Job{ID: "never", Kind: "has options"})
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	for _, d := range taken.Deliveries {
		require.NoError(t, c.HSet(ctx, lab.Key(q, "n"), d.ID, 20, d.ID+"\n", "lease over").Err())
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
	}
	r, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, r.Returned)
	due := func(id string) time.Time { return time.UnixMilli(int64(c.ZScore(ctx, lab.Key(q, "s"), id).Val())) }
	require.Equal(t, ends, due("x"))
	require.Greater(t, due("never"), ends.Add(40*time.Minute))
}

// A failed job that expires before its retry holds up no drain, and its name is free.
func TestADrainWaitsForNoRetryOfAJobThatExpires(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "x", Unique: "name", ExpiresAt: time.Now().Add(1500 * time.Millisecond)})
	out, err := q.Consume(ctx, &queue.ConsumeOptions{
		Drain: true, Backoff: func(int) time.Duration { return time.Hour },
	}, func(context.Context, *queue.Delivery) error { return errors.New("no") })
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Retried: 1, Expired: 1}, out)
	require.Empty(t, lab.Must(q.Push(ctx, queue.Job{Unique: "name"})).Duplicates)
}
