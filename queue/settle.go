package queue

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
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

// settleBatch acks first: what is done must not be done again because much else failed.
func (c *consumer) settleBatch(work context.Context, batch []finished) {
	acks, back := make([]*Delivery, 0, len(batch)), make([]*Delivery, 0, len(batch))
	ends := make(map[*Delivery]ending)
	for _, f := range batch {
		if f.err == nil {
			acks = append(acks, f.delivery)
			continue
		}
		back = append(back, f.delivery)
		ends[f.delivery] = c.ending(f)
	}
	err := c.conclude(work, acks, func(ctx context.Context) error { return c.queue.Ack(ctx, acks...) })
	c.settled(work, &c.acked, len(acks), err)
	if len(back) == 0 {
		return
	}
	err = c.conclude(work, back, func(ctx context.Context) error {
		return c.queue.nack(ctx, func(d *Delivery) gen.QueueNackJob { return ends[d].how }, back)
	})
	for _, f := range batch {
		if f.err != nil && !f.stopped {
			c.failed(work, f.err)
		}
	}
	c.givenBack(work, ends, err)
}

// conclude makes the call that ends deliveries, while nothing moves their fences.
func (c *consumer) conclude(work context.Context, ds []*Delivery, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), settleTimeout)
	defer cancel()
	c.fences.Lock()
	defer c.fences.Unlock()
	_ = c.assure(ctx, ds) // else the call may find the leases lost
	err := call(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		delete(c.held, d)
	}
	return err
}

// ending is what becomes of a job that was not done, and where it counts.
type ending struct {
	count *atomic.Int64
	how   gen.QueueNackJob
}

func (c *consumer) ending(f finished) ending {
	d, limit := f.delivery, c.queue.opts.MaxFailures
	var off *snooze
	var no *discard
	switch {
	case f.stopped:
		return ending{&c.retried, gen.QueueNackJob{}}
	case errors.As(f.err, &off):
		return ending{&c.retried, gen.QueueNackJob{Delay: clock.CeilMilli(off.d)}}
	}
	how := gen.QueueNackJob{Counted: true, Reason: f.err.Error()}
	if errors.As(f.err, &no) || limit > 0 && d.Attempt >= limit {
		how.Delay = -1
		return ending{&c.dead, how}
	}
	how.Delay = clock.CeilMilli(max(c.opts.Backoff(d.Attempt), 0)) // below zero is for the dead
	return ending{&c.retried, how}
}

// givenBack counts those that were this consumer's until then, and keeps the dead set
// within its bounds.
func (c *consumer) givenBack(work context.Context, ends map[*Delivery]ending, err error) {
	if err != nil {
		c.failed(work, err)
	}
	var gone *LeaseLostError
	if err != nil && !errors.As(err, &gone) {
		return
	}
	buried := false
	for d, end := range ends {
		if gone == nil || !slices.Contains(gone.IDs, d.ID) {
			end.count.Add(1)
			buried = buried || end.count == &c.dead
		}
	}
	if !buried {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), settleTimeout)
	defer cancel()
	if err := c.trim(ctx); err != nil {
		c.failed(work, err)
	}
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
