package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/resent"
	"github.com/luatomic/luatomic/lua"
)

// Lease is a lock that was acquired, or a permit of a Semaphore or a RWLock. It
// ends when it is released or when its TTL is over, whichever comes first; Keep
// renews it until then. Its methods are safe for concurrent use.
type Lease struct {
	locker *Locker
	kind   leaseKind
	name   string
	key    string
	keys   keys.Lock
	token  string // the owner in the scripts
	fence  int64

	mu       sync.Mutex // guards all below
	acquired time.Time
	deadline time.Time
	kept     *keptContext // nil unless Keep was called
	over     error        // why the lease ended, nil while it has not
	released bool
}

// leaseKind is what differs between a lock and its kin.
type leaseKind interface {
	// acquire makes one attempt, which joins the queue with the entry unless that is
	// empty.
	acquire(ctx context.Context, l *Lease, entry string) (gen.LockAcquireResult, error)
	// entry is what stands in the queue for l.
	entry(l *Lease, granted time.Duration, channel string) string
	// extend queues the renewal of l for ttl; verdict is nil when it was renewed.
	extend(b *lua.Batch, l *Lease, ttl time.Duration) (verdict func() error)
	// release gives l back, or leaves the queue with the entry; a lost lease is an
	// ErrLost.
	release(ctx context.Context, l *Lease, entry string) error
}

// newLease makes the token of one acquire. Nothing is sent.
func (l *Locker) newLease(name string) (*Lease, error) {
	k, err := keys.NewLock(l.opts.Prefix, l.opts.Tag, name)
	if err == nil {
		err = l.bad
	}
	if err != nil {
		return nil, fmt.Errorf("luatomic: lock: %w", err)
	}
	return &Lease{locker: l, kind: lockKind{}, name: name, key: k.Record, keys: k, token: l.newToken()}, nil
}

// Name is the name of the lock.
func (l *Lease) Name() string { return l.name }

// Key is the lock's key in Redis.
func (l *Lease) Key() string { return l.key }

// Token names this lease among all others; it is made for each acquire.
func (l *Lease) Token() string { return l.token }

// GuardKey and GuardToken let a lease guard other scripts, see lua.Guard.
func (l *Lease) GuardKey() string { return l.key }

// GuardToken is the token by which a guarded script knows the lease.
func (l *Lease) GuardToken() string { return l.token }

// Fence grows with every holder of the lock. Send it along with each write to
// what the lock protects, and let the store refuse one that is smaller than the
// greatest it has seen: a holder that was paused past its lease is then harmless.
func (l *Lease) Fence() int64 { return l.fence }

// Deadline is when the lease ends at the latest by this process' own monotonic
// clock, counted from before the request was sent, with a part in a thousand for
// clocks that run at different speeds.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Err is nil while the lease holds by this process' clock. After that it is an
// ErrLost, or ErrReleased after Release. It looks at the clock itself, so it is
// right at the first look after the process was paused.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errAt(time.Now())
}

func (l *Lease) errAt(now time.Time) error {
	switch {
	case l.over != nil:
		return l.over
	case l.maxed(now):
		return fmt.Errorf("%w: %q", ErrMaxHold, l.name)
	case !now.Before(l.deadline) && l.lastOne():
		return fmt.Errorf("%w: %q", ErrMaxHold, l.name)
	case !now.Before(l.deadline):
		return fmt.Errorf("%w: %q was not extended in time", ErrLost, l.name)
	}
	return nil
}

// maxed reports whether the lease has lasted for MaxHold.
func (l *Lease) maxed(now time.Time) bool {
	most := l.locker.opts.MaxHold
	return most > 0 && now.Sub(l.acquired) >= most
}

// lastOne reports whether MaxHold allows no lease after this one.
func (l *Lease) lastOne() bool {
	o := &l.locker.opts
	return o.MaxHold > 0 && l.deadline.Add(drift(o.TTL)+time.Millisecond).Sub(l.acquired) >= o.MaxHold
}

// drift is what clocks may differ by within d.
func drift(d time.Duration) time.Duration { return d / 1000 }

// begin starts the lease at its end of the wait; lease is how long it is from then.
func (l *Lease) begin(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acquired, l.deadline = time.Now(), deadline
}

// length is how long a renewal makes the lease: no longer than MaxHold allows.
func (l *Lease) length(now time.Time) time.Duration {
	ttl := l.locker.opts.TTL
	if most := l.locker.opts.MaxHold; most > 0 {
		ttl = min(ttl, max((most-now.Sub(l.acquired)).Truncate(time.Millisecond), time.Millisecond))
	}
	return ttl
}

// Extend starts the lease anew with its TTL. It returns ErrLost when the lease is
// over, also when nobody took the lock since: what was not protected for a moment
// was not protected. A lost reply is repeated. Keys: lock:{name}. Cost: O(1).
func (l *Lease) Extend(ctx context.Context) error {
	now := time.Now()
	l.mu.Lock()
	err, ttl := l.errAt(now), l.length(now)
	l.mu.Unlock()
	if err != nil && !errors.Is(err, ErrReleased) {
		return err
	}
	b := lua.NewBatch(l.locker.client)
	verdict := l.kind.extend(b, l, ttl)
	_ = b.Exec(ctx) // the verdict has the error
	return l.extended(now, ttl, verdict())
}

