package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/clock"
)

// outcome is a delivery whose handler has returned, or was not started.
type outcome struct {
	delivery *Delivery
	err      error
	stopped  bool                 // the end of the consumer interrupted the handler
	ran      bool                 // the handler has begun
	run      time.Duration        // of the handler
	nack     *queuescript.NackJob // how a job that is not finished is returned, set before the first attempt
	declined int                  // how many such jobs the consumer has declined, this one included
	kept     bool                 // an attempt could not settle it: it counts as in flight again
}

// failed reports whether the handler returned an error that is a failure.
func (o *outcome) failed() bool {
	return o.err != nil && o.err != errExpired && !errors.Is(o.err, ErrSnoozed) && !errors.Is(o.err, ErrDeclined)
}

// settleTimeout bounds one attempt to settle jobs. For a consumer that stops, it bounds all remaining calls together.
const settleTimeout = 5 * time.Second

// closeOutcomes records that the handlers have ended: all calls from now on have settleTimeout together.
func (c *consumer) closeOutcomes() {
	until := time.Now().Add(settleTimeout)
	c.until.Store(&until)
	close(c.outcomes)
}

// settleBy is when an attempt that begins now ends.
func (c *consumer) settleBy() time.Time {
	by := time.Now().Add(settleTimeout)
	if until := c.until.Load(); until != nil && until.Before(by) {
		return *until
	}
	return by
}

// leave removes the consumer from those that the process reports, and sends its last counts. A server that does not
// answer delays the end by the time to settle jobs at most. After that leave does not wait for the report.
func (c *consumer) leave() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		c.presence.leave(c)
	}()
	t := time.NewTimer(time.Until(c.settleBy()))
	defer t.Stop()
	select {
	case <-left:
	case <-t.C:
	}
}

// settle acks finished jobs in batches and returns failed ones, until the channel of outcomes is closed. It tries
// unsettled jobs again until their lease is lost or the consumer stops settling. Meanwhile they count as in flight: if
// a server refuses acks, the consumer takes no more jobs than it may hold.
func (c *consumer) settle(work context.Context) {
	retry := clock.Backoff{First: 20 * time.Millisecond, Last: time.Second}
	var unsettled []outcome
	for open := true; open || len(unsettled) > 0 && time.Now().Before(c.settleBy()); {
		batch := unsettled
		if len(unsettled) == 0 {
			first, ok := <-c.outcomes
			if !ok {
				return
			}
			batch = c.collectOutcomes(first)
			retry.Reset()
		} else {
			var more []outcome
			more, open = c.outcomesWithin(min(retry.Next(), time.Until(c.settleBy())), open)
			batch = append(batch, more...)
		}
		unsettled = c.settleBatch(work, batch)
	}
	for _, o := range unsettled {
		c.conclude(o)
	}
}

// outcomesWithin waits for d and returns the outcomes that arrive meanwhile. open and the second result say whether the
// channel is open before and after the call.
func (c *consumer) outcomesWithin(d time.Duration, open bool) ([]outcome, bool) {
	var batch []outcome
	t := time.NewTimer(d)
	defer t.Stop()
	outcomes := c.outcomes
	if !open {
		outcomes = nil
	}
	for len(batch) < MaxBatch {
		select {
		case o, ok := <-outcomes:
			if !ok {
				outcomes, open = nil, false
				continue
			}
			batch = append(batch, o)
		case <-t.C:
			return batch, open
		}
	}
	return batch, open
}

// maxAckDelay bounds how long a finished job waits for others that are acked in the same call.
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

// settleBatch acks the finished jobs and gives back the failed ones. It returns the outcomes that are to be settled
// again.
func (c *consumer) settleBatch(work context.Context, batch []outcome) (unsettled []outcome) {
	var acks, returns []outcome
	for _, o := range batch {
		if o.nack == nil {
			c.judge(&o)
		}
		switch {
		case o.delivery.settled.Load() != notSettled:
			c.conclude(o) // the handler has settled it
		case o.err == nil || o.err == errExpired:
			acks = append(acks, o)
		default:
			returns = append(returns, o)
		}
	}
	for _, q := range c.queues {
		unsettled = append(unsettled, c.settleOf(work, q, ofQueue(acks, q), ofQueue(returns, q))...)
		if deaths := deathsIn(batch, q); deaths > 0 {
			c.trimAfter(work, q, deaths)
		}
	}
	return unsettled
}

// deathsIn counts the jobs of q in the batch that are dead.
func deathsIn(batch []outcome, q *Queue) (n int) {
	for _, o := range batch {
		if o.delivery.diedIn(q) {
			n++
		}
	}
	return n
}

// ofQueue returns the outcomes of one queue's jobs.
func ofQueue(os []outcome, q *Queue) (of []outcome) {
	for _, o := range os {
		if o.delivery.queue == q {
			of = append(of, o)
		}
	}
	return of
}

// settleOf settles the jobs of one queue.
func (c *consumer) settleOf(work context.Context, q *Queue, acks, returns []outcome) (unsettled []outcome) {
	unsettled = c.attempt(work, acks, func(ctx context.Context, ds []*Delivery) error {
		return q.ack(ctx, ds)
	})
	nacks := make(map[*Delivery]queuescript.NackJob, len(returns))
	for _, o := range returns {
		nacks[o.delivery] = *o.nack
	}
	return append(unsettled, c.attempt(work, returns, func(ctx context.Context, ds []*Delivery) error {
		return q.giveBack(ctx, func(d *Delivery) queuescript.NackJob { return nacks[d] }, ds)
	})...)
}

