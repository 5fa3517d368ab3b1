package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Release ends the lease and gives it back at the server, under a Detached context. One that is called while another is
// under way waits for it and returns the same; so does one after a Release that returned nil, or an error that matches
// Causes.Lost, which says that the lease was over before. After another error Release can be called again.
func (l *Lease) Release(ctx context.Context) error {
	mono, wall := l.keeper.clocks()
	l.mu.Lock()
	lost := l.errAt(mono, wall)
	l.released = true
	held := mono.Sub(l.begun)
	l.mu.Unlock()
	if l.lost(lost) {
		l.End(lost)
	} else {
		l.End(l.keeper.causes.Released)
	}
	r, first := l.theRelease()
	if !first {
		if leave, ok := ctx.Value(Waits{}).(func()); ok {
			leave()
		}
		<-r.over
		return r.err
	}
	r.err = l.failedRelease(l.giveBack(ctx, lost))
	close(r.over)
	switch {
	case r.err == nil:
		l.holder.Ended(l.keeper.causes.Released, held)
	case !l.lost(lost) && l.lost(r.err): // else End has reported it
		l.holder.Ended(r.err, held)
	}
	return r.err
}

// lost reports whether err says that the lease was over before its release.
func (l *Lease) lost(err error) bool { return errors.Is(err, l.keeper.causes.Lost) }

// Waits is the context key of a func() that a Release calls before it waits for another one of its lease: what waits
// for the call of this one, such as a round trip of several, must not wait for that.
type Waits struct{}

// failedRelease is the error of a Release: with the cure, where the server may have the lease still.
func (l *Lease) failedRelease(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("luatomic: release %q: %w", l.terms.Name, err)
	ends := Left(l.Deadline()).Round(time.Millisecond)
	if ends > 0 && (errors.Is(err, lua.ErrOutcomeUnknown) || errors.Is(err, lua.ErrNotExecuted)) {
		err = fmt.Errorf("%w; call Release again, or the lease ends in %v", err, ends)
	}
	return err
}

// returning is a Release that is under way, or was the last one.
type returning struct {
	over chan struct{} // closed when err is set
	err  error
}

// theRelease is the Release that is under way or has an outcome that stays, or else a new one, which its caller makes.
func (l *Lease) theRelease() (r *returning, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.returning == nil; first {
		l.returning = &returning{over: make(chan struct{})}
	}
	return l.returning, first
}

// giveBack gives the lease back at the server; lost is why it was over before, by the local clock.
func (l *Lease) giveBack(ctx context.Context, lost error) error {
	last := Detach(ctx)
	err := l.holder.Release(last)
	revoked := l.keeper.causes.Revoked
	taken := revoked != nil && errors.Is(err, revoked)
	before := l.lost(lost)
	l.mu.Lock()
	if (last.resent || l.unsure) && !before && !taken && l.lost(err) {
		err = nil // an earlier attempt released it, and its reply was lost
	}
	if err != nil && !l.lost(err) {
		l.released, l.returning = false, nil // so that it can be tried again
		l.unsure = l.unsure || errors.Is(err, lua.ErrOutcomeUnknown)
	}
	l.mu.Unlock()
	switch {
	case !before:
		return err
	case err == nil:
		return lost
	case taken && errors.Is(lost, revoked):
		return err // both say the same
	case l.lost(err):
		return fmt.Errorf("%w; %w", lost, err)
	}
	return err
}

// Run runs f under a context of Keep and releases the lease, also when f panics. The error joins f's own, the loss
// and the release's. A lease that f has released is no loss.
func (l *Lease) Run(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		lost := l.Err()
		released := l.Release(ctx)
		switch {
		case errors.Is(lost, l.keeper.causes.Released):
			lost = nil // f did so
		case lost != nil && l.lost(released):
			released = nil // it repeats the loss
		}
		err = errors.Join(err, lost, released)
	}()
	l.use() // f may go on for a while after the end of ctx
	return f(l.Keep(ctx))
}

// Detached is the context of a call that cleans up: it has the values of the caller's context and not its end. The
// runtime bounds a call without a deadline by 10 s.
type Detached struct {
	values context.Context
	resent bool
}

// Detach returns the context of a call that goes on when ctx has ended.
func Detach(ctx context.Context) *Detached { return &Detached{values: ctx} }

// Deadline is none.
func (*Detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done never ends.
func (*Detached) Done() <-chan struct{} { return nil }

// Err is nil.
func (*Detached) Err() error { return nil }

// Value is the caller's, and for resent.Key the context itself.
func (d *Detached) Value(key any) any {
	if key == (send.ResentKey{}) {
		return d
	}
	return d.values.Value(key)
}

// NoteResent is called when the reply answers a repeat of a call.
func (d *Detached) NoteResent() { d.resent = true }