// extended takes in what a renewal that was sent at start came to.
func (l *Lease) extended(start time.Time, ttl time.Duration, err error) error {
	if err == nil {
		return l.setDeadline(start.Add(ttl - drift(ttl)))
	}
	if errors.Is(err, ErrLost) {
		l.mu.Lock()
		given := l.released // it was given back meanwhile
		l.mu.Unlock()
		if !given {
			l.end(err)
		}
	}
	return err
}

// setDeadline moves the end of the lease, unless it was noticed that it is lost: over
// stays over, although the server had it longer.
func (l *Lease) setDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.over, ErrLost) {
		return l.over
	}
	if t.After(l.deadline) {
		l.deadline = t
	}
	if l.kept != nil && l.over == nil {
		l.kept.timer.Reset(time.Until(l.nextLook()))
	}
	return nil
}

// nextLook is when the lease may be over.
func (l *Lease) nextLook() time.Time {
	t := l.deadline
	if most := l.locker.opts.MaxHold; most > 0 && l.acquired.Add(most).Before(t) {
		t = l.acquired.Add(most)
	}
	return t
}

// end marks the lease as over, once.
func (l *Lease) end(why error) {
	l.mu.Lock()
	first := l.over == nil
	if first {
		l.over = why
	}
	kept, held := l.kept, time.Since(l.acquired)
	var die context.CancelCauseFunc
	if kept != nil {
		die = kept.die
	}
	l.mu.Unlock()
	if !first {
		return
	}
	if kept != nil {
		kept.timer.Stop()
		kept.cancel(why)
		if die != nil {
			die(why)
		}
		l.locker.forget(l)
	}
	if errors.Is(why, ErrLost) {
		l.locker.observe(Event{Kind: EventLost, Name: l.name, Held: held, Err: why})
	}
}

// Release gives the lock back, and hands it to the next one who waits. It works
// after ctx has ended too, the usual case in a deferred call: it keeps ctx' values
// but not its end, and takes 10 s at most. A second Release of the same lease is
// nil. ErrLost says that the lease was over before, so that another holder may have
// overlapped. Keys: lock:{name}, lockq:{name}. Cost: O(log n) of those who wait.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	lost := l.errAt(time.Now())
	again := l.released
	l.released = true
	held := time.Since(l.acquired)
	l.mu.Unlock()
	if again && errors.Is(lost, ErrReleased) {
		return nil
	}
	if errors.Is(lost, ErrLost) {
		l.end(lost)
	} else {
		l.end(ErrReleased)
	}
	last := detached(ctx)
	err := l.kind.release(last, l, "")
	if last.resent && lost == nil && errors.Is(err, ErrLost) {
		err = nil // the first attempt released it, and its reply was lost
	}
	if err != nil {
		l.mu.Lock()
		l.released = false // so that it can be tried again
		l.mu.Unlock()
	}
	switch {
	case !errors.Is(lost, ErrLost):
	case err == nil:
		err = lost
	case errors.Is(err, ErrLost):
		err = fmt.Errorf("%w; %w", lost, err)
	}
	if err != nil {
		return fmt.Errorf("luatomic: release %q: %w", l.name, err)
	}
	l.locker.observe(Event{Kind: EventReleased, Name: l.name, Held: held})
	return nil
}

// lastCall is the context of a call that cleans up: it has the values of the
// caller's and not its end. A call without a deadline takes 10 s at most.
type lastCall struct {
	values context.Context
	resent bool
}

func detached(ctx context.Context) *lastCall { return &lastCall{values: ctx} }

func (*lastCall) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*lastCall) Done() <-chan struct{}       { return nil }
func (*lastCall) Err() error                  { return nil }

func (c *lastCall) Value(key any) any {
	if key == (resent.Key{}) {
		return c
	}
	return c.values.Value(key)
}

// NoteResent is called when the answer came to a repeat.
func (c *lastCall) NoteResent() { c.resent = true }

// acquire makes one attempt, which joins the queue with the entry unless that is
// empty. When it may have got the lock without an answer, it gives it back.
func (l *Lease) acquire(ctx context.Context, entry string) (gen.LockAcquireResult, error) {
	r, err := l.kind.acquire(ctx, l, entry)
	if err == nil {
		l.fence = r.Fence
		return r, nil
	}
	return r, l.failed(ctx, err, entry)
}

// try makes one attempt that waits for nothing.
func (l *Lease) try(ctx context.Context) (gen.LockAcquireResult, error) { return l.acquire(ctx, "") }

// failed gives back what an acquire without an answer may have got.
func (l *Lease) failed(ctx context.Context, err error, entry string) error {
	if errors.Is(err, ErrLimit) {
		return err // an answer
	}
	if !errors.Is(err, lua.ErrNotExecuted) || entry != "" {
		err = errors.Join(err, l.undo(ctx, entry))
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(err, cause) // go-redis knows ctx.Err() alone
	}
	if errors.Is(err, ErrNotReplicated) {
		return err
	}
	return fmt.Errorf("luatomic: acquire %q: %w", l.name, err)
}

// undo leaves nothing of an acquire behind.
func (l *Lease) undo(ctx context.Context, entry string) error {
	if err := l.kind.release(detached(ctx), l, entry); err != nil && !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

func (l *Lease) held(r gen.LockAcquireResult) *HeldError {
	return &HeldError{Name: l.name, Remaining: r.Remaining, Holder: r.Holder}
}
