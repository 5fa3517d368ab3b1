package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
)

// wait returns the lease when it has the lock; granted is how long a lease it is
// handed.
func (l *Lease) wait(ctx context.Context, granted time.Duration) (*Lease, error) {
	begun := time.Now()
	channel := l.channel()
	var held *HeldError
	if !l.locker.ears.Listening(channel) {
		// Most locks are free: no connection is opened for those.
		r, err := l.try(ctx)
		if err != nil {
			return nil, err
		}
		if r.Acquired {
			return l.taken(begun, r.Remaining)
		}
		held = l.held(r)
	}
	if err := l.locker.ears.Join(ctx, channel); err != nil {
		l.locker.ears.Leave(channel)
		return l.poll(ctx, begun, held)
	}
	if l.locker.ears.Tagged() {
		defer l.locker.ears.Leave(channel)
	} // else it is the channel of the process, which stays
	return l.stand(ctx, begun, channel, l.kind.entry(l, granted, channel), held)
}

// channel is where this process is told of the lock.
func (l *Lease) channel() string {
	if l.locker.ears.Tagged() {
		return l.keys.Channel(l.locker.process)
	}
	return l.locker.inbox
}

// stand waits in the queue; held is what a first attempt found, nil for none.
func (l *Lease) stand(ctx context.Context, begun time.Time, channel, entry string, held *HeldError) (*Lease, error) {
	h := l.locker.lockHub
	w := h.queueUp(l, channel)
	defer h.leaveLine(w)
	// Whoever is not on one server alone, or wants replicas, asks before it enters.
	strict := l.locker.ears.Tagged() || l.locker.opts.Replicas > 0
	for {
		if l.locker.ears.Tagged() {
			_ = l.locker.ears.Follow(ctx, channel) // else it is told by way of another node, and not counted
		}
		w.asked = time.Now()
		r, err := l.acquire(ctx, entry)
		switch {
		case err == nil && r.Acquired:
			if w.told && r.Remaining == 0 { // it was not granted after all
				h.standing(w, true)
			}
			return l.took(begun, l.ends(w.asked, r.Remaining))
		case err == nil:
			held = l.held(r)
		case held != nil && ctx.Err() != nil: // the end came in the middle of a look
			return nil, errors.Join(held, err)
		default:
			return nil, err
		}
		w.server, w.fence = r.Now, r.Fence
		h.watch(w.line, w.asked, held.Remaining+time.Millisecond)
		joined := r.Place == gen.LockAcquirePlaceJoined
		h.standing(w, joined)
		if joined {
			l.locker.observe(Event{Kind: EventQueued, Name: l.name, Waiting: int(r.Waiting)})
		}
		again, lease, err := w.await(ctx, begun, strict)
		if !again {
			if err == nil {
				return lease, nil
			}
			return nil, errors.Join(held, err, l.undo(ctx, entry))
		}
	}
}

// await returns when the lease is granted, when it is time to look, or when ctx is
// over.
func (w *lockWaiter) await(ctx context.Context, begun time.Time, strict bool) (again bool, lease *Lease, err error) {
	l := w.lease
	select {
	case g := <-w.grants:
		w.told = true
		deadline := w.deadline(g)
		// A message may come late, after a look that found the lock another's.
		if strict || g.fence < w.fence || !time.Now().Before(deadline) {
			return true, nil, nil
		}
		l.fence = g.fence
		lease, err := l.took(begun, deadline)
		return false, lease, err
	case <-w.wake:
		w.told = false
		return true, nil, nil
	case <-ctx.Done():
		return false, nil, context.Cause(ctx)
	case <-l.locker.closed:
		return false, nil, ErrClosed
	}
}

// poll looks from time to time, where nothing can be heard.
func (l *Lease) poll(ctx context.Context, begun time.Time, held *HeldError) (*Lease, error) {
	o := &l.locker.opts
	for {
		select {
		case <-l.locker.closed:
			return nil, errors.Join(asError(held), ErrClosed)
		default:
		}
		if held != nil {
			// Jitter, so that waiters do not look in step.
			wait := min(held.Remaining, o.Poll/2+rand.N(o.Poll/2+1))
			clock.Sleep(ctx, max(wait, time.Millisecond))
			if ctx.Err() != nil {
				return nil, errors.Join(held, context.Cause(ctx))
			}
		}
		asked := time.Now()
		r, err := l.try(ctx)
		switch {
		case err == nil && r.Acquired:
			return l.took(begun, l.ends(asked, r.Remaining))
		case err == nil:
			held = l.held(r)
		case held != nil && ctx.Err() != nil:
			return nil, errors.Join(held, err)
		default:
			return nil, err
		}
	}
}

// asError keeps a nil *HeldError a nil error.
func asError(held *HeldError) error {
	if held == nil {
		return nil
	}
	return held
}

// ends is the end of a lease that was acquired by a call sent at asked, and of which
// that much remains; 0 is all of it.
func (l *Lease) ends(asked time.Time, remaining time.Duration) time.Time {
	if remaining == 0 {
		remaining = l.locker.opts.TTL
	}
	return asked.Add(remaining - drift(remaining))
}

// taken starts a lease that was acquired by a call sent at start.
func (l *Lease) taken(start time.Time, remaining time.Duration) (*Lease, error) {
	return l.took(start, l.ends(start, remaining))
}

// took starts the lease.
func (l *Lease) took(begun, deadline time.Time) (*Lease, error) {
	l.begin(deadline)
	l.locker.observe(Event{Kind: EventAcquired, Name: l.name, Wait: time.Since(begun)})
	return l, nil
}
