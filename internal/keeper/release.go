package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Release ends the lease and releases it at the server, under a Detached context. A Release that is called while
// another is under way waits for it and returns the same error. After a Release that returned nil or an error that
// matches Causes.Lost (the lease was over before), every later Release returns the same. After any other error Release
// can be called again.
func (l *Entry) Release(ctx context.Context) error {
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
	r, first := l.joinRelease()
	if !first {
		if leave, ok := ctx.Value(Waits{}).(func()); ok {
			leave()
		}
		<-r.over
		return r.err
	}
	r.err = l.failedRelease(l.releaseAtServer(ctx, lost))
	close(r.over)
	switch {
	case r.err == nil:
		l.holder.Ended(l.keeper.causes.Released, held)
	case !l.lost(lost) && l.lost(r.err): // otherwise End has reported the loss
		l.holder.Ended(r.err, held)
	}
	return r.err
}

// lost reports whether err says that the lease was over before its release.
func (l *Entry) lost(err error) bool { return errors.Is(err, l.keeper.causes.Lost) }

// Waits is the context key of a func() that a Release calls before it waits for another Release of its lease. A round
// trip of several releases, which waits for the call of each, must not wait for that one.
type Waits struct{}

// failedRelease returns the error of a Release. It names the cure if the server may still have the lease.
func (l *Entry) failedRelease(err error) error {
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

// release is a Release that is under way, or the last one.
type release struct {
	over chan struct{} // closed when err is set
	err  error
}

// joinRelease returns the Release that is under way or whose result is final. If there is none, it returns a new one,
// and the caller must perform it.
func (l *Entry) joinRelease() (r *release, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.release == nil; first {
		l.release = &release{over: make(chan struct{})}
	}
	return l.release, first
}

// releaseAtServer releases the lease at the server. lost is why it was over before by the local clocks, or nil.
func (l *Entry) releaseAtServer(ctx context.Context, lost error) error {
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
		l.released, l.release = false, nil // it can be tried again
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
func (l *Entry) Run(ctx context.Context, f func(context.Context) error) (err error) {
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

// Detached is the context of a call that cleans up: it has the values of the caller's context, without its end. The
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

// Value returns the caller's value, and for send.ResentKey the context itself.
func (d *Detached) Value(key any) any {
	if key == (send.ResentKey{}) {
		return d
	}
	return d.values.Value(key)
}

// NoteResent is called when the reply answers a retry of the call.
func (d *Detached) NoteResent() { d.resent = true }
