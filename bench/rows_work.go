package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/queue"
)

const workers = 10

func workRows() []row {
	const due = 20_000
	moves := row{"move", fmt.Sprintf("%d due jobs moved, one caller (a tenth in a quick run)", due), "per_s", []entrant{
		{name: "luatomic", kind: ours, open: moving(due, promoteOurs)},
		{name: "script", kind: raw, note: "three data calls, the caller's clock", open: moving(due, promoteRaw)},
		{name: "asynq", kind: peer, open: moveAsynq(due)},
	}}
	late := row{"late", "start of a delayed job after it is due, idle queue", "p50_us", []entrant{
		{name: "luatomic", kind: ours, open: whole(lateOurs)},
		{name: "asynq", kind: peer, note: "5 jobs a run over the 5 s of its forwarder", open: whole(lateAsynq)},
	}}
	all := []row{moves, late}
	for _, inFlight := range []int{0, 100_000} {
		entrants := []entrant{{name: "luatomic", kind: ours, open: workOurs(8000, inFlight, 0)}}
		if inFlight == 0 {
			entrants = append(entrants,
				entrant{name: "LPOP", kind: raw, note: "a job popped is lost when its worker dies",
					open: workRaw(4000)},
				entrant{name: "asynq", kind: peer, open: workAsynq(1000, 0)})
		}
		all = append(all, row{fmt.Sprintf("work/inflight=%d", inFlight), "take + ack, 10 no-op handlers",
			"per_s", entrants})
	}
	return append(all, row{"work/handler=2ms", "take + ack, 10 handlers of 2 ms", "server_us", []entrant{
		{name: "luatomic", kind: ours, open: workOurs(1000, 0, 2*time.Millisecond)},
		{name: "asynq", kind: peer, open: workAsynq(1000, 2*time.Millisecond)},
	}})
}

// mover moves a batch of due jobs, and returns their number.
type mover func() (int, error)

func promoteOurs(b *bench, _ *redis.Client, q *luatomic.Queue) mover {
	return func() (int, error) {
		p, err := q.Promote(b.ctx)
		return p.Moved, err
	}
}

func promoteRaw(b *bench, c *redis.Client, _ *luatomic.Queue) mover {
	script := redis.NewScript(`
local ids = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, 1000)
if #ids > 0 then
  redis.call('RPUSH', KEYS[2], unpack(ids))
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #ids - 1)
end
return #ids`)
	keys := []string{b.key("s"), b.key("r")}
	return func() (int, error) { return script.Run(b.ctx, c, keys, time.Now().UnixMilli()).Int() }
}

// makeDue halves the due times of a schedule, which keeps their order and puts them far into the past.
func makeDue(b *bench, c *redis.Client, schedule string) error {
	return c.WithTimeout(time.Minute).ZUnionStore(b.ctx, schedule,
		&redis.ZStore{Keys: []string{schedule}, Weights: []float64{0.5}}).Err()
}

// opener makes a mover of the due jobs of a queue.
type opener func(*bench, *redis.Client, *luatomic.Queue) mover

// moving makes so many jobs due before each slot, which ends when all of them are moved.
func moving(due int, open opener) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c := b.client(1)
		q, err := b.queue(c)
		move := open(b, c, q)
		return func(time.Duration) (metrics, error) {
			err := errors.Join(c.Unlink(b.ctx, b.key("r"), b.key("b")).Err(), fill(b.ctx, q, b.size(due), time.Hour),
				makeDue(b, c, b.key("s")))
			if err != nil {
				return nil, err
			}
			return b.drain(b.size(due), func() error {
				for moved := 0; moved < b.size(due); {
					n, err := move()
					if err != nil || n == 0 {
						return errors.Join(err, fmt.Errorf("%d of %d jobs moved", moved, b.size(due)))
					}
					moved += n
				}
				return nil
			})
		}, err
	}
}

