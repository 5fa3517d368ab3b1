package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Fast jobs make the consumer prefetch; then slow ones come. The jobs that wait behind them are returned for other
// consumers, and this one does not take them again.
func TestPrefetchedJobsAreReturnedFromBehindSlowHandlers(t *testing.T) {
	t.Parallel()
	const handlers = 2
	for name, slow := range map[string]int{"of a backlog": 300, "of an empty queue": 12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			deadline := time.Now().Add(60 * time.Second)
			// While the machine is slow the consumer prefetches nothing.
			for returned := false; !returned; returned = slowBehindFast(t, q, handlers, slow) {
				require.True(t, time.Now().Before(deadline), "none were prefetched")
			}
		})
	}
}

// Handlers become slow and go on: each that returns starts one of the prefetched jobs. The others do not wait for all
// of those before them: an idle consumer gets most.
func TestPrefetchedJobsDoNotWaitBehindHandlersThatGoOn(t *testing.T) {
	t.Parallel()
	const fast, slow = 950, 50
	q, _ := lab.NewQueue(t, nil)
	jobs := lab.Bodies(fast + slow)
	for i := range jobs[fast:] {
		jobs[fast+i].Kind = "slow"
	}
	lab.Push(t, q, jobs...)
	ctx, cancel := context.WithCancel(t.Context())
	var ran, other atomic.Int64
	became, ended := make(chan struct{}), make(chan error, 2)
	consume := func(h queue.Handler) {
		_, err := q.Consume(ctx, &queue.ConsumeOptions{Concurrency: 1}, h)
		ended <- err
	}
	go consume(func(_ context.Context, d *queue.Delivery) error {
		if d.Kind == "slow" {
			if ran.Add(1) == 1 {
				close(became)
			}
			time.Sleep(150 * time.Millisecond)
		}
		return nil
	})
	lab.Soon(t, time.Minute, "the slow ones", became)
	go consume(func(context.Context, *queue.Delivery) error { other.Add(1); return nil })
	luatomictest.Eventually(t, time.Minute, "all have run", func() bool { return ran.Load()+other.Load() >= slow })
	cancel()
	for range 2 {
		require.ErrorIs(t, lab.Soon(t, time.Minute, "the stop", ended), context.Canceled)
	}
	require.Greater(t, other.Load(), int64(slow/2))
}

// A process that was stopped, or starved, may find its timers due before its handlers have begun. Their jobs are not
// returned: only those are that wait behind busy handlers.
func TestJobsOfFreeHandlersAreNotReturned(t *testing.T) {
	t.Parallel()
	require.True(t, queue.KeepsForFreeHandlers(false))
	require.False(t, queue.KeepsForFreeHandlers(true))
}

// slowBehindFast lets a consumer work on slow jobs behind fast ones, and reports whether it returned any.
func slowBehindFast(t *testing.T, q *queue.Queue, handlers, slow int) bool {
	t.Helper()
	const fast = 500
	ctx, cancel := context.WithCancel(t.Context())
	gate, fastDone := make(chan struct{}), make(chan struct{})
	var ran atomic.Int64
	done := make(chan queue.Consumed)
	lab.Push(t, q, lab.Numbered(fast, 0)...)
	go func() {
		out, _ := q.Consume(ctx, &queue.ConsumeOptions{Concurrency: handlers, Idle: time.Hour},
			func(_ context.Context, d *queue.Delivery) error {
				if string(d.Body) == "slow" {
					<-gate
				} else if ran.Add(1) == fast-100 {
					close(fastDone) // the slow ones follow the last of these
				}
				return nil
			})
		done <- out
	}()
	<-fastDone
	behind := lab.Bodies(slow)
	for i := range behind {
		behind[i].Body = []byte("slow")
	}
	lab.Push(t, q, behind...)
	luatomictest.Eventually(t, 30*time.Second, "the others are returned", func() bool {
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
	require.Equal(t, fast+handlers, out.Acked)
	return out.Retried > 0
}