// attempt settles the jobs in one call and concludes those that are settled. It returns those that are to be tried
// again: no reply says what became of them, and their leases still hold.
func (c *consumer) attempt(work context.Context, os []outcome,
	call func(context.Context, []*Delivery) error) (unsettled []outcome) {
	if len(os) == 0 {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(work), c.settleBy())
	defer cancel()
	ds := make([]*Delivery, len(os))
	for i, o := range os {
		ds[i] = o.delivery
	}
	err := call(ctx, ds)
	if err != nil {
		c.report(work, err)
	}
	permanent := isPermanent(err)
	if permanent {
		c.fail(err)
	}
	for _, o := range os {
		if d := o.delivery; d.settled.Load() == notSettled && !permanent && d.lease.Err() == nil {
			if !o.kept {
				o.kept = true
				c.inFlight.Add(1)
			}
			unsettled = append(unsettled, o)
		} else {
			c.conclude(o)
		}
	}
	return unsettled
}

// conclude reports what became of a job, counts it, and ends the renewal of its lease.
func (c *consumer) conclude(o outcome) {
	d := o.delivery
	became, _ := o.became()
	if c.opts.OnError != nil && !o.stopped && (o.failed() || c.reportsDecline(&o, became)) {
		c.opts.OnError(o.jobError())
	}
	// For a job that was returned before its handler began, the next delivery causes the event.
	if observe := d.queue.opts.Observe; observe != nil && (o.ran || became != OutcomeRetried) {
		observe(o.event())
	}
	c.count(d, became)
	if o.kept {
		c.free()
	}
	d.lease.End(errSettled)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, d)
}

// count adds the end of a delivery to the counts of the consumer and of the day.
func (c *consumer) count(d *Delivery, became Outcome) {
	var processed, failed, dead, expired int64
	switch became {
	case OutcomeAcked:
		c.acked.Add(1)
		processed = 1
	case OutcomeExpired:
		c.expired.Add(1)
		expired = 1
	case OutcomeRetried:
		c.retried.Add(1)
		if d.given.Load().Counted {
			failed = 1
		}
	case OutcomeDead:
		c.dead.Add(1)
		dead = 1
		if d.given.Load().Counted {
			failed = 1
		}
	case OutcomeCancelled:
		c.cancelled.Add(1)
	}
	if processed+failed+expired > 0 {
		c.presence.count(d.queue.keys.Listed, processed, failed, dead, expired)
	}
}

// judge decides how a job is returned that is not finished and that its handler has not settled.
func (c *consumer) judge(o *outcome) {
	o.nack = &queuescript.NackJob{}
	if o.err != nil && o.err != errExpired && o.delivery.settled.Load() == notSettled {
		*o.nack = c.nackOf(*o)
	}
}

// nackOf returns how a job that is not finished is returned.
func (c *consumer) nackOf(o outcome) queuescript.NackJob {
	d := o.delivery
	var snoozed *snooze
	var discarded *discard
	switch {
	case o.stopped:
		return queuescript.NackJob{}
	case errors.As(o.err, &snoozed):
		return queuescript.NackJob{Delay: clock.CeilMilli(snoozed.d)}
	case errors.Is(o.err, ErrDeclined):
		return queuescript.NackJob{
			Delay: firstDecline, Reason: o.err.Error(), Patience: clock.CeilMilli(c.opts.Declined),
		}
	case !o.failed(): // ErrSnoozed itself
		return queuescript.NackJob{Delay: c.backoff(d)}
	}
	limit := cmp.Or(d.MaxFailures, d.queue.opts.MaxFailures)
	nack := queuescript.NackJob{Counted: true, Reason: o.err.Error()}
	if errors.As(o.err, &discarded) || limit > 0 && d.Attempt >= limit {
		nack.Delay = -1 // dead
		return nack
	}
	nack.Delay = c.backoff(d)
	return nack
}

// backoff returns the delay before the next delivery in ms, and the default delay if Backoff panics.
func (c *consumer) backoff(d *Delivery) (ms int64) {
	defer func() {
		if p := recover(); p != nil {
			delay := doubling(d.Attempt)
			ms = clock.CeilMilli(delay)
			c.report(context.Background(), d.queue.wrap("deliver again in", fmt.Errorf(
				"Backoff(%d) panicked: %v; job %q is delivered again in %v, the default", d.Attempt, p, d.ID, delay)))
		}
	}()
	return clock.CeilMilli(max(c.opts.Backoff(d.Attempt), 0))
}

// storeLimits stores the limits of the dead sets for the processes that name none.
func (c *consumer) storeLimits(work context.Context) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(work), c.settleBy())
	defer cancel()
	for _, q := range c.queues {
		if q.opts.Dead.Stored {
			continue
		}
		if _, err := q.trimOnce(ctx, q.opts.Dead, q.opts.Dead.kept(), 0); err != nil {
			c.report(work, err)
		}
	}
}

// trimAfter trims the dead set of q after deaths.
func (c *consumer) trimAfter(work context.Context, q *Queue, deaths int) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(work), c.settleBy())
	defer cancel()
	if err := q.trimAfter(ctx, deaths, q.opts.Dead.kept()); err != nil {
		c.report(work, err)
	}
}
