package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	lockscript "github.com/luatomic/luatomic/gen/lock"
)

func memoryRows() []row {
	const n = 10_000
	stored := func(delay time.Duration) func(*bench) (metrics, error) {
		return func(b *bench) (metrics, error) {
			q, err := b.queue(b.client(1))
			if err == nil {
				err = fill(b.ctx, q, b.size(n), delay)
			}
			if err != nil {
				return nil, err
			}
			return b.memory(b.size(n))
		}
	}
	asynqStored := func(opts ...asynq.Option) func(*bench) (metrics, error) {
		return func(b *bench) (metrics, error) {
			if err := fillAsynq(b, b.client(16), b.size(n), opts...); err != nil {
				return nil, err
			}
			return b.memory(b.size(n))
		}
	}
	return []row{
		{"memory/ready", "bytes of a ready job of 300 B, by MEMORY USAGE of every key", "bytes", []entrant{
			{name: "luatomic", kind: ours, open: whole(stored(0))},
			{name: "asynq", kind: peer, open: whole(asynqStored())}}},
		{"memory/scheduled", "bytes of a scheduled job of 300 B", "bytes", []entrant{
			{name: "luatomic", kind: ours, open: whole(stored(time.Hour))},
			{name: "asynq", kind: peer, open: whole(asynqStored(asynq.ProcessIn(time.Hour)))}}},
		{"memory/receipt", "bytes left by a push of one whose job is acked", "bytes", []entrant{
			{name: "luatomic", kind: ours, open: whole(receipts)}}},
		{"memory/lock", "bytes of a held lock", "bytes", []entrant{
			{name: "luatomic", kind: ours, open: whole(heldLocks(oursHold))},
			{name: "redislock", kind: peer, open: whole(heldLocks(redislockHold))}}},
	}
}

// memory is what all keys of the entrant use, by the server's own count, for each of n. The table of all keys is not in
// it.
func (b *bench) memory(n int) (metrics, error) {
	total := 0.0
	it := b.probe.Scan(b.ctx, 0, "*"+b.space+"*", 1000).Iterator()
	for it.Next(b.ctx) {
		used, err := b.probe.MemoryUsage(b.ctx, it.Val(), 0).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		total += float64(used)
	}
	return metrics{"bytes": total / float64(n)}, it.Err()
}

func receipts(b *bench) (metrics, error) {
	q, err := b.queue(b.client(1))
	if err != nil {
		return nil, err
	}
	const n = 1000
	for range n {
		if _, err := q.Push(b.ctx, jobs(1, 0)...); err != nil {
			return nil, err
		}
	}
	if _, err := q.Consume(b.ctx, &luatomic.ConsumeOptions{Drain: true},
		func(context.Context, *luatomic.Delivery) error { return nil }); err != nil {
		return nil, err
	}
	return b.memory(n)
}

func heldLocks(open func(*bench) func(ctx context.Context, name string) error) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		const n = 1000
		hold := open(b)
		for i := range n {
			if err := hold(b.ctx, b.space+"-"+string(rune('a'+i%26))+time.Duration(i).String()); err != nil {
				return nil, err
			}
		}
		return b.memory(n)
	}
}

func oursHold(b *bench) func(ctx context.Context, name string) error {
	l := luatomic.NewLocker(b.client(1), &luatomic.LockerOptions{TTL: time.Minute})
	return func(ctx context.Context, name string) error {
		_, err := l.Try(ctx, name)
		return err
	}
}

func redislockHold(b *bench) func(ctx context.Context, name string) error {
	l := redislock.New(b.client(1))
	return func(ctx context.Context, name string) error {
		_, err := l.Obtain(ctx, name, time.Minute, nil)
		return err
	}
}

// generatedRow compares a generated call with the same script sent by hand.
func generatedRow() row {
	return row{"generated", "a script that returns integers: generated function, EVALSHA, Script.Run",
		"p50_us", []entrant{
			{name: "generated", kind: ours, open: func(b *bench) (work, error) {
				c := b.client(1)
				p := lockscript.InfoParams{Lock: b.space + "{x}", Queue: b.space + "{x}q"}
				return b.alone(1, func(ctx context.Context) error {
					_, err := lockscript.Info(ctx, c, p)
					return err
				})
			}},
			{name: "EVALSHA", kind: raw, open: func(b *bench) (work, error) {
				c := b.client(1)
				sha, err := c.ScriptLoad(b.ctx, *lockscript.InfoScript.Source).Result()
				if err != nil {
					return nil, err
				}
				keys := []string{b.space + "{x}", b.space + "{x}q"}
				return b.alone(1, func(ctx context.Context) error { return c.EvalSha(ctx, sha, keys, 0).Err() })
			}},
			{name: "Script.Run", kind: peer, note: "go-redis", open: func(b *bench) (work, error) {
				c, s := b.client(1), redis.NewScript(*lockscript.InfoScript.Source)
				keys := []string{b.space + "{x}", b.space + "{x}q"}
				return b.alone(1, func(ctx context.Context) error { return s.Run(ctx, c, keys, 0).Err() })
			}},
		}}
}
