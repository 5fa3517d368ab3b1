package luatomic

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// finished is a delivery whose handler has returned.
type finished struct {
	delivery *Delivery
	err      error
	stopped  bool // the handler was interrupted by the end of the consumer
}

// settleTimeout bounds a call that must reach the server although the program is
// stopping.
const settleTimeout = 5 * time.Second

// settle acks what is finished, all that has gathered in one call, and gives back
// what failed, until the channel is closed.
func (c *consumer) settle(work context.Context) {
	for first := range c.finished {
		c.settleBatch(work, c.gather(first))
	}
}

// mostGather bounds how long a finished job waits for others to be acked with.
const mostGather = 10 * time.Millisecond

// gather adds to a finished delivery those that are there already, and, while jobs are
// taken ahead, waits for as many as are worth a call. What failed does not wait.
func (c *consumer) gather(first finished) []finished {
	batch, hurry := []finished{first}, first.err != nil
	late := time.NewTimer(mostGather)
	defer late.Stop()
	for len(batch) < MaxBatch {
		var patience <-chan time.Time
		if !hurry && len(c.jobs) > 0 && len(batch) < c.batch() {
			patience = late.C
		}
		f, ok := c.nextFinished(patience)
		if !ok {
			break
		}
		batch, hurry = append(batch, f), hurry || f.err != nil
	}
	return batch
}

// nextFinished waits for the next one while patience lasts, nil for no patience.
func (c *consumer) nextFinished(patience <-chan time.Time) (f finished, ok bool) {
	if patience == nil {
		select {
		case f, ok = <-c.finished:
		default:
		}
		return f, ok
	}
	select {
	case f, ok = <-c.finished:
	case <-patience:
	}
	return f, ok
}

func (c *consumer) settleBatch(work context.Context, batch []finished) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), settleTimeout)
	defer cancel()
	c.fences.Lock()
	defer c.fences.Unlock()
	acks := make([]*Delivery, 0, len(batch))
	for _, f := range batch {
		if f.err == nil {
			acks = append(acks, f.delivery)
			continue
		}
		count, err := c.giveBack(ctx, f)
		if !f.stopped {
			c.failed(work, f.err)
		}
		c.settled(work, count, 1, err)
	}
	c.settled(work, &c.acked, len(acks), c.queue.Ack(ctx, acks...))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range batch {
		delete(c.held, f.delivery)
	}
}

// giveBack decides what becomes of a job that was not done.
func (c *consumer) giveBack(ctx context.Context, f finished) (*atomic.Int64, error) {
	d, limit := f.delivery, c.queue.opts.MaxFailures
	var off *snooze
	var no *discard
	switch {
	case f.stopped:
		return &c.retried, d.Return(ctx, 0)
	case errors.As(f.err, &off):
		return &c.retried, d.Return(ctx, off.d)
	case errors.As(f.err, &no), limit > 0 && d.Attempt >= limit:
		return &c.dead, errors.Join(d.Bury(ctx, f.err.Error()), c.trim(ctx))
	}
	return &c.retried, d.Nack(ctx, c.opts.Backoff(d.Attempt), f.err.Error())
}

// trim keeps the dead set within its bounds.
func (c *consumer) trim(ctx context.Context) error {
	if c.queue.opts.Dead == (DeadLimits{}) {
		return nil
	}
	_, err := c.queue.Trim(ctx, c.queue.opts.Dead)
	return err
}

// settled counts n deliveries, but for those that were not this consumer's any more.
func (c *consumer) settled(work context.Context, count *atomic.Int64, n int, err error) {
	var gone *LeaseLostError
	switch {
	case errors.As(err, &gone):
		n -= len(gone.IDs)
	case err != nil:
		n = 0
	}
	if err != nil {
		c.failed(work, err)
	}
	count.Add(int64(n))
}

// renew extends the leases of what is in hand three times in their length, all in
// one call.
func (c *consumer) renew(ctx context.Context) {
	for {
		pause(ctx, c.queue.opts.Lease/3)
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
	err := c.queue.Extend(ctx, c.queue.opts.Lease, held...)
	var gone *LeaseLostError
	if errors.As(err, &gone) {
		c.revoke(gone)
	}
	return err
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
