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

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Each benchmark has a raw twin in the same run: the same data through plain commands, which promise nothing. The
// figure is the ratio of the two; the absolute numbers depend on the machine. PING is the floor of one round trip.

const payload = 300

func benchJobs(n int) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].Body = make([]byte, payload)
	}
	return jobs
}

func perJob(b *testing.B, n int) {
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "jobs/s")
}

// untimed runs f outside the measured time.
func untimed(b *testing.B, f func() error) {
	b.StopTimer()
	lab.Fatal(b, f())
	b.StartTimer()
}

func BenchmarkPing(b *testing.B) {
	c := luatomictest.Client(b)
	for b.Loop() {
		lab.Fatal(b, c.Ping(b.Context()).Err())
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
	q, c := lab.NewQueue(b, nil)
	jobs := benchJobs(n)
	b.ReportAllocs()
	for b.Loop() {
		_, err := q.Push(b.Context(), jobs...)
		lab.Fatal(b, err)
		untimed(b, func() error { return clear(b.Context(), c, q) })
	}
	perJob(b, n)
}

// BenchmarkPushShards pushes to four shards concurrently, jobs with and without ids.
func BenchmarkPushShards(b *testing.B) {
	for _, n := range []int{1, 1000} {
		for _, ids := range []bool{false, true} {
			b.Run(fmt.Sprintf("n=%d/ids=%t", n, ids), func(b *testing.B) {
				c := luatomictest.Client(b)
				s, err := queue.NewShards(c, luatomictest.Namespace(b), 4, nil)
				lab.Fatal(b, err)
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
					lab.Fatal(b, err)
				}
				perJob(b, n)
			})
		}
	}
}

// BenchmarkPushAll pushes one batch over that many queues of a tag.
func BenchmarkPushAll(b *testing.B) {
	for _, queues := range []int{1, 2, 10, queue.MaxBatchQueues} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			c, tag := luatomictest.Client(b), luatomictest.Namespace(b)
			batch, names := make([]queue.Batch, queues), make([]string, 0, 2*queues)
			for i, q := range lab.Tagged(b, c, tag, queues) {
				batch[i] = queue.Batch{Queue: q, Jobs: benchJobs(queue.MaxBatch / queues)}
				names = append(names, "{"+tag+"}{"+q.Name()+"}:r", "{"+tag+"}{"+q.Name()+"}:b")
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := queue.PushAll(b.Context(), batch...)
				lab.Fatal(b, err)
				untimed(b, func() error { return c.Del(b.Context(), names...).Err() })
			}
			perJob(b, queue.MaxBatch/queues*queues)
		})
	}
}

func clear(ctx context.Context, c *redis.Client, q *queue.Queue) error {
	return c.Del(ctx, lab.Key(q, "r"), lab.Key(q, "s"), lab.Key(q, "b"), lab.Key(q, "l"), lab.Key(q, "n")).Err()
}

// benchRawPush sends the data of a queue with bodies as two variadic commands in one pipeline. Its ids have the same
// length and source.
func benchRawPush(b *testing.B, n int) {
	q, c := lab.NewQueue(b, nil)
	jobs := benchJobs(n)
	b.ReportAllocs()
	for b.Loop() {
		fields, entries := make([]any, 0, 2*n), make([]any, 0, n)
		for i := range jobs {
			id, err := uuid.NewV7()
			lab.Fatal(b, err)
			fields = append(fields, id.String(), jobs[i].Body)
			entries = append(entries, "1700000000000:"+id.String())
		}
		_, err := c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			p.HSet(b.Context(), lab.Key(q, "b"), fields...)
			p.RPush(b.Context(), lab.Key(q, "r"), entries...)
			return nil
		})
		lab.Fatal(b, err)
		untimed(b, func() error { return clear(b.Context(), c, q) })
	}
	perJob(b, n)
}

func benchRawLPush(b *testing.B, n int) {
	q, c := lab.NewQueue(b, nil)
	jobs := benchJobs(n)
	b.ReportAllocs()
	for b.Loop() {
		entries := make([]any, n)
		for i := range jobs {
			entries[i] = jobs[i].Body
		}
		lab.Fatal(b, c.LPush(b.Context(), lab.Key(q, "r"), entries...).Err())
		untimed(b, func() error { return clear(b.Context(), c, q) })
	}
	perJob(b, n)
}

