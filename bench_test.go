package luatomic_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/luatomictest"
)

// Each benchmark has a raw twin in the same run: the same data through the plain
// commands, with no promise at all. The ratio of the two is the figure; the
// absolute numbers are the machine's. PING is the floor of one round trip.

const payload = 300

func benchJobs(n int) []luatomic.Job {
	jobs := make([]luatomic.Job, n)
	for i := range jobs {
		jobs[i].Body = make([]byte, payload)
	}
	return jobs
}

func perJob(b *testing.B, n int) {
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "jobs/s")
}

// fatal ends the benchmark on an error.
func fatal(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// untimed runs f outside the measured time.
func untimed(b *testing.B, f func() error) {
	b.StopTimer()
	fatal(b, f())
	b.StartTimer()
}

func BenchmarkPing(b *testing.B) {
	c := luatomictest.Client(b)
	for b.Loop() {
		fatal(b, c.Ping(b.Context()).Err())
	}
}

func BenchmarkPush(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("n=%d/luatomic", n), func(b *testing.B) { benchPush(b, n) })
		b.Run(fmt.Sprintf("n=%d/raw-hset-rpush", n), func(b *testing.B) { benchRawPush(b, n) })
		b.Run(fmt.Sprintf("n=%d/raw-lpush", n), func(b *testing.B) { benchRawLPush(b, n) })
	}
}

func benchPush(b *testing.B, n int) {
	q, c := newQueue(b, nil)
	jobs := benchJobs(n)
	b.ReportAllocs()
	for b.Loop() {
		_, err := q.Push(b.Context(), jobs...)
		fatal(b, err)
		untimed(b, func() error { return clear(b.Context(), c, q) })
	}
	perJob(b, n)
}

// BenchmarkPushShards pushes to four shards at once, jobs without ids and with.
func BenchmarkPushShards(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for _, ids := range []bool{false, true} {
			b.Run(fmt.Sprintf("n=%d/ids=%t", n, ids), func(b *testing.B) {
				c := luatomictest.Client(b)
				s, err := luatomic.NewShards(c, luatomictest.Namespace(b), 4, nil)
				fatal(b, err)
				jobs := benchJobs(n)
				b.ReportAllocs()
				for b.Loop() {
					untimed(b, func() error {
						for i := range jobs {
							if ids {
								jobs[i].ID = uuid.NewString()
							}
						}
						for _, q := range s.Queues() {
							if err := clear(b.Context(), c, q); err != nil {
								return err
							}
						}
						return nil
					})
					_, err := s.Push(b.Context(), jobs...)
					fatal(b, err)
				}
				perJob(b, n)
			})
		}
	}
}

// BenchmarkPushAll pushes one batch over that many queues of a tag.
func BenchmarkPushAll(b *testing.B) {
	for _, queues := range []int{1, 2, 10, luatomic.MaxBatchQueues} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			c, tag := luatomictest.Client(b), luatomictest.Namespace(b)
			batch, names := make([]luatomic.QueueJobs, queues), make([]string, 0, 2*queues)
			for i, q := range tagged(b, c, tag, queues) {
				batch[i] = luatomic.QueueJobs{Queue: q, Jobs: benchJobs(luatomic.MaxBatch / queues)}
				names = append(names, "{"+tag+"}{"+q.Name()+"}:r", "{"+tag+"}{"+q.Name()+"}:b")
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := luatomic.PushAll(b.Context(), batch...)
				fatal(b, err)
				untimed(b, func() error { return c.Del(b.Context(), names...).Err() })
			}
			perJob(b, luatomic.MaxBatch/queues*queues)
		})
	}
}

func clear(ctx context.Context, c *redis.Client, q *luatomic.Queue) error {
	return c.Del(ctx, key(q, "r"), key(q, "s"), key(q, "b"), key(q, "l"), key(q, "n")).Err()
}

// benchRawPush sends what a queue with bodies needs, as two variadic commands in
// one pipeline: ids as long, made as they are made there.
func benchRawPush(b *testing.B, n int) {
	q, c := newQueue(b, nil)
	jobs := benchJobs(n)
	b.ReportAllocs()
	for b.Loop() {
		fields, entries := make([]any, 0, 2*n), make([]any, 0, n)
		for i := range jobs {
			id, err := uuid.NewV7()
			fatal(b, err)
			fields = append(fields, id.String(), jobs[i].Body)
			entries = append(entries, "1700000000000:"+id.String())
		}
		_, err := c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			p.HSet(b.Context(), key(q, "b"), fields...)
			p.RPush(b.Context(), key(q, "r"), entries...)
			return nil
		})
		fatal(b, err)
		untimed(b, func() error { return clear(b.Context(), c, q) })
	}
	perJob(b, n)
}

func benchRawLPush(b *testing.B, n int) {
	q, c := newQueue(b, nil)
	jobs := benchJobs(n)
	b.ReportAllocs()
	for b.Loop() {
		entries := make([]any, n)
		for i := range jobs {
			entries[i] = jobs[i].Body
		}
		fatal(b, c.LPush(b.Context(), key(q, "r"), entries...).Err())
		untimed(b, func() error { return clear(b.Context(), c, q) })
	}
	perJob(b, n)
}

