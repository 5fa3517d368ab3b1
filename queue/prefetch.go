package queue

import (
	"context"
	"time"
)

// How much work a consumer takes before it has a free handler for it. On a queue that runs empty it is little, because
// other consumers could do the work. With a backlog it grows step by step, so that a call serves more jobs. With slow
// handlers it stays at the least: if the process dies, a prefetched job waits for the end of its lease. Jobs that no
// handler starts for stuckAfter are returned.
const (
	leastPrefetch = 2 * time.Millisecond
	mostPrefetch  = 20 * time.Millisecond
	prefetchStep  = 2 * time.Millisecond
	fastHandler   = mostPrefetch / 4
	leaseShare    = 20
	stuckAfter    = 10 * mostPrefetch
)

// adjustPrefetch sets the prefetch time after a take. full reports that the take got as many jobs as it asked for.
func (c *consumer) adjustPrefetch(full bool) {
	next := int64(leastPrefetch)
	if full && c.handlerTime.Load() < int64(fastHandler) {
		next = min(max(c.prefetchTime.Load(), next)+int64(prefetchStep), int64(mostPrefetch))
	}
	c.prefetchTime.Store(min(next, int64(c.lease/leaseShare)))
}

// prefetchLimit is how many jobs may wait for a handler: as many as all handlers finish in the prefetch time.
func (c *consumer) prefetchLimit() int {
	mean := c.handlerTime.Load()
	if mean == 0 {
		return 0
	}
	return int(min(c.prefetchTime.Load()*int64(c.opts.Concurrency)/mean, MaxTake))
}

// keepsUp reports whether the handlers, at their present speed, start what is prefetched within the prefetch time. If
// they have become slow, a handler that returns starts one job, and the other jobs still wait.
func (c *consumer) keepsUp() bool { return len(c.prefetched) <= c.prefetchLimit() }

// worthACall is the number of jobs that is worth a round trip.
func (c *consumer) worthACall() int { return max(c.prefetchLimit()/2, 1) }

// awaitCapacity waits until the consumer may take jobs and returns how many; 0 when ctx has ended. It waits for
// half of the prefetch limit, so that calls stay few.
func (c *consumer) awaitCapacity(ctx context.Context) int {
	stuck := time.NewTimer(stuckAfter)
	defer stuck.Stop()
	for ctx.Err() == nil {
		if n := c.opts.Concurrency + c.prefetchLimit() - int(c.inFlight.Load()); n >= c.worthACall() {
			return min(n, MaxTake)
		}
		select {
		case <-ctx.Done():
		case <-c.freed:
			if c.keepsUp() {
				stuck.Reset(stuckAfter)
			}
		case <-stuck.C:
			c.returnPrefetched()
		}
	}
	return 0
}

// sleep waits for work, until a notification arrives, ctx ends or the time is over. Meanwhile it returns prefetched
// jobs that wait too long behind handlers which have become slow.
func (c *consumer) sleep(ctx context.Context, wait time.Duration) {
	end := time.Now().Add(wait)
	for len(c.prefetched) > 0 && time.Now().Before(end) {
		left := stuckAfter - (time.Since(c.started) - time.Duration(c.progressed.Load()))
		if left <= 0 {
			c.returnPrefetched()
			break
		}
		if c.notifiedWithin(ctx, min(time.Until(end), left)) {
			return
		}
	}
	c.notifications.Wait(ctx, time.Until(end))
}

// notifiedWithin waits for d. It reports true, before d is over, when a notification arrives or ctx ends.
func (c *consumer) notifiedWithin(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-ctx.Done():
	case <-c.notifications.Received():
	}
	return true
}

// returnPrefetched returns the jobs that wait behind handlers which became much slower, so that other consumers can
// take them. The consumer then prefetches nothing until some handlers have finished. A handler that is not busy takes a
// job as soon as the process gets processor time.
func (c *consumer) returnPrefetched() {
	if len(c.prefetched) == 0 || c.busy.Load() < int64(c.opts.Concurrency) {
		return
	}
	c.handlerTime.Store(max(c.handlerTime.Load(), int64(mostPrefetch)*int64(c.opts.Concurrency)+1))
	for {
		select {
		case d := <-c.prefetched:
			d.finish()
			c.outcomes <- outcome{delivery: d, err: errStopped, stopped: true}
			c.inFlight.Add(-1)
		default:
			return
		}
	}
}

// dispatch hands deliveries to the handlers.
func (c *consumer) dispatch(ctx, work context.Context, ds []*Delivery) {
	c.inFlight.Add(int64(len(ds)))
	c.markProgress()
	c.mu.Lock()
	for _, d := range ds {
		c.held[d] = true
	}
	c.mu.Unlock()
	for _, d := range ds {
		d.consumer = c
		d.lease.Keep(work)
		c.prefetched <- d // never blocks: awaitCapacity keeps the number below the channel's capacity
	}
	c.startHandlers(ctx, work, len(ds))
}

// markProgress records that jobs were taken, or that the handlers keep up with them.
func (c *consumer) markProgress() { c.progressed.Store(int64(time.Since(c.started))) }
