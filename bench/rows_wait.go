package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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
			what := fmt.Sprintf("from a release to the next holder, waiters: %d", waiters)
			name := fmt.Sprintf("handover/idle/waiters=%d", waiters)
			if busy > 0 {
				what += ", a holder that works 3 ms, so that the server's caches are cold"
				name = fmt.Sprintf("handover/working/waiters=%d", waiters)
			}
			all = append(all, row{name, what, "p50_us", []entrant{
				{name: "luatomic", kind: ours, note: "fair, with a fence", open: handOver(waiters, busy, oursWaiting)},
				{name: "BLPOP", kind: raw, note: "a token that dies with its holder",
					open: handOver(waiters, busy, rawWaiting)},
				{name: "rueidislock", kind: peer, note: "no order", open: handOver(waiters, busy, rueidisWaiting)},
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
			err := c.BLPop(ctx, 3*time.Second, b.space).Err() // a waiter sees the end of ctx then
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

func handOver(waiters int, busy time.Duration, open func(*bench, int) (acquire, error)) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		next, err := open(b, waiters)
		if err != nil {
			return nil, err
		}
		h := &handing{busy: busy, next: next, start: time.Now(), gate: make(chan struct{})}
		ctx, stop := context.WithCancel(b.ctx)
		var wg sync.WaitGroup
		b.close(func() {
			stop()
			wg.Wait()
		})
		for range waiters + 1 { // one of them holds the lock
			wg.Go(func() { h.run(ctx) })
		}
		// A thousand connections take their time. The first slot is when the lock goes from hand to hand.
		for ready := time.Now().Add(20 * time.Second); h.count.Load() < 10 && time.Now().Before(ready); {
			h.during(10 * time.Millisecond)
		}
		return func(span time.Duration) (metrics, error) {
			before, err := b.cost()
			if err != nil {
				return nil, err
			}
			took := h.during(span)
			if len(took) == 0 {
				return nil, errors.New("no hand-over happened")
			}
			m := latencies(took)
			return m, b.charge(m, before, float64(len(took)))
		}, nil
	}
}

// handing is one lock that goes from hand to hand in the slots of its entrant. Between them its holder keeps it.
type handing struct {
	busy     time.Duration
	next     acquire
	start    time.Time
	released atomic.Int64 // ns since start
	count    atomic.Int64 // hand-overs so far

	mu     sync.Mutex
	gate   chan struct{} // closed in a slot
	within bool          // a slot
	took   []time.Duration
}

// during is a slot of that length. It returns how long each hand-over took.
func (h *handing) during(span time.Duration) []time.Duration {
	h.mu.Lock()
	h.within, h.took = true, nil
	close(h.gate)
	h.mu.Unlock()
	time.Sleep(span)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.within, h.gate = false, make(chan struct{})
	return h.took
}

// acquired counts a hand-over, and returns what is closed when the lock may go on.
func (h *handing) acquired(now time.Duration) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.released.Load(); at > 0 {
		h.count.Add(1)
		if h.within {
			h.took = append(h.took, now-time.Duration(at))
		}
	}
	return h.gate
}

func (h *handing) run(ctx context.Context) {
	for ctx.Err() == nil {
		release, err := h.next(ctx)
		if err != nil {
			return
		}
		gate := h.acquired(time.Since(h.start))
		if h.busy > 0 {
			time.Sleep(h.busy)
		}
		select {
		case <-gate:
		case <-ctx.Done():
		}
		h.released.Store(int64(time.Since(h.start)))
		if release() != nil {
			return
		}
	}
}

