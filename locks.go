package luatomic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// A lock is one hash, lock:{name}:
//
//	o  owner: a token made for each acquire; empty after a release
//	e  end of the lease, ms of the server's clock
//	f  fence of the last holder, microseconds of the server's clock or one more
//	   than the fence before
//	m  note of the holder, for others to read
//	r  owner that released last
//
// free ──acquire (o, e, f+)──▶ held ──extend (e)──▶ held ──release (o="", r)──▶ free
//
//	└──── e has passed ────▶ free
//
// Because the end of the lease is a field and not the key's TTL, the hash outlives
// the lease by a minute: the next fence is greater than the last even if the
// server's clock was set back, and a release whose reply was lost is answered
// "released" when it comes again. The key expires, so no lock leaves one behind.

// The ways in which a lock is not held.
var (
	// ErrHeld says that another owner holds the lock. It comes as a *HeldError.
	ErrHeld = errors.New("luatomic: lock is held")
	// ErrLost says that a lease is over: it ended by the clock, or the lock went to
	// another owner since. The work done under it may have overlapped another
	// holder's; its fence tells them apart.
	ErrLost = errors.New("luatomic: lock lost")
)

// HeldError says who holds the lock and for how long. It matches ErrHeld.
type HeldError struct {
	// Name is the lock's name.
	Name string
	// Remaining is what is left of the holder's lease.
	Remaining time.Duration
	// Holder is the note that the holder gave.
	Holder string
}

func (e *HeldError) Error() string {
	by := ""
	if e.Holder != "" {
		by = " by " + e.Holder
	}
	return fmt.Sprintf("%v: %q%s, for %v more unless extended", ErrHeld, e.Name, by, e.Remaining)
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LockerOptions are the settings of a Locker. The zero value is ready to use.
type LockerOptions struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// TTL is the length of a lease. Default 10 s; at least 1 ms.
	TTL time.Duration
	// Note tells others who the holder is, such as a host name.
	Note string
	// Poll is the longest time between two looks while Acquire waits. Default
	// 50 ms.
	Poll time.Duration
}

// Locker acquires locks by name. It is safe for concurrent use and holds no state.
type Locker struct {
	client lua.Client
	opts   LockerOptions
}

// NewLocker returns a Locker; nil options mean the defaults. Nothing is sent.
func NewLocker(client lua.Client, opts *LockerOptions) *Locker {
	l := &Locker{client: client}
	if opts != nil {
		l.opts = *opts
	}
	if l.opts.TTL == 0 {
		l.opts.TTL = 10 * time.Second
	}
	if l.opts.Poll <= 0 {
		l.opts.Poll = 50 * time.Millisecond
	}
	return l
}

// Lease is a lock that was acquired. It ends when it is released or when its TTL
// is over, whichever comes first; nothing renews it but Extend and Keep. Its
// methods are safe for concurrent use.
type Lease struct {
	locker *Locker
	name   string
	key    string
	owner  string
	fence  int64

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

// Name is the name of the lock.
func (l *Lease) Name() string { return l.name }

// Key is the lock's key in Redis.
func (l *Lease) Key() string { return l.key }

// Fence grows with every holder of the lock. Send it along with each write to
// what the lock protects, and let the store refuse one that is smaller than the
// greatest it has seen: a holder that was paused past its lease is then harmless.
func (l *Lease) Fence() int64 { return l.fence }

// Deadline is when the lease ends at the latest by this process' own monotonic
// clock, counted from before the request was sent.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *Lease) setDeadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
}

// Try acquires the lock if it is free, in one round trip, else returns a
// *HeldError.
//
// A lost reply is repeated and finds the lock its own. When ctx ends before the
// reply, the lock is released again by a call that does not depend on ctx.
// Keys: lock:{name}. Cost: O(1).
func (l *Locker) Try(ctx context.Context, name string) (*Lease, error) {
	key, err := keys.Lock(l.opts.Prefix, name)
	if err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	owner, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("luatomic: acquire %q: %w", name, err)
	}
	lease := &Lease{locker: l, name: name, key: key, owner: owner.String()}
	if err := lease.acquire(ctx); err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *Lease) acquire(ctx context.Context) error {
	start := time.Now()
	o := &l.locker.opts
	r, err := gen.LockAcquire(ctx, l.locker.client, gen.LockAcquireParams{
		Lock: l.key, Owner: l.owner, TTL: o.TTL, Note: o.Note,
	})
	if err != nil {
		if !errors.Is(err, lua.ErrNotExecuted) {
			err = errors.Join(err, l.undo(ctx))
		}
		return fmt.Errorf("luatomic: acquire %q: %w", l.name, err)
	}
	if !r.Acquired {
		return &HeldError{Name: l.name, Remaining: r.Remaining, Holder: r.Holder}
	}
	l.fence = r.Fence
	l.setDeadline(start.Add(o.TTL))
	return nil
}

