package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/resent"
	"github.com/luatomic/luatomic/lua"
)

// Release ends the lease and gives it back at the server, under a Detached context. A second Release is nil. An error
// that matches Causes.Lost says that the lease was over before; after another one Release can be called again.
func (l *Lease) Release(ctx context.Context) error {
	mono, wall := l.keeper.clocks()
	l.mu.Lock()
	lost := l.errAt(mono, wall)
	again := l.released
	l.released = true
	held := mono.Sub(l.begun)
	l.mu.Unlock()
	causes := &l.keeper.causes
	if again && !errors.Is(lost, causes.Lost) {
		return nil
	}
	if errors.Is(lost, causes.Lost) {
		l.End(lost)
	} else {
		l.End(causes.Released)
	}
	if err := l.giveBack(ctx, lost); err != nil {
		return fmt.Errorf("luatomic: release %q: %w", l.terms.Name, err)
	}
	l.holder.Ended(causes.Released, held)
	return nil
}

// giveBack gives the lease back at the server; lost is why it was over before, by the local clock.
func (l *Lease) giveBack(ctx context.Context, lost error) error {
	last := Detach(ctx)
	err := l.holder.Release(last)
	revoked := l.keeper.causes.Revoked
	taken := revoked != nil && errors.Is(err, revoked)
	before := errors.Is(lost, l.keeper.causes.Lost)
	l.mu.Lock()
	if (last.resent || l.unsure) && !before && !taken && errors.Is(err, l.keeper.causes.Lost) {
		err = nil // an earlier attempt released it, and its reply was lost
	}
	if err != nil {
		l.released = false // so that it can be tried again
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
	case errors.Is(err, l.keeper.causes.Lost):
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
		case lost != nil:
			released = nil // it would repeat the loss
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
	if key == (resent.Key{}) {
		return d
	}
	return d.values.Value(key)
}

// NoteResent is called when the reply answers a repeat of a call.
func (d *Detached) NoteResent() { d.resent = true }