// BenchmarkPromote moves 1000 due jobs out of a queue that holds that many more.
func BenchmarkPromote(b *testing.B) {
	for _, rest := range []int{0, 200_000} {
		b.Run(fmt.Sprintf("scheduled=%d", rest), func(b *testing.B) {
			q, c := newQueue(b, nil)
			schedule := func(n int, score float64) error {
				for n > 0 {
					batch := make([]redis.Z, min(n, 1000))
					for i := range batch {
						batch[i] = redis.Z{Score: score, Member: uuid.NewString()}
					}
					if err := c.ZAdd(b.Context(), key(q, "s"), batch...).Err(); err != nil {
						return err
					}
					n -= len(batch)
				}
				return nil
			}
			fatal(b, schedule(rest, future))
			moved := 0
			for b.Loop() {
				untimed(b, func() error {
					if err := c.Del(b.Context(), key(q, "r")).Err(); err != nil {
						return err
					}
					return schedule(luatomic.MaxBatch, past)
				})
				p, err := q.Promote(b.Context())
				fatal(b, err)
				moved += p.Moved
			}
			if moved != b.N*luatomic.MaxBatch {
				b.Fatalf("moved %d of %d", moved, b.N*luatomic.MaxBatch)
			}
			perJob(b, luatomic.MaxBatch)
		})
	}
}

func BenchmarkTakeAck(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			q, _ := newQueue(b, nil)
			jobs := benchJobs(n)
			b.ReportAllocs()
			for b.Loop() {
				untimed(b, func() error {
					_, err := q.Push(b.Context(), jobs...)
					return err
				})
				taken, err := q.Take(b.Context(), n)
				fatal(b, err)
				fatal(b, q.Ack(b.Context(), taken.Deliveries...))
			}
			perJob(b, n)
		})
	}
}

// BenchmarkConsume drains b.N jobs with a handler that does nothing, beside 0 and
// 100 000 other jobs in flight.
func BenchmarkConsume(b *testing.B) {
	for _, inFlight := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("in-flight=%d", inFlight), func(b *testing.B) {
			q, c := newQueue(b, nil)
			for n := 0; n < inFlight; n += 1000 {
				batch := make([]redis.Z, 1000)
				for i := range batch {
					batch[i] = redis.Z{Score: longLease, Member: uuid.NewString()}
				}
				fatal(b, c.ZAdd(b.Context(), key(q, "l"), batch...).Err())
			}
			for pushed := 0; pushed < b.N; pushed += luatomic.MaxBatch {
				_, err := q.Push(b.Context(), benchJobs(min(luatomic.MaxBatch, b.N-pushed))...)
				fatal(b, err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var done atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			out, _ := q.Consume(ctx, nil, func(context.Context, *luatomic.Delivery) error {
				if done.Add(1) == int64(b.N) {
					cancel()
				}
				return nil
			})
			b.StopTimer()
			cancel()
			if out.Acked != b.N {
				b.Fatalf("acked %d of %d", out.Acked, b.N)
			}
			perJob(b, 1)
		})
	}
}

// BenchmarkLateness is the time from when a job is due until its handler runs, by
// this machine's clock, on a queue that is otherwise idle.
func BenchmarkLateness(b *testing.B) {
	q, _ := newQueue(b, nil)
	late := make(chan time.Duration, 1)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() {
		_, _ = q.Consume(ctx, nil, func(_ context.Context, d *luatomic.Delivery) error {
			due, err := strconv.ParseInt(string(d.Body), 10, 64)
			if err != nil {
				return err
			}
			late <- time.Since(time.UnixMilli(due))
			return nil
		})
	}()
	var all []time.Duration
	for b.Loop() {
		at := time.Now().Add(20 * time.Millisecond).Truncate(time.Millisecond)
		_, err := q.Push(b.Context(), luatomic.Job{Body: strconv.AppendInt(nil, at.UnixMilli(), 10), At: at})
		fatal(b, err)
		all = append(all, <-late)
	}
	slices.Sort(all)
	if all[0] < 0 {
		b.Fatalf("a job ran %v early", -all[0])
	}
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

func BenchmarkLockPair(b *testing.B) {
	b.Run("luatomic", func(b *testing.B) {
		l, name, _ := newLocker(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			lease, err := l.Try(b.Context(), name)
			fatal(b, err)
			fatal(b, lease.Release(b.Context()))
		}
	})
	b.Run("raw-setnx-del", func(b *testing.B) {
		_, name, c := newLocker(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			fatal(b, c.SetArgs(b.Context(), name, uuid.NewString(), redis.SetArgs{Mode: "NX", TTL: 10 * time.Second}).Err())
			fatal(b, c.Del(b.Context(), name).Err())
		}
	})
}

// BenchmarkGeneratedCall is the cost of the typed layer: one key, one argument, an
// integer reply.
func BenchmarkGeneratedCall(b *testing.B) {
	c, k := luatomictest.Client(b), luatomictest.Namespace(b)
	owner := "nobody"
	run := redis.NewScript(*gen.LockReleaseScript.Source)
	b.Run("luatomic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := gen.LockRelease(b.Context(), c, gen.LockReleaseParams{Lock: k, Owner: owner})
			fatal(b, err)
		}
	})
	b.Run("raw-evalsha", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := c.EvalSha(b.Context(), gen.LockReleaseSHA, []string{k}, owner).Int64()
			fatal(b, err)
		}
	})
	b.Run("go-redis-script-run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := run.Run(b.Context(), c, []string{k}, owner).Int64()
			fatal(b, err)
		}
	})
}
