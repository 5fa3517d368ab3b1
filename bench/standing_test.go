package bench_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// BenchmarkMemory is what a scheduled job of 300 bytes costs by MEMORY USAGE of every
// key, beside the payload itself.
func BenchmarkMemory(b *testing.B) {
	const jobs = 10_000
	b.Run("luatomic", func(b *testing.B) {
		for b.Loop() {
			c := server(b)
			q := newQueue(b, c)
			fill(b, q, jobs, time.Hour)
			reportMemory(b, c, q.Name(), jobs)
		}
	})
	b.Run("asynq", func(b *testing.B) {
		for b.Loop() {
			c, name := server(b), luatomictest.Namespace(b)
			fillAsynq(b, c, name, jobs, asynq.ProcessIn(time.Hour))
			reportMemory(b, c, name, jobs)
		}
	})
}

func reportMemory(b *testing.B, c *redis.Client, name string, jobs int) {
	var total, cursor uint64
	for first := true; first || cursor != 0; first = false {
		keys, next, err := c.Scan(b.Context(), cursor, "*"+name+"*", 1000).Result()
		require.NoError(b, err)
		usages, err := c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			for _, k := range keys {
				p.MemoryUsage(b.Context(), k, 0) // 0: count every element
			}
			return nil
		})
		require.NoError(b, err)
		for _, u := range usages {
			total += uint64(u.(*redis.IntCmd).Val())
		}
		cursor = next
	}
	b.ReportMetric(float64(total)/float64(jobs), "bytes/job")
	b.ReportMetric(float64(total)/float64(jobs*payload), "x-payload")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle is what a hundred consumers of an empty queue ask of the server.
func BenchmarkIdle(b *testing.B) {
	b.Run("luatomic", idleLuatomic)
	b.Run("asynq", idleAsynq)
}

const idlers = 100

// reportIdle counts a while's round trips, and all commands that the server ran,
// those inside scripts and on subscriptions included. The start of the idlers, which
// costs more, is not counted.
func reportIdle(b *testing.B, c *redis.Client) {
	const settle, while = 2 * time.Second, 20 * time.Second
	time.Sleep(settle)
	before := spent(b, c)
	var trips tripCounter
	c.AddHook(&trips)
	time.Sleep(while)
	sent := trips.n.Load()
	d := spent(b, c).since(before)
	b.ReportMetric(float64(sent)/while.Seconds()/idlers, "trips/s/consumer")
	b.ReportMetric(float64(d.commands)/while.Seconds()/idlers, "commands/s/consumer")
	b.ReportMetric(float64(d.cpu.Microseconds())/while.Seconds(), "server-us/s")
	b.ReportMetric(0, "ns/op")
}

func idleLuatomic(b *testing.B) {
	for b.Loop() {
		c := server(b)
		q := newQueue(b, c)
		ctx, cancel := context.WithCancel(b.Context())
		var consumers sync.WaitGroup
		for range idlers {
			consumers.Go(func() { _, _ = q.Consume(ctx, nil, nil) })
		}
		reportIdle(b, c)
		cancel()
		consumers.Wait()
	}
}

func idleAsynq(b *testing.B) {
	for b.Loop() {
		c, name := server(b), luatomictest.Namespace(b)
		var stopping sync.WaitGroup
		var stops []func()
		for range idlers {
			_, stop := startAsynq(b, c, name, asynq.Config{Concurrency: concurrency}, func(context.Context, *asynq.Task) error { return nil })
			stops = append(stops, stop)
		}
		reportIdle(b, c)
		for _, stop := range stops {
			stopping.Go(stop)
		}
		stopping.Wait()
	}
}
