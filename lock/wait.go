package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
)

// wait returns when the lock is granted to r or ctx ends. A lease that is handed over lasts for claim.
func (h *hub) wait(ctx context.Context, r *request, claim time.Duration) (grant, error) {
	channel := h.channel(r)
	var held *HeldError
	if !h.subscriptions.Listening(channel) {
		// Most locks are free: no connection is opened for those.
		g, by, err := r.try(ctx)
		if err != nil || by == nil {
			return g, err
		}
		held = by
	}
	if err := h.subscriptions.Join(ctx, channel); err != nil {
		h.subscriptions.Leave(channel)
		return h.poll(ctx, r, held)
	}
	if h.subscriptions.Tagged() {
		defer h.subscriptions.Leave(channel)
	} // else it is the channel of the process, which stays
	return h.queue(ctx, r, channel, r.scripts.entry(r, claim, channel), held)
}

// channel is where this process is notified of the lock.
func (h *hub) channel(r *request) string {
	if h.subscriptions.Tagged() {
		return r.keys.Channel(h.tokens.Process())
	}
	return h.inbox
}

// queue waits in the queue of the lock; held is what a first attempt found, nil for none.
func (h *hub) queue(ctx context.Context, r *request, channel, entry string, held *HeldError) (grant, error) {
	w := h.waiters.add(r, channel)
	defer h.waiters.remove(w)
	for {
		if h.subscriptions.Tagged() {
			_ = h.subscriptions.Follow(ctx, channel) // else another node forwards the message, and does not count it
		}
		w.asked = time.Now()
		result, err := r.attempt(ctx, entry)
		switch {
		case err == nil && result.Acquired:
			if w.notified && result.Remaining == 0 { // the message was of an older grant
				h.waiters.queued(w, true)
			}
			return r.granted(w.asked, result), nil
		case err == nil:
			held = r.heldBy(result)
		case held != nil && ctx.Err() != nil: // ctx ended during the attempt
			return grant{}, errors.Join(held, err)
		default:
			return grant{}, err
		}
		h.queued(w, result)
		g, again, err := h.await(ctx, w)
		switch {
		case again:
		case err == nil:
			return g, nil
		default:
			return grant{}, errors.Join(held, err, r.withdraw(ctx, entry))
		}
	}
}

// queued notes what an attempt that found the lock held says.
func (h *hub) queued(w *waiter, result gen.LockAcquireResult) {
	w.server, w.fence = result.Now, result.Fence
	h.waiters.recheckAfter(w, result.Remaining+time.Millisecond)
	joined := result.Place == gen.LockAcquirePlaceJoined
	h.waiters.queued(w, joined)
	if joined {
		w.request.opts.observe(Event{Kind: EventQueued, Name: w.request.name, Waiting: int(result.Waiting)})
	}
}

// await returns when the lock is granted, when it is time for another attempt, or when ctx ends.
func (h *hub) await(ctx context.Context, w *waiter) (g grant, again bool, err error) {
	select {
	case m := <-w.grants:
		w.notified = true
		g = grant{m.fence, w.deadline(m)}
		// A message can be late: after an attempt that found another holder.
		valid := m.fence >= w.fence && time.Now().Before(g.deadline)
		return g, !valid || h.confirms(w.request), nil
	case <-w.wake:
		w.notified = false
		return grant{}, true, nil
	case <-ctx.Done():
		return grant{}, false, context.Cause(ctx)
	case <-h.closed:
		return grant{}, false, ErrClosed
	}
}

// confirms reports whether a grant counts only after another attempt: on a cluster or ring, and with Replicas.
func (h *hub) confirms(r *request) bool { return h.subscriptions.Tagged() || r.opts.Replicas > 0 }

// poll makes an attempt from time to time, where the server does not allow subscribing.
func (h *hub) poll(ctx context.Context, r *request, held *HeldError) (grant, error) {
	for {
		select {
		case <-h.closed:
			return grant{}, errors.Join(asError(held), ErrClosed)
		default:
		}
		if held != nil {
			clock.Sleep(ctx, r.pollDelay(held))
			if ctx.Err() != nil {
				return grant{}, errors.Join(held, context.Cause(ctx))
			}
		}
		g, by, err := r.try(ctx)
		switch {
		case err == nil && by == nil:
			return g, nil
		case err == nil:
			held = by
		case held != nil && ctx.Err() != nil:
			return grant{}, errors.Join(held, err)
		default:
			return grant{}, err
		}
	}
}

// pollDelay is of random length, so that waiters do not poll in step.
func (r *request) pollDelay(held *HeldError) time.Duration {
	poll := r.opts.Poll
	return max(min(held.Remaining, poll/2+rand.N(poll/2+1)), time.Millisecond)
}

// asError keeps a nil *HeldError a nil error.
func asError(held *HeldError) error {
	if held == nil {
		return nil
	}
	return held
}
