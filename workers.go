package luatomic

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// ahead is how much work a consumer takes before it has a free handler for it.
const ahead = 2 * time.Millisecond

// capacity is how many jobs may be in hand: one for each handler, and what the
// handlers do in the time of ahead.
func (c *consumer) capacity() int {
	n := c.opts.Concurrency
	if pace := c.pace.Load(); pace > 0 {
		n += int(min(int64(ahead)*int64(n)/pace, MaxTake))
	}
	return n
}

// room waits until jobs may be taken and says how many; 0 when ctx ends. Where jobs
// are taken ahead it waits for half of that, so that calls stay few.
func (c *consumer) room(ctx context.Context) int {
	for ctx.Err() == nil {
		limit := c.capacity()
		enough := max((limit-c.opts.Concurrency)/2, 1)
		if n := limit - int(c.inHand.Load()); n >= enough {
			return min(n, MaxTake)
		}
		select {
		case <-ctx.Done():
		case <-c.freed:
		}
	}
	return 0
}

// accept hands deliveries to the handlers.
func (c *consumer) accept(work context.Context, ds []*Delivery) {
	c.inHand.Add(int64(len(ds)))
	c.mu.Lock()
	for _, d := range ds {
		c.held[d] = newLife(work)
	}
	c.mu.Unlock()
	for _, d := range ds {
		c.jobs <- d // has room: capacity is bounded by its size
	}
}

// life is the context of one delivery.
type life struct {
	context.Context
	end context.CancelCauseFunc
}

func newLife(work context.Context) life {
	ctx, cancel := context.WithCancelCause(work)
	return life{ctx, cancel}
}

// work handles jobs until the channel is closed. Those that are left when ctx ends
// go back untouched.
func (c *consumer) work(ctx, work context.Context) {
	for d := range c.jobs {
		c.mu.Lock()
		l := c.held[d]
		c.mu.Unlock()
		f := finished{delivery: d, err: errStopped, stopped: true}
		if ctx.Err() == nil {
			start := time.Now()
			f.err = c.handle(l, d)
			f.stopped = f.err != nil && context.Cause(work) == errStopped
			c.measure(time.Since(start))
		}
		l.end(nil)
		c.finished <- f
		c.inHand.Add(-1)
		select {
		case c.freed <- struct{}{}:
		default:
		}
	}
}

// measure keeps a moving mean of what a handler takes.
func (c *consumer) measure(took time.Duration) {
	old := c.pace.Load()
	if old == 0 {
		old = int64(took)
	}
	c.pace.Store(max(old+(int64(took)-old)/8, 1)) // handlers may race here; any of their means will do
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
