// Package lease keeps the leases that this process holds. It knows when a lease ends by the local clocks and why it
// ended, ends the contexts that depend on it, and renews it together with the other leases of its server. It knows
// neither keys nor scripts: a Holder extends and releases its lease at the server.
package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// Holder extends and releases one lease at the server. The lock, the permit, the lock on a quorum and the delivery of a
// queue implement it.
type Holder interface {
	// Server names the server that has the lease. Leases of one server are renewed in one round trip; a server that
	// hangs delays no lease of another one.
	Server(ctx context.Context) string
	// Extend adds to b the call that makes the lease end ttl after it runs. After b has run, outcome returns nil or an
	// error. An error that matches Causes.Lost ends the lease; after any other error the extension is tried again.
	Extend(b *lua.Batch, ttl time.Duration) (outcome func() error)
	// Release releases the lease at the server. Its error matches Causes.Lost if the lease was over before.
	Release(ctx context.Context) error
	// Ended is called after a loss, and after the server has confirmed a release. why is the loss or Causes.Released.
	Ended(why error, held time.Duration)
}

// Together is a Holder that one call extends with others of its group.
type Together interface {
	Holder
	// Group is equal for the holders that one call can extend.
	Group() any
	// ExtendAll is Extend for all of hs, which are of one group. A holder whose outcome is nil has called
	// Entry.Extended with the time at which the executed request was sent.
	ExtendAll(b *lua.Batch, hs []Together, ttl time.Duration) (outcome func(i int) error)
}

// Causes are the errors with which leases of one package end.
type Causes struct {
	// Lost is matched by the error of every lease that ended before its release, including by MaxHold.
	Lost error
	// MaxHold ends a lease that was held for Terms.MaxHold.
	MaxHold error
	// Revoked is matched by the error of a lease that was taken away. It matches Lost. It is nil if the server does not
	// report that. A repeated release that returns it released nothing.
	Revoked error
	// Released ends a lease that was released.
	Released error
}

// Terms are the name and the durations of a lease.
type Terms struct {
	// Name is the name of the lease in errors.
	Name string
	// TTL is the length that each extension gives it.
	TTL time.Duration
	// MaxHold ends the lease that long after it began; zero means no limit.
	MaxHold time.Duration
}

// Entry is the local state of one lease. Begin starts it; the zero value is not held. Its methods are safe for
// concurrent use after Begin.
type Entry struct {
	keeper *Keeper
	holder Holder
	terms  Terms
	users  users

	mu        sync.Mutex // guards all below
	begun     time.Time
	asOf      time.Time // when the last extension was sent; before one, when the lease began
	deadline  time.Time
	kept      *keptContext // the first context of Keep; nil before
	over      error        // why the lease ended; nil while it holds
	forgotten bool         // see Forget
	released  bool         // Release was called and has not failed
	release   *release     // the last Release; nil before the first, and after one that can be tried again
	unsure    bool         // a Release failed that the server may have executed
}

// Begin starts the lease, which ends at the deadline unless it is extended.
func (l *Entry) Begin(k *Keeper, h Holder, t Terms, deadline time.Time) {
	l.keeper, l.holder, l.terms = k, h, t
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = time.Now()
	l.asOf, l.deadline = l.begun, deadline
}

// End returns the local end of a lease: length after its request was sent, minus Drift.
func End(sent time.Time, length time.Duration) time.Time { return sent.Add(length - Drift(length)) }

// Drift is the most that two clocks may differ after d.
func Drift(d time.Duration) time.Duration { return d / 1000 }

// InTime calls attempt, which tries to acquire a lease and returns its local end, or zero if it acquired nothing. If
// the lease is over when attempt returns, InTime calls it once more. That happens when the runtime retried the call
// through an outage: the lease counts from the first time that the call was sent. The second attempt with the same
// token keeps the lease or acquires it anew.
func InTime(attempt func(sent time.Time) (until time.Time)) {
	for range 2 {
		if until := attempt(time.Now()); until.IsZero() || Left(until) > 0 {
			return
		}
	}
}

// Deadline is the local end of the lease.
func (l *Entry) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Err reads the local clocks. It returns nil while the lease holds by them, and then the cause of its end.
func (l *Entry) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errAt(l.keeper.clocks())
}

// Left returns the time from now until at: the smaller of the times by the monotonic and by the wall clock.
func Left(at time.Time) time.Duration {
	now := time.Now()
	return left(at, now, now.Round(0))
}

// left returns the smaller of the times from now to at by the monotonic and by the wall clock. The monotonic clock
// stops while the machine is suspended, and the wall clock may be set back.
func left(at, mono, wall time.Time) time.Duration {
	return min(at.Sub(mono), at.Round(0).Sub(wall))
}

func (l *Entry) errAt(mono, wall time.Time) error {
	due := left(l.deadline, mono, wall) <= 0
	switch {
	case l.over != nil || l.forgotten:
		return l.over
	case l.maxHold(mono, wall), due && l.isLast():
		return fmt.Errorf("%w: %q", l.keeper.causes.MaxHold, l.terms.Name)
	case due:
		return fmt.Errorf("%w: %q was not extended in time", l.keeper.causes.Lost, l.terms.Name)
	}
	return nil
}

// maxHold reports whether the lease has lasted for MaxHold.
func (l *Entry) maxHold(mono, wall time.Time) bool {
	return l.terms.MaxHold > 0 && left(l.begun.Add(l.terms.MaxHold), mono, wall) <= 0
}