// BenchmarkPromote moves 1000 due jobs of a queue with that many more.
func BenchmarkPromote(b *testing.B) {
	for _, rest := range []int{0, 200_000} {
		b.Run(fmt.Sprintf("scheduled=%d", rest), func(b *testing.B) {
			q, c := lab.NewQueue(b, nil)
			schedule := func(n int, score float64) error {
				for n > 0 {
					batch := make([]redis.Z, min(n, 1000))
					for i := range batch {
						batch[i] = redis.Z{Score: score, Member: uuid.NewString()}
					}
					if err := c.ZAdd(b.Context(), lab.Key(q, "s"), batch...).Err(); err != nil {
						return err
					}
					n -= len(batch)
				}
				return nil
			}
			lab.Fatal(b, schedule(rest, lab.Future))
			moved := 0
			for b.Loop() {
				untimed(b, func() error {
					if err := c.Del(b.Context(), lab.Key(q, "r")).Err(); err != nil {
						return err
					}
					return schedule(queue.MaxBatch, lab.Past)
				})
				p, err := q.Promote(b.Context())
				lab.Fatal(b, err)
				moved += p.Moved
			}
			if moved != b.N*queue.MaxBatch {
				b.Fatalf("moved %d of %d", moved, b.N*queue.MaxBatch)
			}
			perJob(b, queue.MaxBatch)
		})
	}
}

func BenchmarkTakeAck(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			q, _ := lab.NewQueue(b, nil)
			jobs := benchJobs(n)
			b.ReportAllocs()
			for b.Loop() {
				untimed(b, func() error {
					_, err := q.Push(b.Context(), jobs...)
					return err
				})
				taken, err := q.Take(b.Context(), n)
				lab.Fatal(b, err)
				lab.Fatal(b, q.Ack(b.Context(), taken.Deliveries...))
			}
			perJob(b, n)
		})
	}
}

// BenchmarkConsume drains b.N jobs with an empty handler, beside 0 and 100 000 other jobs in flight.
func BenchmarkConsume(b *testing.B) {
	for _, inFlight := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("in-flight=%d", inFlight), func(b *testing.B) {
			q, c := lab.NewQueue(b, nil)
			for n := 0; n < inFlight; n += 1000 {
				batch := make([]redis.Z, 1000)
				for i := range batch {
					batch[i] = redis.Z{Score: lab.LongLease, Member: uuid.NewString()}
				}
				lab.Fatal(b, c.ZAdd(b.Context(), lab.Key(q, "l"), batch...).Err())
			}
			for pushed := 0; pushed < b.N; pushed += queue.MaxBatch {
				_, err := q.Push(b.Context(), benchJobs(min(queue.MaxBatch, b.N-pushed))...)
				lab.Fatal(b, err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			var done atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			out, _ := q.Consume(ctx, nil, func(context.Context, *queue.Delivery) error {
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
	q, _ := lab.NewQueue(b, nil)
	late := make(chan time.Duration, 1)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() {
		_, _ = q.Consume(ctx, nil, func(_ context.Context, d *queue.Delivery) error {
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
		_, err := q.Push(b.Context(), queue.Job{Body: strconv.AppendInt(nil, at.UnixMilli(), 10), At: at})
		lab.Fatal(b, err)
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
		l, name, _ := lab.NewLocker(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			lease, err := l.Try(b.Context(), name)
			lab.Fatal(b, err)
			lab.Fatal(b, lease.Release(b.Context()))
		}
	})
	b.Run("raw-setnx-del", func(b *testing.B) {
		_, name, c := lab.NewLocker(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			lab.Fatal(b,
				c.SetArgs(b.Context(), name, uuid.NewString(), redis.SetArgs{Mode: "NX", TTL: 10 * time.Second}).Err())
			lab.Fatal(b, c.Del(b.Context(), name).Err())
		}
	})
}

// BenchmarkGeneratedCall is the cost of the typed layer: one key, one argument, an
// integer reply.
func BenchmarkGeneratedCall(b *testing.B) {
	c, k := luatomictest.Client(b), luatomictest.Namespace(b)
	owner := "nobody"
	run := redis.NewScript(*lockscript.ReleaseScript.Source)
	b.Run("luatomic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := lockscript.Release(b.Context(), c, lockscript.ReleaseParams{Lock: k, Owner: owner})
			lab.Fatal(b, err)
		}
	})
	b.Run("raw-evalsha", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := c.EvalSha(b.Context(), lockscript.ReleaseSHA, []string{k}, owner).Int64()
			lab.Fatal(b, err)
		}
	})
	b.Run("go-redis-script-run", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := run.Run(b.Context(), c, []string{k}, owner).Int64()
			lab.Fatal(b, err)
		}
	})
}
