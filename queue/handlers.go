package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errStopped is the cause that ends handlers which outlast the grace period.
var errStopped = errors.New("luatomic: consumer stopped")

// errExited is the error of a handler that did not return.
var errExited = errors.New("luatomic: handler ended its goroutine; return an error instead")

// heldLease is a delivery in the hands of a consumer: its context ends with the lease.
type heldLease struct {
	context.Context
	end      context.CancelCauseFunc
	timer    *time.Timer // ends the lease by the clocks of the process
	finished bool        // the handler has returned
}

// hold begins to keep the lease of a delivery. The caller holds c.mu.
func (c *consumer) hold(work context.Context, d *Delivery) {
	ctx, cancel := context.WithCancelCause(work)
	l := &heldLease{Context: ctx, end: cancel}
	c.held[d] = l
	l.timer = time.AfterFunc(nextLook(d), func() { c.endWhenOver(d) })
}

// nextLook is when to look at the clocks again: the wall clock may run ahead of the monotonic one.
func nextLook(d *Delivery) time.Duration { return min(max(d.end.left(), 0), time.Second) }

// endWhenOver ends the context of a delivery whose lease is over by the clocks of the process.
func (c *consumer) endWhenOver(d *Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.held[d]
	switch {
	case l == nil:
	case d.end.left() <= 0:
		c.drop(d, ErrLeaseLost)
	default:
		l.timer.Reset(nextLook(d))
	}
}

// drop keeps a lease no more and ends its context with that cause. The caller holds c.mu.
func (c *consumer) drop(d *Delivery, cause error) {
	if l := c.held[d]; l != nil {
		l.end(cause)
		l.timer.Stop()
		delete(c.held, d)
	}
}

// finish notes that no handler works on the delivery any more. Its lease is kept until the job is settled.
func (c *consumer) finish(d *Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.held[d]; l != nil {
		l.finished = true
		l.end(nil)
	}
}

// startHandler runs a goroutine that handles jobs, and a new one when a handler has ended its goroutine.
func (c *consumer) startHandler(handlers *sync.WaitGroup, ctx, work context.Context) {
	handlers.Go(func() {
		finished := false
		defer func() {
			if !finished {
				c.startHandler(handlers, ctx, work)
			}
		}()
		for d := range c.prefetched {
			c.process(ctx, work, d)
		}
		finished = true
	})
}

// process runs the handler on a job. A job that has not started when ctx or its lease ends is returned untouched.
func (c *consumer) process(ctx, work context.Context, d *Delivery) {
	c.mu.Lock()
	lease := c.held[d]
	c.mu.Unlock()
	o := outcome{delivery: d, err: errExited}
	defer func() { // also when the handler ends this goroutine
		o.stopped = o.err != nil && (o.err == errStopped || context.Cause(work) == errStopped)
		c.finish(d)
		c.release(o)
	}()
	if ctx.Err() != nil || lease == nil || d.end.left() <= 0 {
		o.err = errStopped
		return
	}
	start := time.Now()
	o.err = c.callHandler(lease, d)
	c.recordHandlerTime(time.Since(start))
}

// release passes the outcome on and frees the handler.
func (c *consumer) release(o outcome) {
	c.outcomes <- o
	c.inFlight.Add(-1)
	c.markProgress()
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// recordHandlerTime keeps a moving mean that rises fast and falls slowly: one slow handler is enough to stop
// prefetching.
func (c *consumer) recordHandlerTime(took time.Duration) {
	mean, weight := c.handlerTime.Load(), int64(16)
	switch {
	case mean == 0:
		mean = int64(took)
	case int64(took) > mean:
		weight = 2
	}
	c.handlerTime.Store(max(mean+(int64(took)-mean)/weight, 1)) // handlers may race here; any of their means will do
}

func (c *consumer) callHandler(ctx context.Context, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("luatomic: handler of job %q panicked: %v", d.ID, p)
		}
	}()
	return c.h(ctx, d)
}

// awaitHandlers waits for the handlers: for the grace period and then, cancelled, until they return.
func (c *consumer) awaitHandlers(handlers *sync.WaitGroup, stop context.CancelCauseFunc) {
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