// drain is a slot that ends when run has dealt with n jobs.
func (b *bench) drain(n int, run func() error) (metrics, error) {
	before, err := b.cost()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := run(); err != nil {
		return nil, err
	}
	m := metrics{"per_s": float64(n) / time.Since(start).Seconds()}
	return m, b.charge(m, before, float64(n))
}

// moveAsynq runs a server whose processor is stopped, by its own Stop, so that its forwarder works alone. The clock
// runs from the first task seen to move to the last; it is read every 2 ms.
func moveAsynq(due int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c, n := b.client(16), b.size(due)/4 // a call for each takes long
		s, err := b.asynqServer(c, asynq.Config{DelayedTaskCheckInterval: time.Second}, nil)
		if err != nil {
			return nil, err
		}
		s.Stop()
		schedule := "asynq:{" + b.space + "}:scheduled"
		return func(time.Duration) (metrics, error) {
			err := fillAsynq(b, c, n, asynq.ProcessIn(time.Hour))
			if err == nil {
				err = makeDue(b, c, schedule)
			}
			if err != nil {
				return nil, err
			}
			left := func() int { return int(c.ZCard(b.ctx, schedule).Val()) }
			for left() == n && b.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			first := left()
			return b.drain(max(first, 1), func() error {
				for left() > 0 && b.ctx.Err() == nil {
					time.Sleep(2 * time.Millisecond)
				}
				return b.ctx.Err()
			})
		}, nil
	}
}

func fillAsynq(b *bench, c *redis.Client, n int, opts ...asynq.Option) error {
	client := asynq.NewClientFromRedisClient(c)
	const feeders = 16
	errs := make([]error, feeders)
	var wg sync.WaitGroup
	for f := range feeders {
		wg.Go(func() { errs[f] = enqueue(b.ctx, client, b.space, (n+feeders-1-f)/feeders, opts...) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// asynqServer runs a server of this entrant's queue until the entrant is done.
func (b *bench) asynqServer(c *redis.Client, cfg asynq.Config, h asynq.HandlerFunc) (*asynq.Server, error) {
	s, err := b.startAsynq(c, cfg, h)
	if err == nil {
		b.close(s.Shutdown)
	}
	return s, err
}

func (b *bench) startAsynq(c *redis.Client, cfg asynq.Config, h asynq.HandlerFunc) (*asynq.Server, error) {
	if h == nil {
		h = func(context.Context, *asynq.Task) error { return nil }
	}
	cfg.Queues, cfg.LogLevel, cfg.Concurrency = map[string]int{b.space: 1}, asynq.FatalLevel, workers
	cfg.TaskCheckInterval = 10 * time.Millisecond
	s := asynq.NewServerFromRedisClient(c, cfg)
	return s, s.Start(h)
}

// workOurs fills the queue before each slot, which ends when the last job is acked and the consumer has returned.
func workOurs(n, inFlight int, busy time.Duration) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		n, c := b.size(n), b.client(workers)
		q, err := luatomic.NewQueue(c, b.space, &luatomic.QueueOptions{Lease: time.Hour})
		if err == nil {
			err = occupy(b.ctx, q, b.size(inFlight))
		}
		return func(time.Duration) (metrics, error) {
			if err := fill(b.ctx, q, n, 0); err != nil {
				return nil, err
			}
			return b.drain(n, func() error { return consume(b.ctx, q, n, busy) })
		}, err
	}
}

// consume runs a consumer until n jobs are acked.
func consume(ctx context.Context, q *luatomic.Queue, n int, busy time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	out, err := q.Consume(ctx, &luatomic.ConsumeOptions{Concurrency: workers},
		func(context.Context, *luatomic.Delivery) error {
			time.Sleep(busy)
			if done.Add(1) == int64(n) {
				cancel()
			}
			return nil
		})
	if out.Acked != n {
		return fmt.Errorf("%d of %d jobs acked: %w", out.Acked, n, err)
	}
	return nil
}

// occupy leaves n jobs with a worker that never acks.
func occupy(ctx context.Context, q *luatomic.Queue, n int) error {
	for ; n > 0; n -= queue.MaxTake {
		if err := fill(ctx, q, queue.MaxTake, 0); err != nil {
			return err
		}
		if _, err := q.Take(ctx, queue.MaxTake); err != nil {
			return err
		}
	}
	return nil
}

// workAsynq fills the queue before each slot, which ends when the last handler has run: its last acks are not counted
// against it.
func workAsynq(n int, busy time.Duration) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		n, c := b.size(n), b.client(16)
		return func(time.Duration) (metrics, error) {
			if err := fillAsynq(b, c, n); err != nil {
				return nil, err
			}
			var stop func()
			m, err := b.drain(n, func() (err error) {
				stop, err = b.runAsynq(c, n, busy)
				return err
			})
			if stop != nil {
				stop()
			}
			return m, err
		}, nil
	}
}

