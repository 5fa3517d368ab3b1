package queue

import (
	"context"
	"errors"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// renew extends the leases of all jobs in flight each third of a lease, in one call.
func (c *consumer) renew(ctx context.Context) {
	for {
		clock.Sleep(ctx, c.queue.opts.Lease/3)
		if ctx.Err() != nil {
			return
		}
		if err := c.renewHeld(ctx); err != nil {
			c.report(ctx, err)
		}
	}
}

// renewHeld extends the leases and ends the handlers whose lease is lost.
func (c *consumer) renewHeld(ctx context.Context) error {
	c.fences.Lock()
	defer c.fences.Unlock()
	c.mu.Lock()
	held := make([]*Delivery, 0, len(c.held))
	for d := range c.held {
		held = append(held, d)
	}
	c.mu.Unlock()
	err := c.extendWithRetry(ctx, held)
	var lost *LeaseLostError
	if errors.As(err, &lost) {
		c.cancelHandlers(lost)
	}
	return err
}

// extendWithRetry extends twice when the first reply is lost: the second call names the fences that the first may
// have written.
func (c *consumer) extendWithRetry(ctx context.Context, held []*Delivery) (err error) {
	for range 2 {
		if err = c.readFences(ctx, held); err != nil {
			return err
		}
		err = c.queue.Extend(ctx, c.queue.opts.Lease, held...)
		if c.uncertain = errors.Is(err, lua.ErrOutcomeUnknown); !c.uncertain {
			return err
		}
	}
	return err
}

// readFences reads the fences from the server after an extend without a reply: the leases end at the old time or at
// the new one. Before the old time nobody else can lease a job that this consumer has not returned, so until then
// the score in Redis is its own.
func (c *consumer) readFences(ctx context.Context, ds []*Delivery) error {
	if !c.uncertain || len(ds) == 0 {
		return nil
	}
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.ID
	}
	ends, err := c.queue.client.ZMScore(ctx, c.queue.keys.Leases, ids...).Result()
	if err != nil {
		return c.queue.wrap("read leases of", err)
	}
	now, err := c.queue.client.Time(ctx).Result() // after the scores, so that it is not too early
	if err != nil {
		return c.queue.wrap("read leases of", err)
	}
	for i, d := range ds {
		if end := int64(ends[i]); end > 0 && now.UnixMicro() < d.fence.Load() {
			d.fence.Store(end)
		}
	}
	return nil
}

// cancelHandlers ends the contexts of the handlers whose lease is lost.
func (c *consumer) cancelHandlers(lost *LeaseLostError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range lost.IDs {
		for d, lease := range c.held {
			if d.ID == id {
				lease.end(ErrLeaseLost)
			}
		}
	}
}
