package bench_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/luatomictest"
)

// BenchmarkPush pushes one job, and a thousand, over one connection. The released
// asynq has no batch call, so a thousand are a thousand calls.
func BenchmarkPush(b *testing.B) {
	ping(b)
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("n=%d/luatomic", n), func(b *testing.B) { pushLuatomic(b, n) })
		b.Run(fmt.Sprintf("n=%d/asynq", n), func(b *testing.B) { pushAsynq(b, n) })
		b.Run(fmt.Sprintf("n=%d/raw-hset-rpush", n), func(b *testing.B) { pushRaw(b, n) })
		b.Run(fmt.Sprintf("n=%d/raw-lpush", n), func(b *testing.B) { pushRawList(b, n) })
	}
}

// pushing measures push, n jobs a call, and empties the queue before it grows large.
func pushing(b *testing.B, c *redis.Client, n int, push func() error, keys ...string) {
	const room = 1000
	pushed := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := push(); err != nil {
			b.Fatal(err)
		}
		if pushed += n; pushed >= room && len(keys) > 0 {
			pushed = 0
			untimed(b, func() {
				if err := c.Del(b.Context(), keys...).Err(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "jobs/s")
}

func pushLuatomic(b *testing.B, n int) {
	c := server(b)
	q, jobs := newQueue(b, c), benchJobs(n, 0)
	pushing(b, c, n, func() error {
		_, err := q.Push(b.Context(), jobs...)
		return err
	}, key(q, "r"), key(q, "b"))
}

// pushAsynq keeps what it pushed: each of its tasks is a key of its own, so that a
// larger queue makes no call slower.
func pushAsynq(b *testing.B, n int) {
	c := server(b)
	client, queue := asynq.NewClientFromRedisClient(c), asynq.Queue(luatomictest.Namespace(b))
	body := make([]byte, payload)
	pushing(b, c, n, func() error {
		for range n {
			if _, err := client.EnqueueContext(b.Context(), asynq.NewTask("bench", body), queue); err != nil {
				return err
			}
		}
		return nil
	})
}

// pushRaw sends what a queue with bodies needs, as two variadic commands in one
// pipeline: ids as long, made as they are made there.
func pushRaw(b *testing.B, n int) {
	c, name := server(b), luatomictest.Namespace(b)
	bodies, ready, jobs := name+":b", name+":r", benchJobs(n, 0)
	pushing(b, c, n, func() error {
		fields, entries := make([]any, 0, 2*n), make([]any, 0, n)
		for i := range jobs {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			text := id.String()
			fields, entries = append(fields, text, jobs[i].Body), append(entries, "1700000000000:"+text)
		}
		_, err := c.Pipelined(b.Context(), func(p redis.Pipeliner) error {
			p.HSet(b.Context(), bodies, fields...)
			p.RPush(b.Context(), ready, entries...)
			return nil
		})
		return err
	}, bodies, ready)
}

func pushRawList(b *testing.B, n int) {
	c, list := server(b), luatomictest.Namespace(b)
	jobs := benchJobs(n, 0)
	pushing(b, c, n, func() error {
		entries := make([]any, n)
		for i := range jobs {
			entries[i] = jobs[i].Body
		}
		return c.LPush(b.Context(), list, entries...).Err()
	}, list)
}
