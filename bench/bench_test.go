package bench_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/container"
	"github.com/luatomic/luatomic/queue"
)

// Peers side by side. Every group has PING, the floor of one round trip, and where
// it makes sense a raw twin: the plain commands for the same data, with no promise
// at all. All clients are go-redis with its defaults, on the same kind of server.

const payload = 300 // bytes of a job

func TestMain(m *testing.M) { luatomictest.Main(m, container.Start) }

// server returns a client of LUATOMIC_REDIS_URL, or else of a server on loopback of
// this benchmark's own, so that no group pays for the leavings of another.
func server(b *testing.B) *redis.Client {
	b.Helper()
	if os.Getenv("LUATOMIC_REDIS_URL") != "" {
		return luatomictest.Client(b)
	}
	return luatomictest.StartServer(b).Client()
}

// another returns a second client of the same server. The options of a client hold
// state, so they cannot be given to a second one.
func another(b *testing.B, c *redis.Client) *redis.Client {
	b.Helper()
	o := c.Options()
	second := redis.NewClient(&redis.Options{
		Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
	})
	b.Cleanup(func() { require.NoError(b, second.Close()) })
	require.NoError(b, second.Ping(b.Context()).Err())
	return second
}

func newQueue(b *testing.B, c redis.UniversalClient) *luatomic.Queue {
	b.Helper()
	q, err := luatomic.NewQueue(c, luatomictest.Namespace(b), nil)
	require.NoError(b, err)
	return q
}

// key is a key of the queue's layout, such as "s" for the scheduled jobs.
func key(q *luatomic.Queue, part string) string { return "{" + q.Name() + "}:" + part }

func benchJobs(n int, delay time.Duration) []luatomic.Job {
	jobs := make([]luatomic.Job, n)
	for i := range jobs {
		jobs[i] = luatomic.Job{Body: make([]byte, payload), Delay: delay}
	}
	return jobs
}

// fill pushes n jobs in full batches.
func fill(b *testing.B, q *luatomic.Queue, n int, delay time.Duration) {
	b.Helper()
	for ; n > 0; n -= queue.MaxBatch {
		_, err := q.Push(b.Context(), benchJobs(min(n, queue.MaxBatch), delay)...)
		require.NoError(b, err)
	}
}

// fillAsynq enqueues n tasks. There is no batch call, so sixteen goroutines do it.
func fillAsynq(b *testing.B, c *redis.Client, queue string, n int, opts ...asynq.Option) {
	b.Helper()
	client := asynq.NewClientFromRedisClient(c)
	opts = append(opts, asynq.Queue(queue))
	const feeders = 16
	var wg sync.WaitGroup
	errs := make([]error, feeders)
	for f := range feeders {
		wg.Go(func() {
			for i := f; i < n && errs[f] == nil; i += feeders {
				_, errs[f] = client.EnqueueContext(b.Context(), asynq.NewTask("bench", make([]byte, payload)), opts...)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
}

// makeDue halves the due times of a schedule, which keeps their order and puts them
// far into the past. It stands for the hour that everybody waits for. A million takes
// longer than a client waits by default, and a repeat would halve them twice.
func makeDue(b *testing.B, c *redis.Client, schedule string) {
	b.Helper()
	patient := c.WithTimeout(time.Minute)
	require.NoError(b, patient.ZUnionStore(b.Context(), schedule, &redis.ZStore{Keys: []string{schedule}, Weights: []float64{0.5}}).Err())
}

// startAsynq runs a server of that queue alone. It is stopped by the returned
// function, or when the benchmark ends.
func startAsynq(b *testing.B, c *redis.Client, queue string, cfg asynq.Config, h asynq.HandlerFunc) (s *asynq.Server, stop func()) {
	b.Helper()
	cfg.Queues, cfg.LogLevel = map[string]int{queue: 1}, asynq.FatalLevel
	s = asynq.NewServerFromRedisClient(c, cfg)
	require.NoError(b, s.Start(h))
	stop = sync.OnceFunc(s.Shutdown)
	b.Cleanup(stop)
	return s, stop
}

// quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// per reports how many of something there were in a second of the measured time.
func per(b *testing.B, n int, unit string) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), unit)
	b.ReportMetric(0, "ns/op") // a zero is left out; the rate says it all
}

// untimed runs f outside the measured time.
func untimed(b *testing.B, f func()) {
	b.StopTimer()
	f()
	b.StartTimer()
}

// ping is the first of each group.
func ping(b *testing.B) {
	b.Run("ping", func(b *testing.B) {
		c := server(b)
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Ping(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// pingAtOnce is PING from many goroutines.
func pingAtOnce(b *testing.B, goroutines int) {
	b.Run(fmt.Sprintf("ping-goroutines=%d", goroutines), func(b *testing.B) {
		c := server(b)
		inParallel(b, goroutines, func(ctx context.Context, _ int) error { return c.Ping(ctx).Err() })
		per(b, b.N, "pings/s")
	})
}

// inParallel runs f b.N times in that many goroutines, and tells f which one it is.
func inParallel(b *testing.B, goroutines int, f func(ctx context.Context, goroutine int) error) {
	var next sync.Mutex
	started := 0
	b.SetParallelism(max(goroutines/runtime.GOMAXPROCS(0), 1))
	b.RunParallel(func(p *testing.PB) {
		next.Lock()
		id := started
		started++
		next.Unlock()
		for p.Next() {
			if err := f(b.Context(), id); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
