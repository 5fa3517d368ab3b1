package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
)

// wait returns when the lock is granted to r, when ctx ends, or when the hub is closed. A lease that is handed over
// lasts for Claim.
func (h *hub) wait(ctx context.Context, r *request) (grant, error) {
	channel := r.channel + h.tokens.Process()
	var held *HeldError
	if !h.subscriptions.Subscribed(channel) {
		// Most locks are free, and need no connection.
		g, by, err := r.try(ctx)
		if err != nil || by == nil {
			return g, err
		}
		held = by
	}
	for {
		failed := h.join(ctx, channel)
		if failed == nil {
			break
		}
		g, by, err := h.poll(ctx, r, held, failed)
		if err != nil || by == nil {
			return g, err
		}
		held = by
	}
	if h.subscriptions.Tagged() {
		defer h.subscriptions.Unsubscribe(channel)
	} // else it is the channel of the process, which stays
	return h.queue(ctx, r, channel, held)
}

// join subscribes to the channel. It returns when ctx ends, also while the server does not answer.
func (h *hub) join(ctx context.Context, channel string) error {
	joined := make(chan error, 1)
	go func() { joined <- h.subscriptions.Subscribe(ctx, channel) }()
	select {
	case err := <-joined:
		if err != nil {
			h.subscriptions.Unsubscribe(channel)
		}
		return err
	case <-ctx.Done():
	}
	go func() {
		<-joined
		h.subscriptions.Unsubscribe(channel)
	}()
	return endOf(ctx)
}

// endOf returns why ctx has ended. After Close that is ErrClosed alone, because the caller's context has not ended.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); cause == ErrClosed {
		return cause
	}
	return clock.EndOf(ctx)
}

// queue waits in the queue of the lock. held is what a first attempt found, or nil if there was none.
func (h *hub) queue(ctx context.Context, r *request, channel string, held *HeldError) (grant, error) {
	w := h.waiters.add(r, channel)
	defer h.waiters.remove(w)
	a := attempt{r.scripts.entry(r, min(r.opts.Claim, r.opts.TTL)), h.fresh(w)}
	for {
		if h.subscriptions.Tagged() {
			_ = h.subscriptions.Follow(ctx, channel) // else another node forwards the message, and does not count it
		}
		asked, result, err := r.attempt(ctx, a)
		w.asked = asked
		switch {
		case err == nil && result.Acquired:
			// the message was about an older grant
			if w.granted != 0 && w.granted != result.Fence && result.Remaining == 0 {
				h.waiters.queued(w, true)
			}
			return r.granted(w.asked, result), nil
		case err == nil:
			held = h.heldBy(w, result)
		case held != nil && ctx.Err() != nil: // ctx ended during the attempt
			return grant{}, errors.Join(held, err)
		default:
			return grant{}, err
		}
		h.queued(w, result)
		a.fresh = lockscript.AcquireFreshAgain
		g, again, err := h.await(ctx, w)
		switch {
		case again:
		case err == nil:
			return g, nil
		default:
			return grant{}, errors.Join(held, err, r.withdraw(ctx, a.entry))
		}
	}
}

// heldBy returns the error of an attempt that found the lock held. If the attempt did not ask for the holder, the error
// has what another waiter of this process knows.
func (h *hub) heldBy(w *waiter, result lockscript.AcquireResult) *HeldError {
	held := w.request.heldBy(result)
	if result.Now == 0 {
		held.Holder, held.Remaining = h.waiters.holder(w)
	}
	return held
}

// fresh says what the first attempt of the waiter asks for when it joins the queue. It asks for the holder and the
// remaining time of the lease, unless another waiter of this process knows them and makes the next attempt in time. It
// asks for the clock, unless the clock is known.
func (h *hub) fresh(w *waiter) lockscript.AcquireFresh {
	if h.subscriptions.Tagged() || !w.group.clock.known() || !h.waiters.informed(w) {
		return lockscript.AcquireFreshAsks
	}
	return lockscript.AcquireFreshKnows
}

