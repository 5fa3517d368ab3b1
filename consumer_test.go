package luatomic_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func noWait(int) time.Duration { return 0 }

func TestConsumeDrainsTheQueue(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, nil)
	jobs := bodies(300)
	for i := range jobs[:20] {
		jobs[i].Delay = 50 * time.Millisecond
	}
	_, err := q.Push(t.Context(), jobs...)
	require.NoError(t, err)
	var mu sync.Mutex
	seen := make(map[string]int)
	out, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true}, func(_ context.Context, d *luatomic.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		seen[string(d.Body)]++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, luatomic.Consumed{Acked: 300}, out)
	require.Len(t, seen, 300)
	for body, n := range seen {
		require.Equal(t, 1, n, body)
	}
}

// Two consumers share one queue without a job done twice.
func TestConsumersShareAQueue(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, nil)
	_, err := q.Push(t.Context(), bodies(200)...)
	require.NoError(t, err)
	var done atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true}, func(context.Context, *luatomic.Delivery) error {
				done.Add(1)
				return nil
			})
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Equal(t, int64(200), done.Load())
}

func TestConsumeRetriesAndBuries(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, &luatomic.QueueOptions{MaxFailures: 3})
	_, err := q.Push(t.Context(), luatomic.Job{ID: "bad"}, luatomic.Job{ID: "panics"}, luatomic.Job{ID: "good"})
	require.NoError(t, err)
	var mu sync.Mutex
	attempts := make(map[string][]int)
	var failures atomic.Int64
	out, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true, Backoff: noWait, OnError: func(error) { failures.Add(1) }},
		func(_ context.Context, d *luatomic.Delivery) error {
			mu.Lock()
			attempts[d.ID] = append(attempts[d.ID], d.Attempt)
			mu.Unlock()
			switch d.ID {
			case "bad":
				return errors.New("no")
			case "panics":
				panic("oh")
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, luatomic.Consumed{Acked: 1, Retried: 4, Dead: 2}, out)
	require.Equal(t, []int{1, 2, 3}, attempts["bad"])
	require.Equal(t, []int{1, 2, 3}, attempts["panics"])
	require.Equal(t, int64(6), failures.Load())
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, stats.Dead)
}

// A handler may run for longer than the lease: the consumer renews it.
func TestConsumeRenewsLeases(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, &luatomic.QueueOptions{Lease: 500 * time.Millisecond})
	_, err := q.Push(t.Context(), bodies(1)...)
	require.NoError(t, err)
	var runs atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	other := make(chan error, 1)
	go func() { // would reclaim a lease that lapsed
		_, err := q.Consume(ctx, &luatomic.ConsumeOptions{Idle: 10 * time.Millisecond}, func(context.Context, *luatomic.Delivery) error {
			runs.Add(1)
			return nil
		})
		other <- err
	}()
	out, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true, Concurrency: 1}, func(ctx context.Context, d *luatomic.Delivery) error {
		runs.Add(1)
		begin := d.Deadline()
		luatomictest.Eventually(t, 10*time.Second, "three lengths of it pass", func() bool { return time.Now().After(begin.Add(time.Second)) })
		return ctx.Err()
	})
	cancel()
	require.ErrorIs(t, <-other, context.Canceled)
	require.NoError(t, err)
	require.Equal(t, int64(1), runs.Load())
	require.LessOrEqual(t, out.Acked, 1)
}

// A handler whose lease is lost learns it through its context.
func TestConsumeCancelsTheHandlerOfALostLease(t *testing.T) {
	t.Parallel()
	q, c := newQueue(t, &luatomic.QueueOptions{Lease: 150 * time.Millisecond})
	_, err := q.Push(t.Context(), bodies(1)...)
	require.NoError(t, err)
	var cause error
	ctx, cancel := context.WithCancel(t.Context())
	_, err = q.Consume(ctx, nil, func(work context.Context, d *luatomic.Delivery) error {
		defer cancel()
		require.NoError(t, c.ZIncrBy(work, key(q, "l"), 3_600_000, d.ID).Err())
		<-work.Done()
		cause = context.Cause(work)
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, cause, luatomic.ErrLeaseLost)
}

// When ctx ends, running handlers get the grace; what they do not finish goes back
// and can be taken at once.
func TestConsumeStopsGracefully(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, nil)
	_, err := q.Push(t.Context(), luatomic.Job{ID: "quick"}, luatomic.Job{ID: "slow"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var started sync.WaitGroup
	started.Add(2)
	go func() {
		started.Wait()
		cancel()
	}()
	out, err := q.Consume(ctx, &luatomic.ConsumeOptions{Grace: 50 * time.Millisecond}, func(work context.Context, d *luatomic.Delivery) error {
		started.Done()
		<-ctx.Done()
		if d.ID == "slow" {
			<-work.Done()
			return work.Err()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, luatomic.Consumed{Acked: 1, Retried: 1}, out)
	require.Equal(t, "slow", takeOne(t, q).ID)
}

// A consumer takes back the jobs of workers that died.
func TestConsumeReclaimsAbandonedJobs(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, &luatomic.QueueOptions{Lease: 300 * time.Millisecond})
	_, err := q.Push(t.Context(), bodies(5)...)
	require.NoError(t, err)
	_, err = q.Take(t.Context(), 5) // and never again heard of
	require.NoError(t, err)
	var attempts atomic.Int64
	out, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true}, func(_ context.Context, d *luatomic.Delivery) error {
		attempts.Add(int64(d.Attempt))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 5, out.Acked)
	require.GreaterOrEqual(t, attempts.Load(), int64(10), "each on its second attempt, or later on a slow machine")
}

// A failure that no repeat can cure ends the consumer instead of spinning.
func TestConsumeReturnsWhatNoRepeatCures(t *testing.T) {
	t.Parallel()
	q, c := newQueue(t, nil)
	require.NoError(t, c.Set(t.Context(), key(q, "r"), "not a list", 0).Err())
	_, err := q.Consume(t.Context(), nil, func(context.Context, *luatomic.Delivery) error { return nil })
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, "holds a string, not a list")
}

// Quick jobs make the consumer take ahead; then come slow ones. What waits behind them
// goes back to be had by others, and is not taken again.
func TestJobsTakenAheadGoBackFromBehindSlowHandlers(t *testing.T) {
	t.Parallel()
	const quick, slow, handlers = 500, 300, 2
	q, _ := newQueue(t, nil)
	push(t, q, numbered(quick, 0)...)
	rest := bodies(slow)
	for i := range rest {
		rest[i].Body = []byte("slow")
	}
	push(t, q, rest...)
	ctx, cancel := context.WithCancel(t.Context())
	gate := make(chan struct{})
	var most atomic.Int64
	done := make(chan luatomic.Consumed)
	go func() {
		out, _ := q.Consume(ctx, &luatomic.ConsumeOptions{Concurrency: handlers}, func(_ context.Context, d *luatomic.Delivery) error {
			if string(d.Body) == "slow" {
				if s, err := q.Stats(ctx); err == nil {
					most.Store(max(most.Load(), int64(s.Leased)))
				}
				<-gate
			}
			return nil
		})
		done <- out
	}()
	luatomictest.Eventually(t, 10*time.Second, "the others go back", func() bool {
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		return s.Leased == handlers && s.Ready == slow-handlers
	})
	require.Greater(t, most.Load(), int64(handlers), "some were taken ahead")
	require.Equal(t, 1, takeOne(t, q).Attempt, "it counts as no failure")
	cancel()
	close(gate)
	require.Equal(t, quick+handlers, (<-done).Acked)
}