// runAsynq runs a server until n tasks have run. stop is not nil where it has started.
func (b *bench) runAsynq(c *redis.Client, n int, busy time.Duration) (stop func(), err error) {
	var done atomic.Int64
	all := make(chan struct{})
	s, err := b.startAsynq(c, asynq.Config{}, func(context.Context, *asynq.Task) error {
		time.Sleep(busy)
		if done.Add(1) == int64(n) {
			close(all)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-all:
		return s.Shutdown, nil
	case <-time.After(time.Minute):
		return s.Shutdown, fmt.Errorf("%d of %d tasks ran within a minute", done.Load(), n)
	}
}

// workRaw pops one job at a time in each goroutine.
func workRaw(n int) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		n, c := max(b.size(n), queue.MaxBatch), b.client(workers)
		return func(time.Duration) (metrics, error) {
			for range n / queue.MaxBatch {
				entries := make([]any, queue.MaxBatch)
				for i := range entries {
					entries[i] = make([]byte, payload)
				}
				if err := c.RPush(b.ctx, b.space, entries...).Err(); err != nil {
					return nil, err
				}
			}
			return b.drain(n, func() error { return b.pop(c) })
		}, nil
	}
}

// pop takes from the list until it is empty.
func (b *bench) pop(c *redis.Client) error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil {
				errs[w] = c.LPop(b.ctx, b.space).Err()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

// stamp is a body that holds the time at which its job is due.
func stamp(at time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano())) }

func since(body []byte) time.Duration {
	return time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(body))))
}

func lateOurs(b *bench) (metrics, error) {
	q, err := b.queue(b.client(2))
	if err != nil {
		return nil, err
	}
	late := make(chan time.Duration, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	var consumer sync.WaitGroup
	defer consumer.Wait()
	defer cancel()
	consumer.Go(func() {
		_, _ = q.Consume(ctx, nil, func(_ context.Context, d *luatomic.Delivery) error {
			late <- since(d.Body)
			return nil
		})
	})
	var all []time.Duration
	for range b.size(300) {
		at := time.Now().Add(20 * time.Millisecond).Truncate(time.Millisecond)
		if _, err := q.Push(b.ctx, luatomic.Job{Body: stamp(at), At: at}); err != nil {
			return nil, err
		}
		all = append(all, <-late)
	}
	return latencies(all), nil
}

func lateAsynq(b *bench) (metrics, error) {
	const samples = 5
	c := b.client(2)
	late := make(chan time.Duration, samples)
	if _, err := b.asynqServer(c, asynq.Config{}, func(_ context.Context, t *asynq.Task) error {
		late <- since(t.Payload())
		return nil
	}); err != nil {
		return nil, err
	}
	client := asynq.NewClientFromRedisClient(c)
	for i := range samples {
		at := time.Now().Add(1100*time.Millisecond + time.Duration(i)*time.Second)
		if _, err := client.EnqueueContext(b.ctx, asynq.NewTask("bench", stamp(at)), asynq.Queue(b.space),
			asynq.ProcessAt(at)); err != nil {
			return nil, err
		}
	}
	var all []time.Duration
	for range samples {
		all = append(all, <-late)
	}
	return latencies(all), nil
}
