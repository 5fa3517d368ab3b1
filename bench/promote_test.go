package bench_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// BenchmarkPromote moves 200 000 jobs that are all due, from one goroutine.
func BenchmarkPromote(b *testing.B) {
	const due = 200_000
	ping(b)
	b.Run("luatomic", func(b *testing.B) { promoteAll(b, due, luatomicMover) })
	b.Run("asynq", func(b *testing.B) { promoteAsynq(b, due) })
	b.Run("raw-script", func(b *testing.B) { promoteAll(b, due, rawMover) })
}

// mover moves a batch of jobs that are due, and returns their number.
type mover func() (int, error)

func luatomicMover(b *testing.B, _ *redis.Client, q *luatomic.Queue) mover {
	return func() (int, error) {
		p, err := q.Promote(b.Context())
		return p.Moved, err
	}
}

// rawMover is the least that a script can do: three data calls, the caller's clock.
func rawMover(b *testing.B, c *redis.Client, q *luatomic.Queue) mover {
	script := redis.NewScript(`
local ids = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, 1000)
if #ids > 0 then
  redis.call('RPUSH', KEYS[2], unpack(ids))
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
end
return #ids`)
	return func() (int, error) {
		return script.Run(b.Context(), c, []string{key(q, "s"), key(q, "r")}, time.Now().UnixMilli()).Int()
	}
}

// dueQueue holds that many jobs, all due.
func dueQueue(b *testing.B, c *redis.Client, jobs int) *luatomic.Queue {
	q := newQueue(b, c)
	fill(b, q, jobs, time.Hour)
	makeDue(b, c, key(q, "s"))
	return q
}

func promoteAll(b *testing.B, due int, open func(*testing.B, *redis.Client, *luatomic.Queue) mover) {
	for b.Loop() {
		var c *redis.Client
		var move mover
		var before cost
		untimed(b, func() {
			c = server(b)
			move = open(b, c, dueQueue(b, c, due))
			before = spent(b, c)
		})
		promotes(b, move, due/queue.MaxBatch)
		untimed(b, func() { reportCPU(b, spent(b, c).since(before), due, "job") })
	}
	per(b, b.N*due, "jobs/s")
}

// promoteAsynq runs a server whose processor is stopped, by its own Stop, so that
// its forwarder works alone. The clock runs from the first task seen to move to the
// last; it is read every 2 ms.
func promoteAsynq(b *testing.B, due int) {
	var took time.Duration
	for b.Loop() {
		c, queue := server(b), luatomictest.Namespace(b)
		scheduled := "asynq:{" + queue + "}:scheduled"
		fillAsynq(b, c, queue, due, asynq.ProcessIn(time.Hour))
		makeDue(b, c, scheduled)
		s, stop := startAsynq(b, c, queue, asynq.Config{
			DelayedTaskCheckInterval: time.Second, TaskCheckInterval: 10 * time.Millisecond,
		}, func(context.Context, *asynq.Task) error { return nil })
		s.Stop()
		left := func() int { return int(c.ZCard(b.Context(), scheduled).Val()) }
		require.Equal(b, due, left(), "nothing has moved while the server started")
		for left() == due {
			time.Sleep(time.Millisecond)
		}
		start, first, before := time.Now(), left(), spent(b, c)
		for left() > 0 {
			time.Sleep(2 * time.Millisecond)
		}
		took += time.Since(start)
		reportCPU(b, spent(b, c).since(before), first, "job")
		stop()
	}
	b.ReportMetric(float64(b.N*due)/took.Seconds(), "jobs/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStall moves a million jobs that are due at once, in calls of 1000. The
// first hundred calls show how a promote slows down from a schedule of 1000 to one of
// a million; during the others a second connection sends PING every millisecond. The
// longest script is the server's own count, over all calls.
func BenchmarkStall(b *testing.B) {
	b.Run("idle", func(b *testing.B) {
		c := server(b)
		for b.Loop() {
			pings(b, c, func() { time.Sleep(2 * time.Second) })
		}
		b.ReportMetric(0, "ns/op")
	})
	b.Run("luatomic", func(b *testing.B) { stall(b, luatomicMover) })
	b.Run("raw-script", func(b *testing.B) { stall(b, rawMover) })
}

func stall(b *testing.B, open func(*testing.B, *redis.Client, *luatomic.Queue) mover) {
	const many, first = 1_000_000, 100
	for b.Loop() {
		c := server(b)
		var small []time.Duration
		for range first {
			small = append(small, promotes(b, open(b, c, dueQueue(b, c, queue.MaxBatch)), 1)...)
		}
		q := dueQueue(b, c, many)
		move := open(b, c, q)
		measureScripts(b, c)
		large := promotes(b, move, first)
		pings(b, c, func() { promotes(b, move, many/queue.MaxBatch-first) })
		require.Zero(b, c.ZCard(b.Context(), key(q, "s")).Val(), "all have moved")
		b.ReportMetric(scripts(b, c, "p100"), "script-max-us")
		b.ReportMetric(scripts(b, c, "p99.9"), "script-p99.9-us")
		slices.Sort(small)
		slices.Sort(large)
		of1k, of1M := quantile(small, 0.5), quantile(large, 0.5)
		b.ReportMetric(ms(of1k), "promote-of-1k-ms")
		b.ReportMetric(ms(of1M), "promote-of-1M-ms")
		b.ReportMetric(float64(of1M)/float64(of1k), "growth")
	}
	b.ReportMetric(0, "ns/op")
}

// promotes makes that many calls, each of which must move a full batch, and returns
// how long each took.
func promotes(b *testing.B, move mover, calls int) []time.Duration {
	took := make([]time.Duration, calls)
	for i := range took {
		start := time.Now()
		moved, err := move()
		took[i] = time.Since(start)
		require.NoError(b, err)
		require.Equal(b, queue.MaxBatch, moved)
	}
	return took
}

// measureScripts starts the server's latency count anew, with its maximum.
func measureScripts(b *testing.B, c *redis.Client) {
	require.NoError(b, c.ConfigSet(b.Context(), "latency-tracking-info-percentiles", "50 99.9 100").Err())
	require.NoError(b, c.ConfigResetStat(b.Context()).Err())
}

// scripts is a percentile of EVALSHA in us, by the server's own count.
func scripts(b *testing.B, c *redis.Client, percentile string) float64 {
	line, ok := info(b, c, "latencystats", "Latencystats")["latency_percentiles_usec_evalsha"]
	require.True(b, ok, "the server tracks latency")
	return field(b, line, percentile)
}

// pings sends PING every millisecond while f runs and reports what they took.
func pings(b *testing.B, c *redis.Client, f func()) {
	probe := another(b, c)
	ctx, cancel := context.WithCancel(b.Context())
	result := make(chan []time.Duration)
	go func() {
		var all []time.Duration
		defer func() { result <- all }()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			start := time.Now()
			if probe.Ping(ctx).Err() == nil {
				all = append(all, time.Since(start))
			}
		}
	}()
	f()
	cancel()
	all := <-result
	slices.Sort(all)
	require.NotEmpty(b, all, "a PING was answered")
	for _, q := range []float64{0.5, 0.999, 1} {
		b.ReportMetric(ms(quantile(all, q)), fmt.Sprintf("ping-p%g-ms", q*100))
	}
}
