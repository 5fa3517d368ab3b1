package keeper

import (
	"context"
	"sync"
	"time"
)

// keptContext is a context that ends with its lease. Its Err reads the clocks. So after a pause of the process that
// outlasted the lease, the first check reports the end, before any timer has run.
type keptContext struct {
	context.Context // ended by cancel
	cancel          context.CancelCauseFunc
	lease           *Entry

	// The fields below are set in the first context of a lease only.
	timer *time.Timer             // fires when the lease may be over
	all   context.Context         // ends with the lease, for later contexts; nil while there are none
	die   context.CancelCauseFunc // ends all
	// server renews the lease; nil while none does. Guarded by the lock of renewals, like next and index.
	server *server
	next   time.Time // when to renew
	index  int       // in the server's heap
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

// Of is the context key of the holder in a context of Keep, if the holder is an H.
type Of[H Holder] struct{}

func (Of[H]) matches(h Holder) bool {
	_, ok := h.(H)
	return ok
}

// Value returns the value of the context given to Keep, and for an Of the holder.
func (k *keptContext) Value(key any) any {
	if of, ok := key.(interface{ matches(Holder) bool }); ok && of.matches(k.lease.holder) {
		return k.lease.holder
	}
	return k.Context.Value(key)
}

// users are the contexts for which a lease is renewed.
type users struct {
	mu sync.Mutex // held while the renewal begins or ends, too
	n  int
}

// KeepWhile is Keep, but the lease is renewed only until the last context that was given to KeepWhile has ended. Then
// the lease expires at its deadline.
func (l *Entry) KeepWhile(ctx context.Context) context.Context {
	l.users.mu.Lock()
	defer l.users.mu.Unlock()
	l.mu.Lock()
	before := l.kept
	l.mu.Unlock()
	k := l.Keep(ctx)
	if l.users.n++; l.users.n == 1 && before != nil {
		renewals.add(before, time.Now()) // the contexts of earlier calls have ended
	}
	context.AfterFunc(k, l.leave)
	return k
}

// leave removes one user of the lease, and stops the renewal with the last one.
func (l *Entry) leave() {
	l.users.mu.Lock()
	defer l.users.mu.Unlock()
	l.mu.Lock()
	kept := l.kept
	l.mu.Unlock()
	if l.users.n--; l.users.n == 0 && kept != nil {
		renewals.remove(kept)
	}
}

// use adds a user that never leaves: the lease is renewed until it ends, even after all contexts of KeepWhile.
func (l *Entry) use() {
	l.users.mu.Lock()
	defer l.users.mu.Unlock()
	l.users.n++
}

// Keep renews the lease three times in its TTL until it ends. It returns a context that ends with ctx, or with the
// lease and its cause. The end of ctx does not release the lease. A second Keep returns another context. A lease that
// is shorter than its TTL, such as one that was handed over, is renewed immediately.
func (l *Entry) Keep(ctx context.Context) context.Context {
	inner, cancel := context.WithCancelCause(ctx)
	k := &keptContext{Context: inner, cancel: cancel, lease: l}
	mono, wall := l.keeper.clocks()
	l.mu.Lock()
	over := l.errAt(mono, wall)
	first := l.kept == nil
	left := left(l.deadline, mono, wall)
	if over == nil && first {
		l.kept = k
		k.timer = time.AfterFunc(l.mayEnd(), func() { l.expire(k) })
	}
	l.mu.Unlock()
	switch {
	case over != nil:
		cancel(over)
	case !first:
		l.follow(k)
	case left < l.terms.TTL/2:
		renewals.add(k, mono)
	default:
		renewals.add(k, mono.Add(left/3))
	}
	return k
}

// Kept returns the first context of Keep.
func (l *Entry) Kept() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// Leave ends the first context of Keep. The lease is renewed as before.
func (l *Entry) Leave() {
	l.mu.Lock()
	k := l.kept
	l.mu.Unlock()
	if k != nil {
		k.cancel(nil)
	}
}

// Forget stops the renewal of the lease, and no clock ends it any more: its holder has released it by another call. The
// contexts of Keep end with those that were given to it, or by Leave or End.
func (l *Entry) Forget() {
	l.mu.Lock()
	l.forgotten = true
	k := l.kept
	l.mu.Unlock()
	if k != nil {
		k.timer.Stop()
		renewals.remove(k)
	}
}

// follow ends k with the lease. k is not the first context of the lease, which may have ended before.
func (l *Entry) follow(k *keptContext) {
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
func (l *Entry) expire(k *keptContext) {
	l.mu.Lock()
	over := l.errAt(l.keeper.clocks())
	if over == nil && !l.forgotten {
		k.timer.Reset(l.mayEnd())
	}
	l.mu.Unlock()
	if over != nil {
		l.End(over)
	}
}
