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
)

// idleOrDefault is the setting, or its default. The server's clock has no shorter wait than a millisecond.
func idleOrDefault(idle time.Duration) time.Duration {
	if idle <= 0 {
		return longIdle
	}
	return max(idle, time.Millisecond)
}

// longestSleep is the idle time, or less while no notification can arrive because the channel is not subscribed.
func longestSleep(idle time.Duration, channel string) time.Duration {
	if channel == "" {
		return min(idle, shortIdle)
	}
	return idle
}

// newListener makes a subscription to a channel of its own. It sends nothing before its Run.
func (q *Queue) newListener() (*notify.Listener, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, q.wrap("subscribe to", err)
	}
	return notify.New(q.keys.Channel(id.String())), nil
}

// fetch takes jobs while there is capacity for them. It returns nil when the queue is drained.
func (c *consumer) fetch(ctx, work context.Context) error {
	retry := clock.Backoff{First: 10 * time.Millisecond, Last: shortIdle}
	for {
		n := c.awaitCapacity(ctx)
		if n == 0 {
			return context.Cause(ctx)
		}
		c.channel = c.notifications.Channel()
		t, err := c.queue.takeOrWait(ctx, n, c.channel, longestSleep(c.opts.Idle, c.channel))
		c.dispatch(work, t.Deliveries)
		c.adjustPrefetch(len(t.Deliveries) == n)
		wait, drained, err := c.nextTake(ctx, t, err)
		switch {
		case err != nil && isPermanent(err):
			return err
		case err != nil:
			if ctx.Err() == nil {
				c.channel = "" // an unreachable server must not delay a stop
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

// nextTake decides after a take how long to sleep, or that the queue is drained. It reclaims first what dead
// workers hold.
func (c *consumer) nextTake(ctx context.Context, t Taken, err error) (wait time.Duration, drained bool, _ error) {
	if err != nil {
		return 0, false, err
	}
	if lapse, ok := t.NextLapse.Get(); ok && !lapse.After(t.Now) {
		if n, err := c.reclaim(ctx); err != nil || n > 0 {
			return 0, false, err
		}
	}
	if len(t.Deliveries) > 0 || t.Dropped > 0 {
		return 0, false, nil
	}
	idle := longestSleep(c.opts.Idle, c.notifications.Channel())
	if t.Paused {
		return idle, false, nil
	}
	if c.opts.Drain {
		s, err := c.queue.Stats(ctx)
		if err != nil || s.Ready+s.Scheduled+s.Leased == 0 {
			return 0, err == nil, err
		}
		idle = min(idle, drainIdle)
	}
	wait = min(until(t.NextDue, t.Now, idle), until(t.NextLapse, t.Now, idle))
	return max(wait, shortWait), false, nil
}

// reclaim returns how many jobs it returned or buried.
func (c *consumer) reclaim(ctx context.Context) (int, error) {
	r, err := c.queue.Reclaim(ctx)
	c.dead.Add(int64(r.Buried))
	if r.Buried > 0 {
		err = errors.Join(err, c.trimDead(ctx))
	}
	return r.Returned + r.Buried, err
}

const (
	// shortWait follows a take that found nothing although a job was due: two clocks differ a little.
	shortWait = 100 * time.Microsecond
	// drainIdle is how often a draining consumer checks whether other workers have finished their jobs: no
	// notification reports that.
	drainIdle = 50 * time.Millisecond
)

// stopWaiting removes the consumer from the waiters. If it is not among them any more, a notification was sent to
// it, and the promote notifies the next waiter instead. This is only a hint: a failed call is not repeated.
func (c *consumer) stopWaiting(work context.Context) {
	if c.channel == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), time.Second)
	defer cancel()
	removed, err := c.queue.client.ZRem(ctx, c.queue.keys.Wake, c.channel).Result()
	if err == nil && removed == 0 {
		_, _ = c.queue.promoteStep(ctx, 1, "", 0)
	}
}

// isPermanent reports whether a retry would fail in the same way.
func isPermanent(err error) bool {
	for _, permanent := range []error{
		lua.ErrExecutedInPart, lua.ErrBadReply, lua.ErrOutOfRange, lua.ErrNoGuard, redis.ErrClosed,
	} {
		if errors.Is(err, permanent) {
			return true
		}
	}
	return false
}