// isLast reports whether MaxHold forbids an extension beyond the deadline.
func (l *Entry) isLast() bool {
	t := &l.terms
	return t.MaxHold > 0 && l.deadline.Add(Drift(t.TTL)+time.Millisecond).Sub(l.begun) >= t.MaxHold
}

// length returns the length of an extension: the TTL, or less if MaxHold ends earlier.
func (l *Entry) length(now time.Time) time.Duration {
	ttl := l.terms.TTL
	if most := l.terms.MaxHold; most > 0 {
		ttl = min(ttl, max((most-now.Sub(l.begun)).Truncate(time.Millisecond), time.Millisecond))
	}
	return ttl
}

// Extend extends the lease in a round trip of its own. It does not extend a lease that is over.
func (l *Entry) Extend(ctx context.Context) error {
	mono, wall := l.keeper.clocks()
	l.mu.Lock()
	err, ttl := l.errAt(mono, wall), l.length(mono)
	l.mu.Unlock()
	if errors.Is(err, l.keeper.causes.Released) { // also if the Release failed: no one relies on the lease any more
		return fmt.Errorf("%w: %q: %w", l.keeper.causes.Lost, l.terms.Name, err)
	}
	if err != nil {
		return err
	}
	b := lua.NewBatch(l.keeper.client)
	outcome := l.holder.Extend(b, ttl)
	_ = b.Exec(ctx) // the outcome has the error
	if err := outcome(); err != nil {
		return l.failed(err)
	}
	return l.Extended(mono, ttl)
}

// failed ends the lease if the error of its extension says that it is lost.
func (l *Entry) failed(err error) error {
	if errors.Is(err, l.keeper.causes.Lost) {
		l.mu.Lock()
		released := l.released // meanwhile: this is no loss
		l.mu.Unlock()
		if !released {
			l.End(err)
		}
	}
	return err
}

// Extended moves the end of the lease after an extension that was sent at sent. It ignores an extension that was sent
// before the last one. A lease that is over by now stays over even if the server extended it: its holder may have seen
// that it was over.
func (l *Entry) Extended(sent time.Time, length time.Duration) error {
	lost := l.move(sent, length)
	switch {
	case lost != nil:
		l.End(lost)
	case length < l.terms.TTL:
		l.renewSooner()
	}
	return lost
}

// move moves the end of the lease unless it is lost.
func (l *Entry) move(sent time.Time, length time.Duration) (lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if over := l.errAt(l.keeper.clocks()); errors.Is(over, l.keeper.causes.Lost) {
		return over
	}
	if sent.Before(l.asOf) || l.forgotten {
		return nil
	}
	l.asOf, l.deadline = sent, End(sent, length)
	if l.kept != nil && l.over == nil {
		l.kept.timer.Reset(l.mayEnd())
	}
	return nil
}

// mayEnd returns the time from now to the earliest possible end of the lease.
func (l *Entry) mayEnd() time.Duration {
	mono, wall := l.keeper.clocks()
	d := left(l.deadline, mono, wall)
	if most := l.terms.MaxHold; most > 0 {
		d = min(d, left(l.begun.Add(most), mono, wall))
	}
	return max(d, 0)
}

// End ends the lease and its contexts with the cause why. Only the first call has an effect.
func (l *Entry) End(why error) {
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
		renewals.remove(kept)
	}
	if errors.Is(why, l.keeper.causes.Lost) {
		l.holder.Ended(why, held)
	}
}

// ended reports whether End was called.
func (l *Entry) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over != nil
}

// Floor is the greatest fence that a Locker or a Quorum knows. Each acquire sends it, so that a server whose clock was
// set back returns no smaller fence. It is safe for concurrent use.
type Floor struct{ fence atomic.Int64 }

// maxFence bounds the fences that Note accepts: the scripts count exactly up to 2^53.
const maxFence = 1<<52 - 1

// Last is the greatest fence that was noted.
func (f *Floor) Last() int64 { return f.fence.Load() }

// Note raises the floor.
func (f *Floor) Note(fence int64) {
	for was := f.fence.Load(); was < fence && fence <= maxFence; was = f.fence.Load() {
		if f.fence.CompareAndSwap(was, fence) {
			return
		}
	}
}

// longest bounds the durations of a lock, so that their sum fits into a time.Duration.
const longest = 10 * 365 * 24 * time.Hour

// Setting is a duration among the options of a lock.
type Setting struct {
	Field      string
	Value, Min time.Duration
}

// CheckSettings returns a lua.ErrOutOfRange for the first setting out of range.
func CheckSettings(all ...Setting) error {
	for _, s := range all {
		if s.Value < s.Min || s.Value > longest {
			return &lua.RangeError{Field: s.Field, Value: s.Value.String(), Min: s.Min.String(), Max: longest.String()}
		}
	}
	return nil
}

// Tokens makes the names of the leases of a process: <process>.<number>. It is safe for concurrent use.
type Tokens struct {
	process string
	last    atomic.Int64
}

// NewTokens returns the tokens of a process under a new name of 80 random bits.
func NewTokens() *Tokens { return &Tokens{process: rand.Text()[:16]} }

// Process returns the name of the process.
func (t *Tokens) Process() string { return t.process }

// Next returns a token that names no other lease.
func (t *Tokens) Next() string { return t.process + "." + strconv.FormatInt(t.last.Add(1), 36) }
