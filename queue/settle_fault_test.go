package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// slowNacks is a network on which each nack takes 100 ms.
type slowNacks struct {
	redis.Hook
	calls atomic.Int32
}

func (s *slowNacks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowNacks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slowNacks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasSuffix(cmd.FullName(), "queue_nack") {
			s.calls.Add(1)
			time.Sleep(100 * time.Millisecond)
		}
		return next(ctx, cmd)
	}
}

// Many jobs fail together, as when all need the same unreachable service. All are returned, and the one finished
// job among them is acked.
func TestManyFailuresInOneBatch(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	const n = 100
	lab.Push(t, q, lab.Bodies(n)...)
	slow := &slowNacks{}
	c.AddHook(slow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failures atomic.Int32
	var begun sync.WaitGroup
	begun.Add(n)
	go func() {
		defer cancel()
		luatomictest.Eventually(t, 50*time.Second, "all outcomes are stored", func() bool {
			s, err := q.Stats(ctx)
			return err == nil && s.Leased == 0 && s.Ready == 0
		})
	}()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{
		Concurrency: n, Backoff: func(int) time.Duration { return time.Hour }, OnError: func(error) { failures.Add(1) },
	}, func(_ context.Context, d *queue.Delivery) error {
		begun.Done()
		begun.Wait()
		if string(d.Body) == string(lab.Bodies(n)[n/2].Body) {
			return nil
		}
		return errors.New("unreachable")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: n - 1}, out)
	require.EqualValues(t, n-1, failures.Load())
}

// An outage longer than one attempt to ack, and shorter than the lease, costs no finished work.
func TestFinishedWorkIsAckedAfterAnOutage(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 20 * time.Second})
	far, p := lossy(t, q, &queue.Options{Lease: 20 * time.Second})
	lab.Push(t, q, queue.Job{ID: "x"})
	consuming, stop := context.WithCancel(t.Context())
	defer stop()
	finished := make(chan struct{})
	done := make(chan queue.Consumed, 1)
	go func() {
		out, _ := far.Consume(consuming, nil, func(context.Context, *queue.Delivery) error {
			p.Blackhole(true)
			close(finished) // a second delivery would panic
			return nil
		})
		done <- out
	}()
	lab.Soon(t, 20*time.Second, "the work", finished)
	time.Sleep(7 * time.Second) // the outage
	p.Blackhole(false)
	luatomictest.Eventually(t, 12*time.Second, "the job is acked", func() bool {
		return c.ZCard(t.Context(), lab.Key(q, "l")).Val() == 0
	})
	stop()
	require.Equal(t, queue.Consumed{Acked: 1}, lab.Soon(t, 20*time.Second, "the end", done))
}
