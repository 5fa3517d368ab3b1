package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// acquire waits for one lock, and returns what releases it.
type acquire func(ctx context.Context) (release func() error, err error)

func handOverRows() []row {
	var all []row
	for _, busy := range []time.Duration{0, 3 * time.Millisecond} {
		for _, waiters := range []int{1, 10, 100, 1000} {
			what := fmt.Sprintf("from a release to the next holder, %d waiters", waiters)
			name := fmt.Sprintf("handover/idle/waiters=%d", waiters)
			if busy > 0 {
				what += ", a holder that works 3 ms, so that the server's caches are cold"
				name = fmt.Sprintf("handover/working/waiters=%d", waiters)
			}
			all = append(all, row{name, what, "p50_us", []entrant{
				{name: "luatomic", kind: ours, note: "fair, with a fence", run: handOver(waiters, busy, oursWaiting)},
				{name: "BLPOP", kind: raw, note: "a token that dies with its holder", run: handOver(waiters, busy, rawWaiting)},
				{name: "rueidislock", kind: peer, note: "no order", run: handOver(waiters, busy, rueidisWaiting)},
			}})
		}
	}
	return all
}

func oursWaiting(b *bench, waiters int) (acquire, error) {
	l := luatomic.NewLocker(b.client(min(waiters+1, 100)), &luatomic.LockerOptions{TTL: time.Minute})
	b.close(func() { _ = l.Close() })
	return func(ctx context.Context) (func() error, error) {
		lease, err := l.Acquire(ctx, b.space)
		if err != nil {
			return nil, err
		}
		return func() error { return lease.Release(b.ctx) }, nil
	}, nil
}

// rawWaiting hands a token on through a list. Each waiter blocks a connection.
func rawWaiting(b *bench, waiters int) (acquire, error) {
	c := b.client(waiters + 2)
	if err := c.RPush(b.ctx, b.space, "token").Err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (func() error, error) {
		for {
			err := c.BLPop(ctx, time.Second, b.space).Err()
			if errors.Is(err, redis.Nil) && ctx.Err() == nil {
				continue
			}
			return func() error { return c.RPush(b.ctx, b.space, "token").Err() }, errors.Join(err, ctx.Err())
		}
	}, nil
}

func rueidisWaiting(b *bench, _ int) (acquire, error) {
	l, err := b.rueidisLocker()
	return func(ctx context.Context) (func() error, error) {
		_, release, err := l.WithContext(ctx, b.space)
		return func() error { release(); return nil }, err
	}, err
}

func handOver(waiters int, busy time.Duration, open func(*bench, int) (acquire, error)) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		next, err := open(b, waiters)
		if err != nil {
			return nil, err
		}
		h := &handing{busy: busy, next: next, start: time.Now()}
		ctx, stop := context.WithCancel(b.ctx)
		defer stop()
		var wg sync.WaitGroup
		for range waiters + 1 { // one of them holds the lock
			wg.Go(func() { h.run(ctx) })
		}
		// A thousand connections take their time. The clock starts when the lock goes from hand to hand.
		for ready := time.Now().Add(20 * time.Second); h.count.Load() < 10 && time.Now().Before(ready); {
			time.Sleep(10 * time.Millisecond)
		}
		before, err := b.cost()
		h.record(true)
		time.Sleep(2 * b.span())
		took := h.record(false)
		m := metrics{}
		if len(took) > 0 {
			m = latencies(took)
			err = errors.Join(err, b.charge(m, before, float64(len(took))))
		}
		stop()
		wg.Wait()
		if len(took) == 0 {
			return nil, errors.Join(err, errors.New("no hand-over happened"))
		}
		return m, err
	}
}

// handing is one lock that goes from hand to hand.
type handing struct {
	busy     time.Duration
	next     acquire
	start    time.Time
	released atomic.Int64 // ns since start
	count    atomic.Int64 // hand-overs so far

	mu        sync.Mutex
	recording bool
	took      []time.Duration
}

func (h *handing) record(on bool) []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	took := h.took
	h.recording, h.took = on, nil
	return took
}

