package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/queue"
)

func pushRows(b *bench, r *result) []row {
	var all []row
	for _, n := range []int{1, 100, 1000} {
		entrants := []entrant{
			{name: "luatomic", kind: ours, open: pushOurs(n)},
			{name: "HSET + RPUSH", kind: raw, note: "the same data; no answer to a repeat", open: pushRaw(n)},
			{name: "LPUSH", kind: raw, note: "bodies only, no ids", open: pushList(n)},
			{name: "asynq", kind: peer, note: "a call for each job: it has no batch", open: pushAsynq(n)},
		}
		if n > 1 {
			entrants = append(entrants, pushPrograms(b, r, n)...)
		}
		all = append(all, row{fmt.Sprintf("push/batch=%d", n), fmt.Sprintf("push of %d x 300 B, one caller", n),
			mainOf(n), entrants})
	}
	for _, callers := range []int{16, 64, 256} {
		all = append(all, row{fmt.Sprintf("push/callers=%d", callers),
			fmt.Sprintf("pushes of one job, %d callers, plain client", callers), "per_s", []entrant{
				{name: "luatomic", kind: ours, open: pushManyOurs(callers)},
				{name: "HSET + RPUSH", kind: raw, open: pushManyRaw(callers)},
				{name: "asynq", kind: peer, open: pushManyAsynq(callers)},
			}})
	}
	return all
}

func mainOf(n int) string {
	if n == 1 {
		return "p50_us"
	}
	return "per_s"
}

func jobs(n int, delay time.Duration) []luatomic.Job {
	all := make([]luatomic.Job, n)
	for i := range all {
		all[i] = luatomic.Job{Body: make([]byte, payload), Delay: delay}
	}
	return all
}

func pushOurs(n int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		q, err := b.queue(b.client(1))
		if err != nil {
			return nil, err
		}
		batch := jobs(n, 0)
		return b.alone(n, func(ctx context.Context) error {
			_, err := q.Push(ctx, batch...)
			return err
		})
	}
}

func pushManyOurs(callers int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		q, err := b.queue(b.client(callers))
		if err != nil {
			return nil, err
		}
		one := jobs(1, 0)
		return b.together(callers, 1, func(ctx context.Context, _ int) error {
			_, err := q.Push(ctx, one...)
			return err
		})
	}
}

// rawPush sends what a queue with bodies needs as two variadic commands in one pipeline, with ids as long.
func rawPush(ctx context.Context, c *redis.Client, space string, n int) error {
	body := make([]byte, payload)
	fields, entries := make([]any, 0, 2*n), make([]any, 0, n)
	for range n {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		text := id.String()
		fields, entries = append(fields, text, body), append(entries, "1700000000000:"+text)
	}
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, space+":b", fields...)
		p.RPush(ctx, space+":r", entries...)
		return nil
	})
	return err
}

func pushRaw(n int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c := b.client(1)
		return b.alone(n, func(ctx context.Context) error { return rawPush(ctx, c, b.space, n) })
	}
}

func pushManyRaw(callers int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c := b.client(callers)
		return b.together(callers, 1, func(ctx context.Context, _ int) error { return rawPush(ctx, c, b.space, 1) })
	}
}

func pushList(n int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c := b.client(1)
		entries := make([]any, n)
		for i := range entries {
			entries[i] = make([]byte, payload)
		}
		return b.alone(n, func(ctx context.Context) error { return c.LPush(ctx, b.space, entries...).Err() })
	}
}

func pushAsynq(n int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		client := asynq.NewClientFromRedisClient(b.client(1))
		return b.alone(n, func(ctx context.Context) error { return enqueue(ctx, client, b.space, n) })
	}
}

func pushManyAsynq(callers int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		client := asynq.NewClientFromRedisClient(b.client(callers))
		return b.together(callers, 1, func(ctx context.Context, _ int) error {
			return enqueue(ctx, client, b.space, 1)
		})
	}
}

func enqueue(ctx context.Context, client *asynq.Client, q string, n int, opts ...asynq.Option) error {
	opts = append(opts, asynq.Queue(q))
	for range n {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("bench", make([]byte, payload)), opts...); err != nil {
			return err
		}
	}
	return nil
}

// fill pushes n jobs in full batches.
func fill(ctx context.Context, q *luatomic.Queue, n int, delay time.Duration) error {
	for ; n > 0; n -= queue.MaxBatch {
		if _, err := q.Push(ctx, jobs(min(n, queue.MaxBatch), delay)...); err != nil {
			return err
		}
	}
	return nil
}