func waitRows() []row {
	return []row{
		{"takeover/dead=0", "from the end of a killed holder's lease of 1 s to the next holder", "p50_us", []entrant{
			{name: "luatomic", kind: ours, open: whole(takeOver("luatomic", 0, oursWaiting))},
			{name: "redislock", kind: peer, note: "polls every 10 ms here",
				open: whole(takeOver("redislock", 0, redislockWaiting(10*time.Millisecond)))},
		}},
		{"takeover/dead=8", "the same, with 8 waiters of the killed process ahead in the queue", "p50_us", []entrant{
			{name: "luatomic", kind: ours, open: whole(takeOver("luatomic", 8, oursWaiting))},
			{name: "redislock", kind: peer, note: "has no queue; polls every 10 ms here",
				open: whole(takeOver("redislock", 0, redislockWaiting(10*time.Millisecond)))},
		}},
		{"idle/lock", "commands a second of 100 waiters for a held lock", "calls_s", []entrant{
			{name: "luatomic", kind: ours, open: whole(idleLock(oursWaiting))},
			{name: "rueidislock", kind: peer, open: whole(idleLock(rueidisWaiting))},
			{name: "redislock", kind: peer, note: "polls every 100 ms here",
				open: whole(idleLock(redislockWaiting(100 * time.Millisecond)))},
		}},
		{"idle/queue", "commands a second of 10 consumers of an empty queue", "calls_s", []entrant{
			{name: "luatomic", kind: ours, open: whole(idleOurs)},
			{name: "asynq", kind: peer, open: whole(idleAsynq)},
		}},
	}
}

// takeOver kills a process that holds the lock, with dead waiters of its own in the queue, and measures how long after
// the end of its lease of 1 s a waiter of this process has the lock.
func takeOver(peerName string, dead int, open func(*bench, int) (acquire, error)) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		next, err := open(b, 1)
		if err != nil {
			return nil, err
		}
		var took []time.Duration
		for range max(b.size(50)/10, 1) {
			late, err := b.killHolder(peerName, dead, next)
			if err != nil {
				return nil, err
			}
			took = append(took, late)
		}
		return latencies(took), nil
	}
}

func (b *bench) killHolder(peerName string, dead int, next acquire) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	holder := exec.CommandContext(b.ctx, self, "hold", peerName, b.url, b.space, strconv.Itoa(dead))
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := holder.Start(); err != nil {
		return 0, err
	}
	var since int64
	_, scanned := fmt.Fscan(out, &since) // it holds the lock since then, and its waiters are queued
	killed := holder.Process.Kill()
	_ = holder.Wait() // killed
	if err := errors.Join(scanned, killed); err != nil {
		return 0, fmt.Errorf("the process that holds the lock: %w", err)
	}
	release, err := next(b.ctx)
	if err != nil {
		return 0, err
	}
	return time.Since(time.UnixMicro(since).Add(time.Second)), release()
}

// hold is the process that killHolder kills: it acquires the lock for 1 s, queues its own waiters, prints the time of
// the acquire in Unix us, and waits.
func hold(ctx context.Context, peerName, url, name string, waiters int) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	c := redis.NewClient(options)
	since := time.Now()
	if peerName == "redislock" {
		if _, err := redislock.New(c).Obtain(ctx, name, time.Second, nil); err != nil {
			return err
		}
	} else if err := holdOurs(ctx, c, name, waiters); err != nil {
		return err
	}
	fmt.Println(since.UnixMicro())
	<-ctx.Done()
	return nil
}

func holdOurs(ctx context.Context, c *redis.Client, name string, waiters int) error {
	l := luatomic.NewLocker(c, &luatomic.LockerOptions{TTL: time.Second})
	if _, err := l.Acquire(ctx, name); err != nil {
		return err
	}
	for range waiters {
		go func() { _, _ = l.Acquire(ctx, name) }()
	}
	for {
		info, err := l.Info(ctx, name)
		if err != nil || info.Waiting >= waiters {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func redislockWaiting(poll time.Duration) func(*bench, int) (acquire, error) {
	return func(b *bench, _ int) (acquire, error) {
		c := redislock.New(b.client(100))
		wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(poll)}
		return func(ctx context.Context) (func() error, error) {
			l, err := c.Obtain(ctx, b.space, time.Minute, wait)
			if err != nil {
				return nil, err
			}
			return func() error { return l.Release(b.ctx) }, nil
		}, nil
	}
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
