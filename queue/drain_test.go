package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func acks(context.Context, *queue.Delivery) error { return nil }

// A paused queue that holds no job is empty: a drain does not wait for it.
func TestDrainEndsOnAPausedQueueThatIsEmpty(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	drain := &queue.ConsumeOptions{Drain: true}
	qs := several(t, luatomictest.Client(t), 2, queue.Options{})
	require.NoError(t, qs[1].Pause(ctx))
	_, err := qs[1].Consume(ctx, drain, acks)
	require.NoError(t, err, "one queue")
	lab.Push(t, qs[1], queue.Job{ID: "cancelled"}, queue.Job{ID: "buried"}) // their entries stay while it is paused
	_, err = qs[1].Cancel(ctx, "cancelled")
	require.NoError(t, err)
	_, err = qs[1].BuryJobs(ctx, "no", "buried")
	require.NoError(t, err)
	require.Equal(t, 2, stats(t, qs[1]).Ready)
	_, err = qs[1].Consume(ctx, drain, acks)
	require.NoError(t, err, "one queue with entries of cancelled and buried jobs")
	lab.Push(t, qs[0], queue.Job{})
	out, err := queue.ConsumeAll(ctx, drain, acks, queue.Source{Queue: qs[0]}, queue.Source{Queue: qs[1]})
	require.NoError(t, err, "several queues")
	require.Equal(t, 1, out.Acked)
	s, _ := newShards(t, 2)
	lab.Push(t, s.Queues()[0], queue.Job{})
	require.NoError(t, s.Queues()[1].Pause(ctx))
	lab.Push(t, s.Queues()[1], queue.Job{ID: "cancelled"})
	_, err = s.Cancel(ctx, "cancelled")
	require.NoError(t, err)
	out, err = s.Consume(ctx, drain, acks)
	require.NoError(t, err, "shards")
	require.Equal(t, 1, out.Acked)
}

// A drain waits for the jobs of a paused queue, ready, scheduled and leased.
func TestDrainWaitsForTheJobsOfAPausedQueue(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*testing.T, *queue.Queue) (release func()){
		"ready": func(t *testing.T, q *queue.Queue) func() {
			lab.Push(t, q, queue.Job{})
			require.NoError(t, q.Pause(t.Context()))
			return func() { require.NoError(t, q.Resume(t.Context())) }
		},
		"scheduled": func(t *testing.T, q *queue.Queue) func() {
			lab.Push(t, q, queue.Job{ID: "x", Delay: time.Hour})
			require.NoError(t, q.Pause(t.Context()))
			return func() {
				_, err := q.Cancel(t.Context(), "x")
				require.NoError(t, err)
				require.NoError(t, q.Resume(t.Context()))
			}
		},
		"leased": func(t *testing.T, q *queue.Queue) func() {
			lab.Push(t, q, queue.Job{})
			d := lab.TakeOne(t, q)
			require.NoError(t, q.Pause(t.Context()))
			return func() { require.NoError(t, d.Ack(t.Context())) } // no notification
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			far, p := lossy(t, q, nil)
			release := hold(t, q)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := far.Consume(ctx, &queue.ConsumeOptions{Drain: true}, acks)
				done <- err
			}()
			took := lab.Sent(&queuescript.TakeScript)
			luatomictest.Eventually(t, 20*time.Second, "a take", func() bool { return p.Executed(took) > 0 })
			select {
			case err := <-done:
				t.Fatalf("the drain has ended, with %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			release()
			require.NoError(t, lab.Soon(t, 30*time.Second, "the end", done))
		})
	}
}
