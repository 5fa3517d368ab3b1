package lease

import (
	"context"
	"time"
)

// keptContext is a context that ends with its lease. Its Err reads the clock: a process that was paused past its
// lease learns of it at the first check, before any timer has run.
type keptContext struct {
	context.Context // ended by cancel
	cancel          context.CancelCauseFunc
	lease           *Lease

	// Of the first context of a lease alone.
	timer *time.Timer             // fires when the lease may be over
	all   context.Context         // ends with the lease, for later contexts; nil while there are none
	die   context.CancelCauseFunc // ends all
	next  time.Time               // when to renew; guarded by the keeper's lock
	index int                     // in the keeper's heap, -1 while not in it; guarded by the keeper's lock
}

// Err is nil while the lease holds.
func (k *keptContext) Err() error {
	if k.Context.Err() == nil {
		if over := k.lease.Err(); over != nil {
			k.lease.End(over)
			k.cancel(over) // it may not be the lease's first context
		}
	}
	return k.Context.Err()
}

// Keep has the keeper renew the lease three times in its TTL until it ends, and returns a context that ends with ctx
// or with the lease, with its cause. The end of ctx does not release the lease. A second Keep returns a context of
// its own.
func (l *Lease) Keep(ctx context.Context) context.Context {
	inner, cancel := context.WithCancelCause(ctx)
	k := &keptContext{Context: inner, cancel: cancel, lease: l, index: -1}
	l.mu.Lock()
	over := l.errAt(time.Now())
	first := l.kept == nil
	if over == nil && first {
		l.kept = k
		k.timer = time.AfterFunc(time.Until(l.mayEnd()), func() { l.expire(k) })
	}
	left := time.Until(l.deadline)
	l.mu.Unlock()
	switch {
	case over != nil:
		cancel(over)
	case first:
		l.keeper.add(k, left/3)
	default:
		l.follow(k)
	}
	return k
}

// follow ends k with the lease, of which it is not the first context: that one may have ended before.
func (l *Lease) follow(k *keptContext) {
	l.mu.Lock()
	first, over := l.kept, l.over
	if first.die == nil {
		first.all, first.die = context.WithCancelCause(context.Background())
	}
	all := first.all
	l.mu.Unlock()
	if over != nil {
		k.cancel(over)
		return
	}
	stop := context.AfterFunc(all, func() { k.cancel(context.Cause(all)) })
	context.AfterFunc(k.Context, func() { stop() })
}

// end ends the first context of a lease and those that follow it.
func (k *keptContext) end(why error) {
	k.timer.Stop()
	k.cancel(why)
	k.lease.mu.Lock()
	die := k.die
	k.lease.mu.Unlock()
	if die != nil {
		die(why)
	}
}

// expire ends the lease at its deadline, unless that has moved.
func (l *Lease) expire(k *keptContext) {
	l.mu.Lock()
	over := l.errAt(time.Now())
	if over == nil {
		k.timer.Reset(time.Until(l.mayEnd()))
	}
	l.mu.Unlock()
	if over != nil {
		l.End(over)
	}
}
