package sidekiq_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// BenchmarkWork performs empty jobs of 300 bytes, and compares with the raw command, which loses them in a crash: ten
// goroutines, each with RPOP.
func BenchmarkWork(b *testing.B) {
	c := luatomictest.Client(b)
	ns := luatomictest.Namespace(b)
	d, err := sidekiq.New(c, &sidekiq.Options{Namespace: ns})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("worker", func(b *testing.B) {
		fill(b, c, ns+":queue:default")
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		_, err := d.Work(ctx, &sidekiq.WorkOptions{Concurrency: 10}, func(context.Context, *sidekiq.Delivery) error {
			if left.Add(-1) == 0 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	})
	b.Run("raw RPOP", func(b *testing.B) {
		fill(b, c, ns+":queue:default")
		b.ResetTimer()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for c.RPop(b.Context(), ns+":queue:default").Err() == nil {
				}
			})
		}
		all.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	})
}

func fill(b *testing.B, c *redis.Client, key string) {
	b.Helper()
	text := payload("default", "b9f8a6a0c2d34e5f60718293", `,"pad":"`+strings.Repeat("x", 110)+`"`)
	for left := b.N; left > 0; left -= 1000 {
		batch := make([]any, min(left, 1000))
		for i := range batch {
			batch[i] = text
		}
		if err := c.LPush(b.Context(), key, batch...).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWorkLatency is the time from a push by another client, as Ruby does it, to the handler, on an empty queue.
func BenchmarkWorkLatency(b *testing.B) {
	c := luatomictest.Client(b)
	ns := luatomictest.Namespace(b)
	d, err := sidekiq.New(c, &sidekiq.Options{Namespace: ns})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	started := make(chan time.Time)
	ended := make(chan error)
	go func() {
		_, err := d.Work(ctx, nil, func(context.Context, *sidekiq.Delivery) error {
			started <- time.Now()
			return nil
		})
		ended <- err
	}()
	var total time.Duration
	b.ResetTimer()
	for range b.N {
		time.Sleep(time.Millisecond) // the worker is idle again
		pushed := time.Now()
		if err := c.LPush(b.Context(), ns+":queue:default", payload("default", "a", "")).Err(); err != nil {
			b.Fatal(err)
		}
		total += (<-started).Sub(pushed)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "us/hand-over")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
}
