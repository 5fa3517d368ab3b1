package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The handlers of all shards together stay within the concurrency. Shards with many jobs do not delay the single
// job of another: it runs after those that run and one of each shard, not after all that were taken before it.
func TestShardsConsumeTakesTurns(t *testing.T) {
	t.Parallel()
	s, c := newShards(t, 4)
	q := s.Queues()
	for _, busy := range q[:3] {
		lab.Push(t, busy, lab.Bodies(100)...)
	}
	const places = 20
	inFlight := func(n int) {
		luatomictest.Eventually(t, 30*time.Second, fmt.Sprint(n, " jobs in flight"), func() bool {
			total, err := s.Stats(t.Context())
			return err == nil && total.Leased == n
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running, runs, alone atomic.Int64
	start, aloneRan := make(chan struct{}), make(chan struct{})
	_, err := s.Consume(ctx, &queue.ConsumeOptions{Concurrency: places},
		func(_ context.Context, d *queue.Delivery) error {
			require.LessOrEqual(t, running.Add(1), int64(places))
			defer running.Add(-1)
			n := runs.Add(1)
			switch {
			case n == 1:
				defer close(start)
				inFlight(3 * places)
				lab.Push(t, q[3], queue.Job{ID: "alone"})
				inFlight(3*places + 1)
				luatomictest.Eventually(t, 30*time.Second, "its consumer has the job, and waits",
					waitersAre(t, c, q[3], 1))
			case n <= places:
				<-start
			case d.ID == "alone":
				alone.Store(n)
				close(aloneRan)
				stop()
			default:
				// The handler of the single job may come to its turn a little later: only few others may run before it.
				select {
				case <-aloneRan:
				case <-time.After(5 * time.Second):
				}
			}
			return nil
		})
	require.ErrorIs(t, err, context.Canceled)
	require.Greater(t, alone.Load(), int64(places))
	require.Less(t, alone.Load(), int64(3*places-10))
}

// A drain ends when all shards are empty, also of jobs that handlers pushed to a shard that was empty before.
func TestShardsDrainGoesOnUntilAllAreEmpty(t *testing.T) {
	t.Parallel()
	s, _ := newShards(t, 4)
	q := s.Queues()
	lab.Push(t, q[0], queue.Job{ID: "0"})
	out, err := s.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(ctx context.Context, d *queue.Delivery) error {
			time.Sleep(100 * time.Millisecond) // the other shards are drained by now; if not, the test is weaker
			for i := range 3 {
				if d.ID == fmt.Sprint(i) {
					lab.Push(t, q[i+1], queue.Job{ID: fmt.Sprint(i + 1)})
				}
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 4}, out)
}

// Jobs that wait for their turn when the consumer stops are returned without a failure, and OnError gets no error.
func TestShardsConsumeStops(t *testing.T) {
	t.Parallel()
	s, _ := newShards(t, 3)
	for _, q := range s.Queues() {
		lab.Push(t, q, lab.Bodies(5)...)
	}
	why := errors.New("stopped by the test")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	out, err := s.Consume(ctx, &queue.ConsumeOptions{Concurrency: 2,
		OnError: func(err error) { t.Errorf("OnError got %v", err) }},
		func(_ context.Context, _ *queue.Delivery) error {
			luatomictest.Eventually(t, 30*time.Second, "all shards have jobs in flight", func() bool {
				total, err := s.Stats(t.Context())
				return ctx.Err() != nil || err == nil && total.Leased == 6
			})
			stop(why)
			return nil
		})
	require.ErrorIs(t, err, why)
	require.LessOrEqual(t, out.Acked, 2)
	require.LessOrEqual(t, out.Acked+out.Retried, 6, "a take that was cut off is not counted")
	left, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, left.Leased)
	require.Equal(t, 15-out.Acked, left.Ready)
	for _, q := range s.Queues() {
		taken, err := q.Take(t.Context(), 10)
		require.NoError(t, err)
		for _, d := range taken.Deliveries {
			require.Equal(t, 1, d.Attempt)
		}
	}
}

func TestShardsConsumeEndsWhenAShardCannotGoOn(t *testing.T) {
	t.Parallel()
	s, c := newShards(t, 3)
	require.NoError(t, c.Set(t.Context(), lab.Key(s.Queues()[1], "r"), "x", 0).Err())
	_, err := s.Consume(t.Context(), nil, func(context.Context, *queue.Delivery) error { return nil })
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, s.Queues()[1].Name())
}

// A drain whose last look at the shards is refused says so, waits longer each time, and ends when the look succeeds.
func TestShardsDrainReportsALookThatFails(t *testing.T) {
	t.Parallel()
	s, c := newShards(t, 1)
	var looks atomic.Int64
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.StatsScript), Do: func(run func() error) error {
		if looks.Add(1) < 4 {
			return refusal("NOPERM no LLEN")
		}
		return run()
	}})
	var reported []error
	_, err := s.Consume(t.Context(), &queue.ConsumeOptions{
		Drain: true, OnError: func(err error) { reported = append(reported, err) },
	}, acks)
	require.NoError(t, err)
	require.Len(t, reported, 3)
	require.ErrorContains(t, reported[0], "NOPERM no LLEN")
}

// A shard whose take fails for good ends at once: it does not keep its jobs that wait for a place, or the other shards.
func TestShardsConsumeEndsWithTheShardThatFails(t *testing.T) {
	t.Parallel()
	s, c := newShards(t, 2)
	var failing atomic.Bool
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.TakeScript), Do: func(run func() error) error {
		if failing.Load() {
			return redis.ErrClosed
		}
		return run()
	}})
	lab.Push(t, s.Queues()[0], queue.Job{}, queue.Job{})
	waits := s.Queues()[1]
	began, end, ended := make(chan string, 3), make(chan struct{}), make(chan error, 1)
	opts := &queue.ConsumeOptions{Concurrency: 2, Idle: 20 * time.Millisecond, Grace: time.Minute}
	go func() {
		_, err := s.Consume(t.Context(), opts, func(_ context.Context, d *queue.Delivery) error {
			began <- d.ID
			<-end
			return nil
		})
		ended <- err
	}()
	for range 2 {
		lab.Soon(t, 10*time.Second, "both places are taken", began)
	}
	lab.Push(t, waits, queue.Job{})
	luatomictest.Eventually(t, 10*time.Second, "the job waits for a place", func() bool {
		return stats(t, waits).Leased == 1
	})
	failing.Store(true)
	luatomictest.Eventually(t, 10*time.Second, "it is returned", func() bool { return stats(t, waits).Ready == 1 })
	close(end)
	require.ErrorIs(t, lab.Soon(t, 10*time.Second, "the end", ended), redis.ErrClosed)
	require.Empty(t, began)
}
