package bench_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

const concurrency = 10

// BenchmarkConsume takes and acks jobs that are ready, ten at once, with a handler
// that does nothing, and with one that takes 2 ms. The first is the largest rate,
// which luatomic reaches by taking and acking many jobs in one call; where handlers
// take longer it takes no job ahead, so the second shows what each one then costs.
func BenchmarkConsume(b *testing.B) {
	ping(b)
	pingAtOnce(b, concurrency)
	b.Run("no-op/luatomic", func(b *testing.B) { consumeLuatomic(b, 100_000, 0) })
	b.Run("no-op/asynq", func(b *testing.B) { consumeAsynq(b, 20_000, 0) })
	b.Run("no-op/raw-lpop", func(b *testing.B) { consumeRaw(b, 20_000) })
	const busy = 2 * time.Millisecond
	b.Run("2ms/luatomic", func(b *testing.B) { consumeLuatomic(b, 5000, busy) })
	b.Run("2ms/asynq", func(b *testing.B) { consumeAsynq(b, 5000, busy) })
}

// consuming measures work on n jobs, and what the server spends on it.
func consuming(b *testing.B, n int, load func(c *redis.Client, name string), work func(c *redis.Client, name string)) {
	for b.Loop() {
		var c *redis.Client
		var name string
		var before cost
		untimed(b, func() {
			c, name = server(b), luatomictest.Namespace(b)
			load(c, name)
			before = spent(b, c)
		})
		work(c, name)
		untimed(b, func() {
			d := spent(b, c).since(before)
			reportCPU(b, d, n, "job")
			b.ReportMetric(float64(d.commands)/float64(n), "commands/job")
		})
	}
	per(b, b.N*n, "jobs/s")
}

// consumeLuatomic ends when the last job is acked and the consumer has stopped.
func consumeLuatomic(b *testing.B, n int, busy time.Duration) {
	open := func(c *redis.Client, name string) *luatomic.Queue {
		q, err := luatomic.NewQueue(c, name, nil)
		require.NoError(b, err)
		return q
	}
	consuming(b, n, func(c *redis.Client, name string) { fill(b, open(c, name), n, 0) }, func(c *redis.Client, name string) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var done atomic.Int64
		out, err := open(c, name).Consume(ctx, &luatomic.ConsumeOptions{Concurrency: concurrency}, func(context.Context, *luatomic.Delivery) error {
			time.Sleep(busy)
			if done.Add(1) == int64(n) {
				cancel()
			}
			return nil
		})
		require.ErrorIs(b, err, context.Canceled)
		require.Equal(b, n, out.Acked)
		require.Zero(b, c.HLen(b.Context(), "{"+name+"}:b").Val(), "no body is left")
	})
}

// consumeAsynq ends when the last handler has run: the last ten acks and the stop of
// the server are not counted against it.
func consumeAsynq(b *testing.B, n int, busy time.Duration) {
	consuming(b, n, func(c *redis.Client, name string) { fillAsynq(b, c, name, n) }, func(c *redis.Client, name string) {
		var done atomic.Int64
		all := make(chan struct{})
		_, stop := startAsynq(b, c, name, asynq.Config{Concurrency: concurrency}, func(context.Context, *asynq.Task) error {
			time.Sleep(busy)
			if done.Add(1) == int64(n) {
				close(all)
			}
			return nil
		})
		select {
		case <-all:
		case <-time.After(time.Minute):
			b.Fatalf("%d of %d tasks ran within a minute", done.Load(), n)
		}
		untimed(b, stop)
	})
}

// consumeRaw pops one job at a time in each goroutine. A job popped is lost when its
// worker dies.
func consumeRaw(b *testing.B, n int) {
	consuming(b, n, func(c *redis.Client, name string) {
		for range n / queue.MaxBatch {
			entries := make([]any, queue.MaxBatch)
			for i := range entries {
				entries[i] = make([]byte, payload)
			}
			require.NoError(b, c.RPush(b.Context(), name, entries...).Err())
		}
	}, func(c *redis.Client, name string) {
		var wg sync.WaitGroup
		errs := make([]error, concurrency)
		for w := range concurrency {
			wg.Go(func() {
				for errs[w] == nil {
					errs[w] = c.LPop(b.Context(), name).Err()
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.ErrorIs(b, err, redis.Nil)
		}
	})
}

// BenchmarkLateness is the time from when a job is due until its handler runs, by
// this machine's clock, on a queue that is otherwise idle.
func BenchmarkLateness(b *testing.B) {
	ping(b)
	b.Run("luatomic", latenessLuatomic)
	b.Run("asynq", latenessAsynq)
}

func reportLateness(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	b.ReportMetric(ms(all[0]), "min-ms")
	b.ReportMetric(ms(quantile(all, 0.5)), "p50-ms")
	b.ReportMetric(ms(quantile(all, 0.99)), "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// stamp is a body that says when its job is due.
func stamp(at time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano())) }

func lateness(body []byte) (time.Duration, error) {
	if len(body) != 8 {
		return 0, errors.New("bench: not a stamp")
	}
	return time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(body)))), nil
}

func latenessLuatomic(b *testing.B) {
	const samples = 300
	q := newQueue(b, server(b))
	late := make(chan time.Duration, 1)
	ctx, cancel := context.WithCancel(b.Context())
	var consumer sync.WaitGroup
	defer consumer.Wait()
	defer cancel()
	consumer.Go(func() {
		_, _ = q.Consume(ctx, nil, func(_ context.Context, d *luatomic.Delivery) error {
			l, err := lateness(d.Body)
			if err == nil {
				late <- l
			}
			return err
		})
	})
	var all []time.Duration
	for b.Loop() {
		for range samples {
			at := time.Now().Add(20 * time.Millisecond).Truncate(time.Millisecond)
			_, err := q.Push(b.Context(), luatomic.Job{Body: stamp(at), At: at})
			require.NoError(b, err)
			all = append(all, <-late)
		}
	}
	reportLateness(b, all)
}

// latenessAsynq takes one shot of few samples, spread over the five seconds between
// two looks of its forwarder.
func latenessAsynq(b *testing.B) {
	const samples = 5
	c, name := server(b), luatomictest.Namespace(b)
	late := make(chan time.Duration, samples)
	_, stop := startAsynq(b, c, name, asynq.Config{Concurrency: concurrency}, func(_ context.Context, t *asynq.Task) error {
		l, err := lateness(t.Payload())
		if err == nil {
			late <- l
		}
		return err
	})
	client := asynq.NewClientFromRedisClient(c)
	var all []time.Duration
	for b.Loop() {
		for i := range samples {
			at := time.Now().Add(1100*time.Millisecond + time.Duration(i)*time.Second)
			_, err := client.EnqueueContext(b.Context(), asynq.NewTask("bench", stamp(at)), asynq.Queue(name), asynq.ProcessAt(at))
			require.NoError(b, err)
		}
		for range samples {
			all = append(all, <-late)
		}
	}
	stop()
	reportLateness(b, all)
}