// serverClock is what the waiters of a process know about the clock of a server.
type serverClock struct {
	mu   sync.Mutex
	last serverReading
}

// serverReading is the server's clock in us, from the reply to a call that was sent at asked.
type serverReading struct {
	asked time.Time
	us    int64
}

// clockAge is how long a clock reading is used. Clocks run at different speeds, so an old reading is wrong.
const clockAge = 10 * time.Second

func (c *serverClock) known() bool { return time.Since(c.reading().asked) < clockAge }

// set stores a reading, unless it is older than the last one.
func (c *serverClock) set(r serverReading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.asked.After(c.last.asked) {
		c.last = r
	}
}

func (c *serverClock) reading() serverReading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// queued records what an attempt reports that found the lock held.
func (h *hub) queued(w *waiter, result lockscript.AcquireResult) {
	w.fence = result.Fence
	if result.Now != 0 {
		w.group.clock.set(serverReading{w.asked, result.Now})
		h.waiters.recheckAfter(w, result.Remaining+time.Millisecond, result.Holder)
	} else {
		h.waiters.recheckSoon(w)
	}
	joined := result.Place == lockscript.AcquirePlaceJoined
	h.waiters.queued(w, joined)
	if joined {
		w.request.opts.observe(Event{Kind: EventQueued, Name: w.request.name, Waiting: int(result.Waiting)})
	}
}

// await returns when the lock is granted, when another attempt is due, or when ctx ends.
func (h *hub) await(ctx context.Context, w *waiter) (g grant, again bool, err error) {
	select {
	case m := <-w.grants:
		w.granted = m.fence
		g = grant{fence: m.fence, deadline: m.deadline(w.group.clock.reading()), claim: true}
		// A message can be late: it can come after an attempt that found another holder.
		valid := m.fence >= w.fence && keeper.Left(g.deadline) > 0
		return g, !valid || h.confirms(w.request), nil
	case <-w.wake:
		w.granted = 0
		return grant{}, true, nil
	case <-ctx.Done():
		return grant{}, false, endOf(ctx)
	}
}

// confirms reports whether a grant counts only after another attempt: on a cluster or ring, and with Replicas.
func (h *hub) confirms(r *request) bool { return h.subscriptions.Tagged() || r.opts.Replicas > 0 }

// refusedWait is how long a waiter polls after the server has refused to subscribe it, before it asks again.
const refusedWait = 5 * time.Second

// rejoin is when to subscribe again after that error: later after a refusal, soon after any other error. A waiter that
// polls has no place in the queue, and its attempts overtake no waiter that has one.
func rejoin(failed error) time.Time {
	if redis.HasErrorPrefix(failed, "NOPERM") {
		return time.Now().Add(refusedWait)
	}
	return time.Now()
}

// poll makes attempts while the waiter is not subscribed, because of the error failed, until it is time to subscribe
// again. It returns what request.try returns.
func (h *hub) poll(ctx context.Context, r *request, held *HeldError, failed error) (grant, *HeldError, error) {
	for until := rejoin(failed); ; {
		if held != nil {
			clock.Sleep(ctx, max(min(held.Remaining, r.opts.pollDelay()), time.Millisecond))
		}
		if ctx.Err() != nil {
			return grant{}, nil, errors.Join(asError(held), endOf(ctx))
		}
		g, by, err := r.try(ctx)
		switch {
		case err != nil && held != nil && ctx.Err() != nil:
			return grant{}, nil, errors.Join(held, err)
		case err != nil || by == nil || !time.Now().Before(until):
			return g, by, err
		}
		held = by
	}
}

// pollDelay has a random length, so that waiters do not poll at the same time.
func (o *Options) pollDelay() time.Duration {
	return max(o.Poll/2+rand.N(o.Poll/2+1), time.Millisecond)
}

// asError returns a nil error for a nil *HeldError.
func asError(held *HeldError) error {
	if held == nil {
		return nil
	}
	return held
}
