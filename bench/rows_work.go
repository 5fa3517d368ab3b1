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
	const due = 200_000
	moves := row{"move", fmt.Sprintf("%d due jobs moved, one caller (a tenth in a quick run)", due), "per_s", []entrant{
		{name: "luatomic", kind: ours, run: moving(due, promoteOurs)},
		{name: "script", kind: raw, note: "three data calls, the caller's clock", run: moving(due, promoteRaw)},
		{name: "asynq", kind: peer, run: moveAsynq(due)},
	}}
	late := row{"late", "start of a delayed job after it is due, idle queue", "p50_us", []entrant{
		{name: "luatomic", kind: ours, run: lateOurs},
		{name: "asynq", kind: peer, note: "5 jobs a run over the 5 s of its forwarder", run: lateAsynq},
	}}
	all := []row{moves, late}
	for _, inFlight := range []int{0, 100_000} {
		entrants := []entrant{{name: "luatomic", kind: ours, run: workOurs(100_000, inFlight, 0)}}
		if inFlight == 0 {
			entrants = append(entrants,
				entrant{name: "LPOP", kind: raw, note: "a job popped is lost when its worker dies",
					run: workRaw(20_000)},
				entrant{name: "asynq", kind: peer, run: workAsynq(10_000, 0)})
		}
		all = append(all, row{fmt.Sprintf("work/inflight=%d", inFlight), "take + ack, 10 no-op handlers",
			"per_s", entrants})
	}
	return append(all, row{"work/handler=2ms", "take + ack, 10 handlers of 2 ms", "server_us", []entrant{
		{name: "luatomic", kind: ours, run: workOurs(5000, 0, 2*time.Millisecond)},
		{name: "asynq", kind: peer, run: workAsynq(5000, 2*time.Millisecond)},
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

func moving(due int, open opener) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		c := b.client(1)
		q, err := b.queue(c)
		if err == nil {
			err = fill(b.ctx, q, b.size(due), time.Hour)
		}
		if err == nil {
			err = makeDue(b, c, b.key("s"))
		}
		if err != nil {
			return nil, err
		}
		before, err := b.cost()
		if err != nil {
			return nil, err
		}
		move, moved, start := open(b, c, q), 0, time.Now()
		for moved < b.size(due) {
			n, err := move()
			if err != nil || n == 0 {
				return nil, errors.Join(err, fmt.Errorf("%d of %d jobs moved", moved, b.size(due)))
			}
			moved += n
		}
		m := metrics{"per_s": float64(moved) / time.Since(start).Seconds()}
		return m, b.charge(m, before, float64(moved))
	}
}

// moveAsynq runs a server whose processor is stopped, by its own Stop, so that its forwarder works alone. The clock
// runs from the first task seen to move to the last; it is read every 2 ms.
func moveAsynq(due int) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		c, n := b.client(16), b.size(due)/4 // a call for each takes long
		if err := fillAsynq(b, c, n, asynq.ProcessIn(time.Hour)); err != nil {
			return nil, err
		}
		schedule := "asynq:{" + b.space + "}:scheduled"
		if err := makeDue(b, c, schedule); err != nil {
			return nil, err
		}
		s, err := b.asynqServer(c, asynq.Config{DelayedTaskCheckInterval: time.Second}, nil)
		if err != nil {
			return nil, err
		}
		s.Stop()
		left := func() int { return int(c.ZCard(b.ctx, schedule).Val()) }
		for left() == n && b.ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		first, start := left(), time.Now()
		before, err := b.cost()
		if err != nil {
			return nil, err
		}
		for left() > 0 && b.ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		m := metrics{"per_s": float64(first) / time.Since(start).Seconds()}
		return m, b.charge(m, before, float64(max(first, 1)))
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
	if h == nil {
		h = func(context.Context, *asynq.Task) error { return nil }
	}
	cfg.Queues, cfg.LogLevel, cfg.Concurrency = map[string]int{b.space: 1}, asynq.FatalLevel, workers
	cfg.TaskCheckInterval = 10 * time.Millisecond
	s := asynq.NewServerFromRedisClient(c, cfg)
	if err := s.Start(h); err != nil {
		return nil, err
	}
	b.close(s.Shutdown)
	return s, nil
}

// workOurs ends when the last job is acked and the consumer has returned.
func workOurs(n, inFlight int, busy time.Duration) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		n, c := b.size(n), b.client(workers)
		q, err := luatomic.NewQueue(c, b.space, &luatomic.QueueOptions{Lease: time.Hour})
		if err == nil {
			err = occupy(b.ctx, q, b.size(inFlight))
		}
		if err == nil {
			err = fill(b.ctx, q, n, 0)
		}
		if err != nil {
			return nil, err
		}
		before, err := b.cost()
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		var done atomic.Int64
		start := time.Now()
		out, err := q.Consume(ctx, &luatomic.ConsumeOptions{Concurrency: workers},
			func(context.Context, *luatomic.Delivery) error {
				time.Sleep(busy)
				if done.Add(1) == int64(n) {
					cancel()
				}
				return nil
			})
		if out.Acked != n {
			return nil, fmt.Errorf("%d of %d jobs acked: %w", out.Acked, n, err)
		}
		m := metrics{"per_s": float64(n) / time.Since(start).Seconds()}
		return m, b.charge(m, before, float64(n))
	}
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

// workAsynq ends when the last handler has run: its last acks are not counted against it.
func workAsynq(n int, busy time.Duration) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		n, c := b.size(n), b.client(16)
		if err := fillAsynq(b, c, n); err != nil {
			return nil, err
		}
		before, err := b.cost()
		if err != nil {
			return nil, err
		}
		var done atomic.Int64
		all := make(chan struct{})
		start := time.Now()
		if _, err := b.asynqServer(c, asynq.Config{}, func(context.Context, *asynq.Task) error {
			time.Sleep(busy)
			if done.Add(1) == int64(n) {
				close(all)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		select {
		case <-all:
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("%d of %d tasks ran within a minute", done.Load(), n)
		}
		m := metrics{"per_s": float64(n) / time.Since(start).Seconds()}
		return m, b.charge(m, before, float64(n))
	}
}

// workRaw pops one job at a time in each goroutine.
func workRaw(n int) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		n, c := b.size(n), b.client(workers)
		for range n / queue.MaxBatch {
			entries := make([]any, queue.MaxBatch)
			for i := range entries {
				entries[i] = make([]byte, payload)
			}
			if err := c.RPush(b.ctx, b.space, entries...).Err(); err != nil {
				return nil, err
			}
		}
		before, err := b.cost()
		if err != nil {
			return nil, err
		}
		var wg sync.WaitGroup
		errs := make([]error, workers)
		start := time.Now()
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
				return nil, err
			}
		}
		m := metrics{"per_s": float64(n) / time.Since(start).Seconds()}
		return m, b.charge(m, before, float64(n))
	}
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