// undo gives back a lock that may have been acquired by a call without a reply.
func (l *Lease) undo(ctx context.Context) error {
	if err := l.release(ctx); err != nil && !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Acquire waits until it has the lock or ctx ends. It looks again when the
// holder's lease can be over, and every LockerOptions.Poll at the latest. When ctx
// ends it returns the last *HeldError joined with the cause; no lock stays behind.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lease, error) {
	var held *HeldError
	for {
		lease, err := l.Try(ctx, name)
		switch {
		case err == nil:
			return lease, nil
		case errors.As(err, &held):
		case held != nil && ctx.Err() != nil: // the end came in the middle of a look
			return nil, errors.Join(held, err)
		default:
			return nil, err
		}
		// Jitter, so that waiters do not look in step.
		wait := min(held.Remaining, l.opts.Poll/2+rand.N(l.opts.Poll/2+1))
		pause(ctx, max(wait, time.Millisecond))
		if ctx.Err() != nil {
			return nil, errors.Join(held, context.Cause(ctx))
		}
	}
}

// Extend starts the lease anew with its TTL. It returns ErrLost when the lease is
// over, also when nobody took the lock since: what was not protected for a moment
// was not protected. A lost reply is repeated. Keys: lock:{name}. Cost: O(1).
func (l *Lease) Extend(ctx context.Context) error {
	start := time.Now()
	ttl := l.locker.opts.TTL
	state, err := gen.LockExtend(ctx, l.locker.client, gen.LockExtendParams{Lock: l.key, Owner: l.owner, TTL: ttl})
	if err != nil {
		return fmt.Errorf("luatomic: extend %q: %w", l.name, err)
	}
	if state != gen.LockExtendResultExtended {
		return fmt.Errorf("%w: %q has %s", ErrLost, l.name, over(state == gen.LockExtendResultTaken))
	}
	l.setDeadline(start.Add(ttl))
	return nil
}

func over(taken bool) string {
	if taken {
		return "another owner"
	}
	return "expired"
}

// releaseTimeout bounds a release whose caller has gone.
const releaseTimeout = 5 * time.Second

// Release gives the lock back. It works after ctx has ended too, the usual case in
// a deferred call: it keeps ctx' values but not its end, and takes 5 s at most. A
// second Release of the same lease is nil. ErrLost says that the lease was over
// before, so that another holder may have overlapped. Keys: lock:{name}. Cost:
// O(1).
func (l *Lease) Release(ctx context.Context) error {
	if err := l.release(ctx); err != nil {
		return fmt.Errorf("luatomic: release %q: %w", l.name, err)
	}
	return nil
}

func (l *Lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	state, err := gen.LockRelease(ctx, l.locker.client, gen.LockReleaseParams{Lock: l.key, Owner: l.owner})
	if err != nil {
		return err
	}
	if state != gen.LockReleaseResultReleased {
		return fmt.Errorf("%w: %q has %s", ErrLost, l.name, over(state == gen.LockReleaseResultTaken))
	}
	return nil
}

// Keep extends the lease three times in its TTL until ctx ends, and returns nil
// then. It returns ErrLost when the lease is over, as soon as the server says so
// or this process' clock passes Deadline without an answer.
func (l *Lease) Keep(ctx context.Context) error {
	ttl := l.locker.opts.TTL
	wait := ttl / 3
	for {
		pause(ctx, wait)
		if ctx.Err() != nil {
			return nil
		}
		err := l.extendInTime(ctx)
		switch {
		case err == nil:
			wait = ttl / 3
		case errors.Is(err, ErrLost):
			return err
		case ctx.Err() != nil:
			return nil
		case !time.Now().Before(l.Deadline()):
			return fmt.Errorf("%w: %q was not extended in time: %w", ErrLost, l.name, err)
		default:
			wait = min(ttl/10, time.Until(l.Deadline()))
		}
	}
}

// extendInTime gives up at the deadline even while the socket does not answer,
// which go-redis would wait for.
func (l *Lease) extendInTime(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, l.Deadline())
	extended := make(chan error, 1)
	go func() {
		defer cancel()
		extended <- l.Extend(ctx)
	}()
	select {
	case err := <-extended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-extended: // both at once: the answer counts
		return err
	default:
		return ctx.Err()
	}
}

// Do acquires the lock, runs f, and releases the lock, also when f panics. It
// renews the lease while f runs; f's context ends, with the cause ErrLost, when the
// lease is lost. The error joins f's own, the loss and the release's.
func (l *Locker) Do(ctx context.Context, name string, f func(context.Context, *Lease) error) (err error) {
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	kept := make(chan error, 1)
	go func() {
		err := lease.Keep(work)
		if err != nil {
			cancel(err)
		}
		kept <- err
	}()
	defer func() {
		cancel(nil)
		lost, released := <-kept, lease.Release(ctx)
		if lost != nil {
			released = nil // it would say the same again
		}
		err = errors.Join(err, lost, released)
	}()
	return f(work, lease)
}
