package queue

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// The longest sleep with a live subscription, and without one.
const (
	longIdle  = 10 * time.Second
	shortIdle = time.Second
	// lastRetry is the longest wait after a call that failed. It is short, so that a consumer goes on soon after a
	// failover.
	lastRetry = 250 * time.Millisecond
)

// idleOrDefault returns the setting or its default. It is at least a millisecond, the unit of the server's clock.
func idleOrDefault(idle time.Duration) time.Duration {
	if idle <= 0 {
		return longIdle
	}
	return max(idle, time.Millisecond)
}

// longestSleep is the idle time. Without a waiter it is less, because the subscription is not confirmed and no
// notification can arrive.
func longestSleep(idle time.Duration, waiter string) time.Duration {
	if waiter == "" {
		return min(idle, shortIdle)
	}
	return idle
}

// newSignal makes the name of a waiter and the subscription to its channels, one for each queue. The subscription sends
// nothing before Start.
func newSignal(queues ...*Queue) (name string, s *notify.Signal, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", nil, queues[0].wrap("subscribe to", err)
	}
	name = id.String()
	channels := make([]string, len(queues))
	for i, q := range queues {
		channels[i] = q.keys.Channel(name)
	}
	return name, notify.NewSignal(queues[0].client, channels...), nil
}

// nameIf returns the name if a notification reaches the waiter, else an empty text.
func nameIf(ctx context.Context, s *notify.Signal, name string) string {
	if s.Confirmed(ctx) {
		return name
	}
	return ""
}

// fetch takes jobs while there is capacity for them. It returns nil when the queues are drained.
func (c *consumer) fetch(ctx, work context.Context) error {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: lastRetry}
	for {
		n := c.awaitCapacity(ctx)
		if n == 0 {
			return context.Cause(ctx)
		}
		c.waiter = nameIf(work, c.notifications, c.name)
		ts, err := c.taker.take(ctx, n, c.waiter, longestSleep(c.opts.Idle, c.waiter))
		c.unanswered = err != nil && (c.unanswered || ctx.Err() != nil || errors.Is(err, lua.ErrOutcomeUnknown))
		for _, t := range ts {
			c.dispatch(ctx, work, t.Deliveries)
			n -= len(t.Deliveries)
		}
		c.adjustPrefetch(n == 0)
		wait, drained, err := c.nextTake(ctx, ts, err)
		switch {
		case err != nil && isPermanent(err):
			return err
		case err != nil:
			if ctx.Err() == nil {
				c.waiter = "" // an unreachable server must not delay a stop
			}
			c.report(ctx, err)
			clock.Sleep(ctx, retry.Next())
		case drained:
			return nil
		default:
			retry.Reset()
			c.sleep(ctx, wait)
		}
	}
}

// nextTake decides after a take how long to sleep, or that the queues are drained. First it reclaims what dead workers
// hold.
func (c *consumer) nextTake(ctx context.Context, ts []Taken, err error) (wait time.Duration, drained bool, _ error) {
	if err != nil {
		return 0, false, err
	}
	found := 0
	for i, t := range ts {
		found += len(t.Deliveries) + t.Dropped
		if lapse, ok := t.NextLapse.Get(); ok && !lapse.After(t.Now) {
			n, err := c.reclaim(ctx, c.taker.from[i].queue)
			if err != nil {
				return 0, false, err
			}
			found += n
		}
	}
	if found > 0 {
		return 0, false, nil
	}
	wait, drained = longestSleep(c.opts.Idle, nameIf(ctx, c.notifications, c.name)), c.opts.Drain
	for i, t := range ts {
		_, scheduled := t.NextDue.Get()
		_, leased := t.NextLapse.Get()
		drained = drained && !scheduled && !leased
		if c.opts.Drain && (leased || !t.Paused) {
			wait = min(wait, drainIdle)
		}
		if !t.Paused {
			wait = min(wait, until(t.NextDue, t.Now, wait), until(t.NextLapse, t.Now, wait))
		} else if drained {
			var err error
			if drained, err = c.taker.from[i].queue.empty(ctx); err != nil {
				return 0, false, err
			}
		}
	}
	return max(wait, shortWait), drained, nil
}

// reclaim reclaims jobs, and returns how many of them were returned, buried or deleted.
func (c *consumer) reclaim(ctx context.Context, q *Queue) (int, error) {
	r, err := q.Reclaim(ctx)
	c.dead.Add(int64(r.Buried))
	if n := int64(r.Returned + r.Buried); n > 0 {
		c.presence.count(q.keys.Listed, 0, n, int64(r.Buried), 0)
	}
	if r.Buried > 0 {
		err = errors.Join(err, q.trimAfter(ctx, r.Buried, q.opts.Dead.kept()))
	}
	return r.Returned + r.Buried + r.Cancelled, err
}

const (
	// shortWait is the wait after a take that found nothing although a job was due: two clocks differ a little.
	shortWait = 100 * time.Microsecond
	// drainIdle is how often a draining consumer checks whether other workers have finished their jobs: no
	// notification reports that.
	drainIdle = 50 * time.Millisecond
)

// stopWaiting removes a consumer or poller from the waiters. If a job is ready or scheduled, it notifies another
// waiter: the one that stops may have been notified, or may be the only one that knows when the next job is due. The
// notification is only a hint, so its failure is not reported.
func (q *Queue) stopWaiting(ctx context.Context, waiter string) {
	if waiter == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	_, _ = q.promoteStep(ctx, 0, waiter, 0)
}

// isPermanent reports whether a retry would fail in the same way.
func isPermanent(err error) bool {
	for _, permanent := range []error{
		lua.ErrWrongType, lua.ErrBadReply, lua.ErrOutOfRange, lua.ErrNoGuard, redis.ErrClosed, ErrLayout,
	} {
		if errors.Is(err, permanent) {
			return true
		}
	}
	return false
}
