package queue

import (
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// renew extends the leases of all jobs in flight each third of a lease, in one call, and sooner after a failure.
func (c *consumer) renew(ctx context.Context) {
	lease := c.queue.opts.Lease
	wait := lease / 3
	for {
		clock.Sleep(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		wait = lease / 3
		if err := c.renewHeld(ctx); err != nil {
			c.report(ctx, err)
			if !errors.Is(err, ErrLeaseLost) {
				wait = lease / 10
			}
		}
	}
}

// renewHeld extends the leases and ends the handlers whose lease is lost. A lost lease is no error if the delivery
// was settled meanwhile, or is about to be: the settling call has the verdict.
func (c *consumer) renewHeld(ctx context.Context) error {
	c.mu.Lock()
	held := make([]*Delivery, 0, len(c.held))
	for d := range c.held {
		if d.settled.Load() == notSettled {
			held = append(held, d)
		}
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(c.queue.opts.Lease/3, time.Millisecond))
	defer cancel()
	err := c.queue.Extend(ctx, c.queue.opts.Lease, held...)
	var lost *LeaseLostError
	if !errors.As(err, &lost) {
		return err
	}
	if c.loseHeld(lost.deliveries) == 0 {
		return nil
	}
	return err
}

// loseHeld ends the contexts of deliveries whose lease is lost, and returns how many handlers that concerns.
func (c *consumer) loseHeld(ds []*Delivery) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		l := c.held[d]
		if l == nil || d.settled.Load() != notSettled {
			continue
		}
		if !l.finished {
			n++
		}
		c.drop(d, ErrLeaseLost)
	}
	return n
}
