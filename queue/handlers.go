package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// How much work a consumer takes before it has a free handler for it. Where the queue
// runs empty it is little, since other consumers could do it. Behind a backlog it is
// more, bit by bit, so that a call serves more jobs; but not where handlers are slow
// at times, since what waits here waits for the end of a lease if the process dies.
// Jobs that no handler comes to for long go back.
const (
	leastAhead = 2 * time.Millisecond
	mostAhead  = 20 * time.Millisecond
	aheadStep  = 2 * time.Millisecond
	quickPace  = mostAhead / 4
	leaseShare = 20
	stuckAfter = 10 * mostAhead
)

// backlog sets how much is taken ahead after a take that got all it asked for, or not.
func (c *consumer) backlog(full bool) {
	ahead := int64(leastAhead)
	if full && c.pace.Load() < int64(quickPace) {
		ahead = min(max(c.ahead.Load(), ahead)+int64(aheadStep), int64(mostAhead))
	}
	c.ahead.Store(min(ahead, int64(c.queue.opts.Lease/leaseShare)))
}

// spare is how many jobs may wait for a handler: what the handlers do in the time of
// ahead.
func (c *consumer) spare() int {
	pace := c.pace.Load()
	if pace == 0 {
		return 0
	}
	return int(min(c.ahead.Load()*int64(c.opts.Concurrency)/pace, MaxTake))
}

// batch is how many jobs are worth a call.
func (c *consumer) batch() int { return max(c.spare()/2, 1) }

// room waits until jobs may be taken and says how many; 0 when ctx ends. Where jobs
// are taken ahead it waits for half of that, so that calls stay few.
func (c *consumer) room(ctx context.Context) int {
	stuck := time.NewTimer(stuckAfter)
	defer stuck.Stop()
	for ctx.Err() == nil {
		if n := c.opts.Concurrency + c.spare() - int(c.inHand.Load()); n >= c.batch() {
			return min(n, MaxTake)
		}
		select {
		case <-ctx.Done():
		case <-c.freed:
			stuck.Reset(stuckAfter)
		case <-stuck.C:
			c.handBack()
		}
	}
	return 0
}

// rest sleeps until there may be work. What was taken ahead does not stay meanwhile
// behind handlers that have become slow.
func (c *consumer) rest(ctx context.Context, wait time.Duration) {
	end := time.Now().Add(wait)
	for len(c.jobs) > 0 && time.Now().Before(end) {
		left := stuckAfter - (time.Since(c.began) - time.Duration(c.moved.Load()))
		if left <= 0 {
			c.handBack()
			break
		}
		if !c.quiet(ctx, min(time.Until(end), left)) {
			return
		}
	}
	c.wake.Wait(ctx, time.Until(end))
}

// quiet waits for d, and reports false when a word is heard or ctx ends before.
func (c *consumer) quiet(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-c.wake.Heard():
	}
	return false
}

// handBack gives back what waits behind handlers that take much longer than those
// before them, so that others can have it, and takes none ahead until some are done.
func (c *consumer) handBack() {
	if len(c.jobs) == 0 {
		return
	}
	c.pace.Store(max(c.pace.Load(), int64(mostAhead)*int64(c.opts.Concurrency)+1))
	for {
		select {
		case d := <-c.jobs:
			c.mu.Lock()
			c.held[d].end(nil)
			c.mu.Unlock()
			c.finished <- finished{delivery: d, err: errStopped, stopped: true}
			c.inHand.Add(-1)
		default:
			return
		}
	}
}

// accept hands deliveries to the handlers.
func (c *consumer) accept(work context.Context, ds []*Delivery) {
	c.inHand.Add(int64(len(ds)))
	c.move()
	c.mu.Lock()
	for _, d := range ds {
		c.held[d] = newLife(work)
	}
	c.mu.Unlock()
	for _, d := range ds {
		c.jobs <- d // has room: capacity is bounded by its size
	}
}

// move notes that a job has gone a step on.
func (c *consumer) move() { c.moved.Store(int64(time.Since(c.began))) }

// life is the context of one delivery.
type life struct {
	context.Context
	end context.CancelCauseFunc
}

func newLife(work context.Context) life {
	ctx, cancel := context.WithCancelCause(work)
	return life{ctx, cancel}
}

// start runs work, and once more when a handler has ended its goroutine.
func (c *consumer) start(handlers *sync.WaitGroup, ctx, work context.Context) {
	handlers.Go(func() {
		over := false
		defer func() {
			if !over {
				c.start(handlers, ctx, work)
			}
		}()
		for d := range c.jobs {
			c.work(ctx, work, d)
		}
		over = true
	})
}

// errExited is the error of a handler that did not return.
var errExited = errors.New("luatomic: the handler ended its goroutine")

// work handles a job. Those that are left when ctx ends go back untouched.
func (c *consumer) work(ctx, work context.Context, d *Delivery) {
	c.mu.Lock()
	l := c.held[d]
	c.mu.Unlock()
	f := finished{delivery: d, err: errExited}
	defer func() {
		f.stopped = f.err != nil && (f.err == errStopped || context.Cause(work) == errStopped)
		l.end(nil)
		c.finished <- f
		c.inHand.Add(-1)
		c.move()
		select {
		case c.freed <- struct{}{}:
		default:
		}
	}()
	if ctx.Err() != nil {
		f.err = errStopped
		return
	}
	start := time.Now()
	f.err = c.handle(l, d)
	c.measure(time.Since(start))
}

// measure keeps what a handler takes: a moving mean that goes up at once and down
// slowly, so that handlers count as quick which all are.
func (c *consumer) measure(took time.Duration) {
	old, weight := c.pace.Load(), int64(16)
	switch {
	case old == 0:
		old = int64(took)
	case int64(took) > old:
		weight = 2
	}
	c.pace.Store(max(old+(int64(took)-old)/weight, 1)) // handlers may race here; any of their means will do
}

func (c *consumer) handle(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("luatomic: handler of job %q panicked: %v", d.ID, p)
		}
	}()
	return c.h(ctx, d)
}

// await waits for the handlers: for the grace, then, cancelled, until they return.
func (c *consumer) await(handlers *sync.WaitGroup, stop context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		handlers.Wait()
	}()
	grace := time.NewTimer(c.opts.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
		stop(errStopped)
	}
	<-done
}
