package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// renew extends the leases of what is in hand three times in their length, all in
// one call.
func (c *consumer) renew(ctx context.Context) {
	for {
		clock.Sleep(ctx, c.queue.opts.Lease/3)
		if ctx.Err() != nil {
			return
		}
		if err := c.extend(ctx); err != nil {
			c.failed(ctx, err)
		}
	}
}

func (c *consumer) extend(ctx context.Context) error {
	c.fences.Lock()
	defer c.fences.Unlock()
	c.mu.Lock()
	held := make([]*Delivery, 0, len(c.held))
	for d := range c.held {
		held = append(held, d)
	}
	c.mu.Unlock()
	err := c.renewal(ctx, held)
	var gone *LeaseLostError
	if errors.As(err, &gone) {
		c.revoke(gone)
	}
	return err
}

// renewal is one extend; when the reply of the first is lost, the second names the
// fences that came of it.
func (c *consumer) renewal(ctx context.Context, held []*Delivery) (err error) {
	for range 2 {
		if err = c.assure(ctx, held); err != nil {
			return err
		}
		err = c.queue.Extend(ctx, c.queue.opts.Lease, held...)
		if c.doubt = errors.Is(err, lua.ErrOutcomeUnknown); !c.doubt {
			return err
		}
	}
	return err
}

// assure reads the fences from the server where a renewal had no answer: the leases
// end at the old time or the new one. Until the old one, nobody else was given a job
// that this consumer has not given back, so what stands there is its own.
func (c *consumer) assure(ctx context.Context, ds []*Delivery) error {
	if !c.doubt || len(ds) == 0 {
		return nil
	}
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.ID
	}
	ends, err := c.queue.client.ZMScore(ctx, c.queue.keys.Leases, ids...).Result()
	if err != nil {
		return fmt.Errorf("luatomic: leases of %q: %w", c.queue.name, err)
	}
	now, err := c.queue.client.Time(ctx).Result() // after them
	if err != nil {
		return fmt.Errorf("luatomic: leases of %q: %w", c.queue.name, err)
	}
	for i, d := range ds {
		if end := int64(ends[i]); end > 0 && now.UnixMicro() < d.fence.Load() {
			d.fence.Store(end)
		}
	}
	return nil
}

// revoke ends the handlers whose lease is lost.
func (c *consumer) revoke(gone *LeaseLostError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range gone.IDs {
		for d, l := range c.held {
			if d.ID == id {
				l.end(ErrLeaseLost)
			}
		}
	}
}
