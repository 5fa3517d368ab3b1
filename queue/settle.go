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

// outcome is a delivery whose handler has returned, or was not started.
type outcome struct {
	delivery *Delivery
	err      error
	stopped  bool // the end of the consumer interrupted the handler
}

// settleTimeout bounds a call that must reach the server although the program stops.
const settleTimeout = 5 * time.Second

// settle acks finished jobs in batches and returns failed ones, until the channel of outcomes is closed.
func (c *consumer) settle(work context.Context) {
	for first := range c.outcomes {
		c.settleBatch(work, c.collectOutcomes(first))
	}
}

// maxAckDelay bounds how long a finished job waits for others to be acked with.
const maxAckDelay = 10 * time.Millisecond

// collectOutcomes adds to the first outcome those that have arrived. While jobs are prefetched, it waits for as
// many as are worth a call. A failure does not wait.
func (c *consumer) collectOutcomes(first outcome) []outcome {
	batch, failed := []outcome{first}, first.err != nil
	late := time.NewTimer(maxAckDelay)
	defer late.Stop()
	for len(batch) < MaxBatch {
		var deadline <-chan time.Time
		if !failed && len(c.prefetched) > 0 && len(batch) < c.worthACall() {
			deadline = late.C
		}
		o, ok := c.nextOutcome(deadline)
		if !ok {
			break
		}
		batch, failed = append(batch, o), failed || o.err != nil
	}
	return batch
}

// nextOutcome waits for an outcome until the deadline; a nil deadline means no wait.
func (c *consumer) nextOutcome(deadline <-chan time.Time) (o outcome, ok bool) {
	if deadline == nil {
		select {
		case o, ok = <-c.outcomes:
		default:
		}
		return o, ok
	}
	select {
	case o, ok = <-c.outcomes:
	case <-deadline:
	}
	return o, ok
}

// settleBatch acks first: a finished job must not run again because many others failed.
func (c *consumer) settleBatch(work context.Context, batch []outcome) {
	acks, returns := make([]*Delivery, 0, len(batch)), make([]*Delivery, 0, len(batch))
	verdicts := make(map[*Delivery]verdict)
	for _, o := range batch {
		if o.err == nil {
			acks = append(acks, o.delivery)
			continue
		}
		returns = append(returns, o.delivery)
		verdicts[o.delivery] = c.verdict(o)
	}
	err := c.endLeases(work, acks, func(ctx context.Context) error { return c.queue.Ack(ctx, acks...) })
	c.countAcked(work, len(acks), err)
	if len(returns) == 0 {
		return
	}
	err = c.endLeases(work, returns, func(ctx context.Context) error {
		return c.queue.giveBack(ctx, func(d *Delivery) gen.QueueNackJob { return verdicts[d].nack }, returns)
	})
	for _, o := range batch {
		if o.err != nil && !o.stopped {
			c.report(work, o.err)
		}
	}
	c.countReturned(work, verdicts, err)
}

// endLeases calls what ends the leases of these deliveries. Meanwhile no extend moves their fences.
func (c *consumer) endLeases(work context.Context, ds []*Delivery, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), settleTimeout)
	defer cancel()
	c.fences.Lock()
	defer c.fences.Unlock()
	_ = c.readFences(ctx, ds) // after an error the call may report the leases as lost
	err := call(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		delete(c.held, d)
	}
	return err
}

// verdict is what happens to a job that is not finished, and the counter that it adds to.
type verdict struct {
	count *atomic.Int64
	nack  gen.QueueNackJob
}

func (c *consumer) verdict(o outcome) verdict {
	var snoozed *snooze
	var discarded *discard
	switch {
	case o.stopped:
		return verdict{&c.retried, gen.QueueNackJob{}}
	case errors.As(o.err, &snoozed):
		return verdict{&c.retried, gen.QueueNackJob{Delay: clock.CeilMilli(snoozed.d)}}
	}
	d, limit := o.delivery, c.queue.opts.MaxFailures
	nack := gen.QueueNackJob{Counted: true, Reason: o.err.Error()}
	if errors.As(o.err, &discarded) || limit > 0 && d.Attempt >= limit {
		nack.Delay = -1 // dead
		return verdict{&c.dead, nack}
	}
	nack.Delay = clock.CeilMilli(max(c.opts.Backoff(d.Attempt), 0))
	return verdict{&c.retried, nack}
}

// countAcked adds n to the acked jobs, less the deliveries whose lease was lost.
func (c *consumer) countAcked(work context.Context, n int, err error) {
	var lost *LeaseLostError
	switch {
	case errors.As(err, &lost):
		n -= len(lost.IDs)
	case err != nil:
		n = 0
	}
	if err != nil {
		c.report(work, err)
	}
	c.acked.Add(int64(n))
}

// countReturned counts the jobs whose lease was not lost, and trims the dead set if one of them died.
func (c *consumer) countReturned(work context.Context, verdicts map[*Delivery]verdict, err error) {
	if err != nil {
		c.report(work, err)
	}
	var lost *LeaseLostError
	if err != nil && !errors.As(err, &lost) {
		return
	}
	buried := false
	for d, v := range verdicts {
		if lost == nil || !slices.Contains(lost.IDs, d.ID) {
			v.count.Add(1)
			buried = buried || v.count == &c.dead
		}
	}
	if !buried {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), settleTimeout)
	defer cancel()
	if err := c.trimDead(ctx); err != nil {
		c.report(work, err)
	}
}

// trimDead keeps the dead set within Options.Dead.
func (c *consumer) trimDead(ctx context.Context) error {
	if c.queue.opts.Dead == (DeadLimits{}) {
		return nil
	}
	_, err := c.queue.Trim(ctx, c.queue.opts.Dead)
	return err
}
