// Package lease keeps leases on behalf of the process that holds them: when a lease ends by the local clock, why it
// ended, the contexts that end with it, and its renewal together with all others. It knows no keys and no scripts: a
// Holder knows how its lease is extended and given back at the server.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// Holder is the side of a lease that knows the server. The lock, the permit and the lock on a quorum implement it.
type Holder interface {
	// Extend adds to b the call that makes the lease end ttl after it runs. After b has run, outcome is nil, or an
	// error; one that matches Causes.Lost ends the lease, after another one it is tried again.
	Extend(b *lua.Batch, ttl time.Duration) (outcome func() error)
	// Release gives the lease back. Its error matches Causes.Lost where the lease was over before.
	Release(ctx context.Context) error
	// Ended is called after a loss, and after the server has confirmed a release: why is the loss or Causes.Released.
	Ended(why error, held time.Duration)
}

// Causes are the errors with which leases of one package end.
type Causes struct {
	// Lost is matched by the error of every lease that ended before its release, MaxHold too.
	Lost error
	// MaxHold ends a lease that was held for Terms.MaxHold.
	MaxHold error
	// Released ends a lease that was released.
	Released error
}

// Terms say what a lease is on and for how long.
type Terms struct {
	// Name is what errors call it.
	Name string
	// TTL is the length that each extension gives it.
	TTL time.Duration
	// MaxHold ends it that long after it began; zero is no limit.
	MaxHold time.Duration
}

// Lease is the local state of one lease. Begin starts it; the zero value is not held. Its methods are safe for
// concurrent use after Begin.
type Lease struct {
	keeper *Keeper
	holder Holder
	terms  Terms

	mu       sync.Mutex // guards all below
	begun    time.Time
	deadline time.Time
	kept     *keptContext // the first that Keep made, nil before
	over     error        // why the lease ended, nil while it has not
	released bool         // Release was called, and has not failed
}

// Begin starts the lease, which ends at the deadline unless it is extended.
func (l *Lease) Begin(k *Keeper, h Holder, t Terms, deadline time.Time) {
	l.keeper, l.holder, l.terms = k, h, t
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun, l.deadline = time.Now(), deadline
}

// End is the local end of a lease of that length: counted from when its request was sent, and earlier by what clocks
// may differ by.
func End(sent time.Time, length time.Duration) time.Time { return sent.Add(length - Drift(length)) }

// Drift is what two clocks may differ by after d.
func Drift(d time.Duration) time.Duration { return d / 1000 }

// Deadline is the local end of the lease.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Err is nil while the lease holds by the local clock, which it reads itself, and the cause of its end after that.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errAt(time.Now())
}

func (l *Lease) errAt(now time.Time) error {
	due := !now.Before(l.deadline)
	switch {
	case l.over != nil:
		return l.over
	case l.maxHold(now), due && l.isLast():
		return fmt.Errorf("%w: %q", l.keeper.causes.MaxHold, l.terms.Name)
	case due:
		return fmt.Errorf("%w: %q was not extended in time", l.keeper.causes.Lost, l.terms.Name)
	}
	return nil
}

// maxHold reports whether the lease has lasted for MaxHold.
func (l *Lease) maxHold(now time.Time) bool {
	return l.terms.MaxHold > 0 && now.Sub(l.begun) >= l.terms.MaxHold
}

// isLast reports whether MaxHold allows no extension beyond the deadline.
func (l *Lease) isLast() bool {
	t := &l.terms
	return t.MaxHold > 0 && l.deadline.Add(Drift(t.TTL)+time.Millisecond).Sub(l.begun) >= t.MaxHold
}

// length is how long an extension makes the lease: at most what MaxHold allows.
func (l *Lease) length(now time.Time) time.Duration {
	ttl := l.terms.TTL
	if most := l.terms.MaxHold; most > 0 {
		ttl = min(ttl, max((most-now.Sub(l.begun)).Truncate(time.Millisecond), time.Millisecond))
	}
	return ttl
}

// Extend extends the lease in a round trip of its own. A lease that is over stays over.
func (l *Lease) Extend(ctx context.Context) error {
	now := time.Now()
	l.mu.Lock()
	err, ttl := l.errAt(now), l.length(now)
	l.mu.Unlock()
	if err != nil && !errors.Is(err, l.keeper.causes.Released) {
		return err
	}
	b := lua.NewBatch(l.keeper.client)
	outcome := l.holder.Extend(b, ttl)
	_ = b.Exec(ctx) // the outcome has the error
	return l.extended(now, ttl, outcome())
}

// extended applies the outcome of an extension that was sent at sent.
func (l *Lease) extended(sent time.Time, ttl time.Duration, err error) error {
	if err == nil {
		return l.setDeadline(End(sent, ttl))
	}
	if errors.Is(err, l.keeper.causes.Lost) {
		l.mu.Lock()
		released := l.released // meanwhile, so it is no loss
		l.mu.Unlock()
		if !released {
			l.End(err)
		}
	}
	return err
}

// setDeadline moves the end of the lease, unless it is lost: it stays over although the server had it longer.
func (l *Lease) setDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.over, l.keeper.causes.Lost) {
		return l.over
	}
	if t.After(l.deadline) {
		l.deadline = t
	}
	if l.kept != nil && l.over == nil {
		l.kept.timer.Reset(time.Until(l.mayEnd()))
	}
	return nil
}

// mayEnd is the earliest time at which the lease may be over.
func (l *Lease) mayEnd() time.Time {
	t := l.deadline
	if most := l.terms.MaxHold; most > 0 && l.begun.Add(most).Before(t) {
		t = l.begun.Add(most)
	}
	return t
}

// End ends the lease, with its contexts, because of why. The first cause counts.
func (l *Lease) End(why error) {
	l.mu.Lock()
	first := l.over == nil
	if first {
		l.over = why
	}
	kept, held := l.kept, time.Since(l.begun)
	l.mu.Unlock()
	if !first {
		return
	}
	if kept != nil {
		kept.end(why)
		l.keeper.remove(l)
	}
	if errors.Is(why, l.keeper.causes.Lost) {
		l.holder.Ended(why, held)
	}
}
