package queue_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func noWait(int) time.Duration { return 0 }

func TestConsumeDrainsTheQueue(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	jobs := lab.Bodies(300)
	for i := range jobs[:20] {
		jobs[i].Delay = 50 * time.Millisecond
	}
	_, err := q.Push(t.Context(), jobs...)
	require.NoError(t, err)
	var mu sync.Mutex
	seen := make(map[string]int)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, func(_ context.Context, d *queue.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		seen[string(d.Body)]++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 300}, out)
	require.Len(t, seen, 300)
	for body, n := range seen {
		require.Equal(t, 1, n, body)
	}
}

// Two consumers share one queue without a job done twice.
func TestConsumersShareAQueue(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), lab.Bodies(200)...)
	require.NoError(t, err)
	var done atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, func(context.Context, *queue.Delivery) error {
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
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 3})
	_, err := q.Push(t.Context(), queue.Job{ID: "bad"}, queue.Job{ID: "panics"}, queue.Job{ID: "good"})
	require.NoError(t, err)
	var mu sync.Mutex
	attempts := make(map[string][]int)
	var failures atomic.Int64
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Backoff: noWait, OnError: func(error) { failures.Add(1) }},
		func(_ context.Context, d *queue.Delivery) error {
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
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 4, Dead: 2}, out)
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
	const lease = 3 * time.Second // a renewal may come two seconds late
	q, c := lab.NewQueue(t, &queue.Options{Lease: lease})
	_, err := q.Push(t.Context(), lab.Bodies(1)...)
	require.NoError(t, err)
	var runs atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := make(chan error, 1)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: 1}, func(work context.Context, d *queue.Delivery) error {
		runs.Add(1)
		first := d.Deadline()
		go func() { // would reclaim a lease that lapsed
			_, err := q.Consume(ctx, &queue.ConsumeOptions{Idle: 10 * time.Millisecond}, func(context.Context, *queue.Delivery) error {
				runs.Add(1)
				return nil
			})
			other <- err
		}()
		luatomictest.Eventually(t, 30*time.Second, "more than the lease passes", func() bool {
			return c.Time(t.Context()).Val().After(first.Add(500 * time.Millisecond))
		})
		return work.Err()
	})
	cancel()
	require.ErrorIs(t, <-other, context.Canceled)
	require.NoError(t, err)
	require.Equal(t, int64(1), runs.Load())
	require.Equal(t, 1, out.Acked)
}

// A handler whose lease is lost learns it through its context.
func TestConsumeCancelsTheHandlerOfALostLease(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 3 * time.Second}) // it is renewed, and found lost, after one
	_, err := q.Push(t.Context(), lab.Bodies(1)...)
	require.NoError(t, err)
	var cause error
	ctx, cancel := context.WithCancel(t.Context())
	_, err = q.Consume(ctx, nil, func(work context.Context, d *queue.Delivery) error {
		defer cancel()
		require.NoError(t, c.ZIncrBy(t.Context(), lab.Key(q, "l"), 3_600_000, d.ID).Err())
		<-work.Done()
		cause = context.Cause(work)
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, cause, queue.ErrLeaseLost)
}

// When ctx ends, running handlers get the grace; what they do not finish goes back
// and can be taken at once.
func TestConsumeStopsGracefully(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), queue.Job{ID: "quick"}, queue.Job{ID: "slow"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var started sync.WaitGroup
	started.Add(2)
	go func() {
		started.Wait()
		cancel()
	}()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Grace: 50 * time.Millisecond}, func(work context.Context, d *queue.Delivery) error {
		started.Done()
		<-ctx.Done()
		if d.ID == "slow" {
			<-work.Done()
			return work.Err()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 1}, out)
	require.Equal(t, "slow", lab.TakeOne(t, q).ID)
}

// A consumer takes back the jobs of workers that died.
func TestConsumeReclaimsAbandonedJobs(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), lab.Bodies(5)...)
	require.NoError(t, err)
	dead, err := queue.New(c, q.Name(), &queue.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	_, err = dead.Take(t.Context(), 5) // and never again heard of
	require.NoError(t, err)
	var attempts atomic.Int64
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, func(_ context.Context, d *queue.Delivery) error {
		attempts.Add(int64(d.Attempt))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 5, out.Acked)
	require.Equal(t, int64(10), attempts.Load(), "each on its second attempt")
}

// A failure that no repeat can cure ends the consumer instead of spinning.
func TestConsumeReturnsWhatNoRepeatCures(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.Set(t.Context(), lab.Key(q, "r"), "not a list", 0).Err())
	_, err := q.Consume(t.Context(), nil, func(context.Context, *queue.Delivery) error { return nil })
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, "holds a string, not a list")
}

// Quick jobs make the consumer take ahead; then come slow ones. What waits behind them
// goes back to be had by others, and is not taken again.
func TestJobsTakenAheadGoBackFromBehindSlowHandlers(t *testing.T) {
	t.Parallel()
	const handlers = 2
	for name, slow := range map[string]int{"of a backlog": 300, "of a queue that is empty by then": 12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			deadline := time.Now().Add(60 * time.Second)
			// Where the machine was slow for a moment nothing was taken ahead.
			for wentBack := false; !wentBack; wentBack = slowBehindQuick(t, q, handlers, slow) {
				require.True(t, time.Now().Before(deadline), "none were taken ahead")
			}
		})
	}
}

// slowBehindQuick has a consumer at slow jobs behind quick ones, and reports whether any
// had to go back.
func slowBehindQuick(t *testing.T, q *queue.Queue, handlers, slow int) bool {
	t.Helper()
	const quick = 500
	ctx, cancel := context.WithCancel(t.Context())
	gate, quickDone := make(chan struct{}), make(chan struct{})
	var ran atomic.Int64
	done := make(chan queue.Consumed)
	lab.Push(t, q, lab.Numbered(quick, 0)...)
	go func() {
		out, _ := q.Consume(ctx, &queue.ConsumeOptions{Concurrency: handlers, Idle: time.Hour}, func(_ context.Context, d *queue.Delivery) error {
			if string(d.Body) == "slow" {
				<-gate
			} else if ran.Add(1) == quick-100 {
				close(quickDone) // the slow ones come behind the last of these
			}
			return nil
		})
		done <- out
	}()
	<-quickDone
	rest := lab.Bodies(slow)
	for i := range rest {
		rest[i].Body = []byte("slow")
	}
	lab.Push(t, q, rest...)
	luatomictest.Eventually(t, 30*time.Second, "the others go back", func() bool {
		s := stats(t, q)
		return s.Leased == handlers && s.Ready == slow-handlers
	})
	taken, err := q.Take(t.Context(), slow)
	require.NoError(t, err)
	for _, d := range taken.Deliveries {
		require.Equal(t, 1, d.Attempt, "it counts as no failure")
	}
	require.NoError(t, q.Ack(t.Context(), taken.Deliveries...))
	cancel()
	close(gate)
	out := <-done
	require.Equal(t, quick+handlers, out.Acked)
	return out.Retried > 0
}
