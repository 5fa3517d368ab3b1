package queue_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
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
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(_ context.Context, d *queue.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[string(d.Body)]++
			return nil
		})
	require.NoError(t, err)
	out.Retried = 0 // a busy machine may keep a handler for so long that its consumer returns others
	require.Equal(t, queue.Consumed{Acked: 300}, out)
	require.Len(t, seen, 300)
	for body, n := range seen {
		require.Equal(t, 1, n, body)
	}
}

// Two consumers share one queue, and no job runs twice.
func TestConsumersShareAQueue(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), lab.Bodies(200)...)
	require.NoError(t, err)
	var done atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
				func(context.Context, *queue.Delivery) error {
					done.Add(1)
					return nil
				})
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Equal(t, int64(200), done.Load())
}

// When ctx ends, running handlers have the grace period. Jobs that they do not finish are returned and ready
// immediately.
func TestConsumeStopsGracefully(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), queue.Job{ID: "fast"}, queue.Job{ID: "slow"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var started sync.WaitGroup
	started.Add(2)
	go func() {
		started.Wait()
		cancel()
	}()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Grace: 50 * time.Millisecond},
		func(work context.Context, d *queue.Delivery) error {
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

// A failure that no retry can cure ends the consumer, which does not retry for ever.
func TestConsumeReturnsWhatNoRetryCures(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.Set(t.Context(), lab.Key(q, "r"), "not a list", 0).Err())
	luatomictest.Eventually(t, 20*time.Second, "the key is named", func() bool { // asking for its type has a second
		_, err := q.Consume(t.Context(), nil, func(context.Context, *queue.Delivery) error { return nil })
		require.ErrorIs(t, err, lua.ErrWrongType)
		return strings.Contains(err.Error(), "holds a string, not a list")
	})
}

// A lease below a millisecond or a closed client ends the consumer, which does not retry for ever.
func TestConsumeEndsOnSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, *queue.Delivery) error { return nil }
	for _, lease := range []time.Duration{-time.Second, time.Microsecond} {
		q, _ := lab.NewQueue(t, &queue.Options{Lease: lease})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := q.Consume(ctx, nil, handler)
		require.ErrorIs(t, err, lua.ErrOutOfRange)
	}
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	require.NoError(t, c.Close())
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = q.Consume(ctx, nil, handler)
	require.ErrorIs(t, err, redis.ErrClosed)
}

// Settings with which no job could run are refused before anything is sent.
func TestConsumeRefusesSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	qs := several(t, luatomictest.Client(t), 2, queue.Options{})
	s, _ := newShards(t, 2)
	lab.Push(t, qs[0], queue.Job{})
	for name, consume := range map[string]func(*queue.ConsumeOptions, queue.Handler) (queue.Consumed, error){
		"one": func(o *queue.ConsumeOptions, h queue.Handler) (queue.Consumed, error) {
			return qs[0].Consume(t.Context(), o, h)
		},
		"several": func(o *queue.ConsumeOptions, h queue.Handler) (queue.Consumed, error) {
			return queue.ConsumeAll(t.Context(), o, h, queue.Source{Queue: qs[0]}, queue.Source{Queue: qs[1]})
		},
		"shards": func(o *queue.ConsumeOptions, h queue.Handler) (queue.Consumed, error) {
			return s.Consume(t.Context(), o, h)
		},
	} {
		_, err := consume(&queue.ConsumeOptions{Drain: true}, nil)
		require.ErrorContains(t, err, "no handler", name)
		_, err = consume(&queue.ConsumeOptions{Drain: true, Concurrency: math.MaxInt}, acks)
		require.ErrorIs(t, err, lua.ErrOutOfRange, name)
	}
	require.Equal(t, 1, stats(t, qs[0]).Ready)
}
