package lease

import (
	"context"
	"sync"
	"time"
)

// keptContext is a context that ends with its lease. Its Err reads the clocks: a process that was paused past its
// lease learns of it at the first check, before any timer has run.
type keptContext struct {
	context.Context // ended by cancel
	cancel          context.CancelCauseFunc
	lease           *Lease

	// Of the first context of a lease alone.
	timer *time.Timer             // fires when the lease may be over
	all   context.Context         // ends with the lease, for later contexts; nil while there are none
	die   context.CancelCauseFunc // ends all
	// renews it, nil while none does; guarded by the lock of renewals, like next and index
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

// Of is the key under which a context of Keep has its holder, where that is an H.
type Of[H Holder] struct{}

func (Of[H]) matches(h Holder) bool {
	_, ok := h.(H)
	return ok
}

// Value is that of the context given to Keep, and for an Of the holder.
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

// KeepWhile is Keep as long as a context that was given to it lives: when the last of them has ended, the lease is
// renewed no longer, and runs out.
func (l *Lease) KeepWhile(ctx context.Context) context.Context {
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

// leave ends the renewal with the last context that it is for.
func (l *Lease) leave() {
	l.users.mu.Lock()
	defer l.users.mu.Unlock()
	l.mu.Lock()
	kept := l.kept
	l.mu.Unlock()
	if l.users.n--; l.users.n == 0 && kept != nil {
		renewals.remove(kept)
	}
}

// use has the lease renewed until it ends, whatever the contexts of KeepWhile do.
func (l *Lease) use() {
	l.users.mu.Lock()
	defer l.users.mu.Unlock()
	l.users.n++
}

// Keep has the keeper renew the lease three times in its TTL until it ends, and returns a context that ends with ctx
// or with the lease, with its cause. The end of ctx does not release the lease. A second Keep returns a context of
// its own. A lease that is shorter than its TTL, such as one that was handed over, is renewed immediately.
func (l *Lease) Keep(ctx context.Context) context.Context {
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

// Kept is the first context of Keep.
func (l *Lease) Kept() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// Leave ends the first context of Keep. The lease is renewed as before.
func (l *Lease) Leave() {
	l.mu.Lock()
	k := l.kept
	l.mu.Unlock()
	if k != nil {
		k.cancel(nil)
	}
}

// Forget renews the lease no more, and has no clock end it: its holder has given it back by a call of its own. The
// contexts of Keep end as those that were given to it, or by Leave or End.
func (l *Lease) Forget() {
	l.mu.Lock()
	l.forgotten = true
	k := l.kept
	l.mu.Unlock()
	if k != nil {
		k.timer.Stop()
		renewals.remove(k)
	}
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
	over := l.errAt(l.keeper.clocks())
	if over == nil && !l.forgotten {
		k.timer.Reset(l.mayEnd())
	}
	l.mu.Unlock()
	if over != nil {
		l.End(over)
	}
}
