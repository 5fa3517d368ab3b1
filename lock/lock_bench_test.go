package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// BenchmarkHandOver is the time from the call of Release to the next holder
// running, with so many who wait all the time, from one process, four and fifty.
func BenchmarkHandOver(b *testing.B) {
	benchPing(b)
	for _, lockers := range []int{1, 4} {
		for _, waiters := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("lockers=%d/waiters=%d", lockers, waiters), func(b *testing.B) {
				handOver(b, lockers, waiters)
			})
		}
	}
	b.Run("lockers=50/waiters=1000", func(b *testing.B) { handOver(b, 50, 1000) })
}

// benchPing is the yardstick: one round trip on one connection.
func benchPing(b *testing.B) {
	b.Run("ping", func(b *testing.B) {
		c := luatomictest.Client(b)
		took := make([]time.Duration, 0, b.N)
		for b.Loop() {
			start := time.Now()
			require.NoError(b, c.Ping(b.Context()).Err())
			took = append(took, time.Since(start))
		}
		report(b, took)
	})
}

func report(b *testing.B, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
}

func handOver(b *testing.B, lockers, waiters int) {
	name := luatomictest.Namespace(b)
	ctx, stop := context.WithCancel(b.Context())
	var released, count atomic.Int64 // ns since start; hand-overs
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	start, over := time.Now(), make(chan struct{})
	var once sync.Once
	from := make([]*lock.Locker, lockers)
	for i := range from {
		from[i] = lab.Locker(b, clientWithPool(b, waiters/lockers+2), &lock.Options{TTL: time.Minute})
	}
	for i := range waiters + 1 { // one of them holds it
		wg.Go(func() {
			for {
				lease, err := from[i%lockers].Acquire(ctx, name)
				if err != nil {
					return
				}
				now := time.Since(start)
				if at := released.Load(); at > 0 {
					mu.Lock()
					took = append(took, now-time.Duration(at))
					mu.Unlock()
				}
				if count.Add(1) >= int64(b.N) {
					once.Do(func() { close(over) })
				}
				released.Store(int64(time.Since(start)))
				if err := lease.Release(b.Context()); err != nil {
					return
				}
			}
		})
	}
	<-over
	b.StopTimer()
	stop()
	wg.Wait()
	report(b, took)
}

// clientWithPool is a client with connections for so many callers at once.
func clientWithPool(b *testing.B, size int) *redis.Client {
	opts, err := redis.ParseURL(luatomictest.URL(b))
	require.NoError(b, err)
	opts.PoolSize = min(size, 100)
	opts.PoolTimeout = time.Minute
	c := redis.NewClient(opts)
	b.Cleanup(func() { _ = c.Close() })
	return c
}