func (h *handing) run(ctx context.Context) {
	for ctx.Err() == nil {
		release, err := h.next(ctx)
		if err != nil {
			return
		}
		now := time.Since(h.start)
		if at := h.released.Load(); at > 0 {
			h.count.Add(1)
			h.mu.Lock()
			if h.recording {
				h.took = append(h.took, now-time.Duration(at))
			}
			h.mu.Unlock()
		}
		if h.busy > 0 {
			time.Sleep(h.busy)
		}
		h.released.Store(int64(time.Since(h.start)))
		if release() != nil {
			return
		}
	}
}

func waitRows() []row {
	return []row{
		{"takeover", "from the end of a dead holder's lease of 1 s to the next holder", "p50_us", []entrant{
			{name: "luatomic", kind: ours, run: takeOverOurs},
			{name: "redislock", kind: peer, note: "polls every 10 ms here", run: takeOverRedislock},
		}},
		{"idle/lock", "commands a second of 100 waiters for a held lock", "calls_s", []entrant{
			{name: "luatomic", kind: ours, run: idleLock(oursWaiting)},
			{name: "rueidislock", kind: peer, run: idleLock(rueidisWaiting)},
			{name: "redislock", kind: peer, note: "polls every 100 ms here", run: idleLock(redislockWaiting)},
		}},
		{"idle/queue", "commands a second of 10 consumers of an empty queue", "calls_s", []entrant{
			{name: "luatomic", kind: ours, run: idleOurs},
			{name: "asynq", kind: peer, run: idleAsynq},
		}},
	}
}

func takeOverOurs(b *bench) (metrics, error) {
	dead := luatomic.NewLocker(b.client(1), &luatomic.LockerOptions{TTL: time.Second})
	next, err := oursWaiting(b, 1)
	if err != nil {
		return nil, err
	}
	return b.takeOver(func(ctx context.Context) error {
		_, err := dead.Acquire(ctx, b.space)
		return err
	}, next)
}

func takeOverRedislock(b *bench) (metrics, error) {
	c := redislock.New(b.client(2))
	wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond)}
	return b.takeOver(func(ctx context.Context) error {
		_, err := c.Obtain(ctx, b.space, time.Second, wait)
		return err
	}, func(ctx context.Context) (func() error, error) {
		l, err := c.Obtain(ctx, b.space, time.Minute, wait)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Release(b.ctx) }, nil
	})
}

// takeOver measures five times how long after the lease of a holder that does nothing more the waiter has the lock.
func (b *bench) takeOver(die func(context.Context) error, next acquire) (metrics, error) {
	var took []time.Duration
	for range b.size(50) / 10 {
		if err := die(b.ctx); err != nil {
			return nil, err
		}
		ends := time.Now().Add(time.Second)
		release, err := next(b.ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(ends))
		if err := release(); err != nil {
			return nil, err
		}
	}
	if len(took) == 0 {
		return nil, errors.New("no take-over was measured")
	}
	return latencies(took), nil
}

func redislockWaiting(b *bench, _ int) (acquire, error) {
	c := redislock.New(b.client(100))
	wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return func(ctx context.Context) (func() error, error) {
		l, err := c.Obtain(ctx, b.space, time.Minute, wait)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Release(b.ctx) }, nil
	}, nil
}

func idleLock(open func(*bench, int) (acquire, error)) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		next, err := open(b, 100)
		if err != nil {
			return nil, err
		}
		release, err := next(b.ctx)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(b.ctx)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _, _ = next(ctx) })
		}
		m, err := b.idle()
		stop()
		wg.Wait()
		return m, errors.Join(err, release())
	}
}

// idle counts the commands of a while in which nothing happens.
func (b *bench) idle() (metrics, error) {
	time.Sleep(b.span())
	before, err := b.cost()
	if err != nil {
		return nil, err
	}
	while := 5 * b.span()
	time.Sleep(while)
	after, err := b.cost()
	return metrics{"calls_s": (after.commands - before.commands) / while.Seconds()}, err
}

func idleOurs(b *bench) (metrics, error) {
	q, err := b.queue(b.client(workers))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			_, _ = q.Consume(ctx, nil, func(context.Context, *luatomic.Delivery) error { return nil })
		})
	}
	m, err := b.idle()
	cancel()
	wg.Wait()
	return m, err
}

func idleAsynq(b *bench) (metrics, error) {
	c := b.client(workers)
	if err := fillAsynq(b, c, 1); err != nil {
		return nil, err
	}
	for range workers {
		if _, err := b.asynqServer(c, asynq.Config{}, nil); err != nil {
			return nil, err
		}
	}
	return b.idle()
}
