package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// The ways in which a lock is not held.
var (
	// ErrHeld says that another owner holds the lock. It comes as a *HeldError.
	ErrHeld = errors.New("luatomic: lock is held")
	// ErrLost says that a lease is over: it ended by the clock, or the lock went to
	// another owner since. The work done under it may have overlapped another
	// holder's; its fence tells them apart.
	ErrLost = errors.New("luatomic: lock lost")
	// ErrRevoked is an ErrLost: the lock was taken away by ForceRelease or Steal.
	ErrRevoked = fmt.Errorf("%w: it was taken away", ErrLost)
	// ErrMaxHold is an ErrLost: the lock was held for LockerOptions.MaxHold.
	ErrMaxHold = fmt.Errorf("%w: it was held for the longest time that is allowed", ErrLost)
	// ErrReleased is the cause of a lease's context after Release.
	ErrReleased = errors.New("luatomic: lock released")
	// ErrNotReplicated says that too few replicas confirmed the lock in time. It was
	// released again.
	ErrNotReplicated = errors.New("luatomic: lock not replicated")
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
type Options struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// Tag puts all locks of this Locker into one slot of a cluster, and is part of
	// their keys. AcquireAll is then one step.
	Tag string
	// TTL is the length of a lease. Default 10 s; at least 1 ms.
	TTL time.Duration
	// Claim is the first lease of a waiter that is handed the lock by Do, which
	// renews it at once. Should its process have stopped meanwhile, the next waiter
	// is held up this long. Default 1 s; never more than TTL.
	Claim time.Duration
	// Note tells others who the holder is, such as a host name.
	Note string
	// Priority orders those who wait, from -1000 to 1000, the highest first. Those
	// of one priority are served in order of arrival.
	Priority int
	// MaxHold ends a lease that long after the lock was acquired, even if it is
	// renewed. Zero is no limit.
	MaxHold time.Duration
	// LockDelay keeps others out for that long after a lease that ended without a
	// release: time for the old holder's last writes to arrive.
	LockDelay time.Duration
	// Replicas is how many replicas must confirm an acquire within ReplicaTimeout,
	// default 1 s; else the lock is released and the error is ErrNotReplicated. It
	// narrows the window of a failover, and does not close it.
	Replicas       int
	ReplicaTimeout time.Duration
	// Poll is the longest time between two looks while Acquire waits where the
	// server does not allow to subscribe. Default 50 ms.
	Poll time.Duration
	// Observe is called at the turns in a lock's life, on the goroutine that made
	// them; it must not block.
	Observe func(Event)
}

func (o *Options) setDefaults() {
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.TTL > time.Millisecond {
		o.TTL = o.TTL.Truncate(time.Millisecond) // as the server has it
	}
	if o.Claim <= 0 {
		o.Claim = time.Second
	}
	o.Claim = max(o.Claim, time.Millisecond)
	if o.Poll <= 0 {
		o.Poll = 50 * time.Millisecond
	}
	if o.ReplicaTimeout <= 0 {
		o.ReplicaTimeout = time.Second
	}
}

// check names the first setting that cannot be.
func (o *Options) check() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"MaxHold", o.MaxHold}, {"LockDelay", o.LockDelay}} {
		if d.value < 0 {
			return &lua.RangeError{Field: d.field, Value: d.value.String(), Min: "0s"}
		}
	}
	if o.TTL < time.Millisecond {
		return &lua.RangeError{Field: "TTL", Value: o.TTL.String(), Min: "1ms"}
	}
	if o.Priority < -1000 || o.Priority > 1000 {
		return &lua.RangeError{Field: "Priority", Value: strconv.Itoa(o.Priority), Min: "-1000", Max: "1000"}
	}
	if len(o.Note) > maxNote {
		return &lua.SizeError{What: "Note", N: len(o.Note), Max: maxNote, Unit: "bytes"}
	}
	return nil
}

const maxNote = 1024

// Locker acquires locks by name. It is safe for concurrent use. One for a process
// is enough; With makes others that share its connection.
//
// A lock that is free costs one round trip to acquire and one to release. The
// first time that a lock is waited for or kept, the Locker opens one connection, to
// listen, and keeps it until Close.
type Locker struct {
	opts Options
	bad  error // what is wrong with opts
	*lockHub
}

// NewLocker returns a Locker; nil options mean the defaults. Nothing is sent and
// nothing starts.
func New(client lua.Client, opts *Options) *Locker {
	l := &Locker{lockHub: newLockHub(client)}
	if opts != nil {
		l.opts = *opts
	}
	l.inbox = keys.LockInbox(l.opts.Prefix) + l.process
	l.opts.setDefaults()
	l.bad = l.opts.check()
	return l
}

// With returns a Locker with other options that shares the connection of this one
// and its Prefix. Closing either closes both.
func (l *Locker) With(opts Options) *Locker {
	opts.Prefix = l.opts.Prefix
	opts.setDefaults()
	return &Locker{opts: opts, bad: opts.check(), lockHub: l.lockHub}
}

// newProcess names what holds and waits for locks: 80 random bits.
func newProcess() string { return rand.Text()[:16] }

// Try acquires the lock if it is free, in one round trip, else returns a
// *HeldError. A free lock that others wait for is handed to the first of them.
//
// A lost reply is repeated and finds the lock its own. When ctx ends before the
// reply, the lock is released again by a call that does not depend on ctx.
// Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (l *Locker) Try(ctx context.Context, name string) (*Lease, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	r, err := lease.try(ctx)
	if err != nil {
		return nil, err
	}
	if !r.Acquired {
		return nil, lease.held(r)
	}
	return lease.taken(start, r.Remaining)
}

// Acquire waits until it has the lock or ctx ends. Those who wait are served by
// LockerOptions.Priority, then in order of arrival. Waiting sends nothing: the
// release of the lock hands it over. When ctx ends, Acquire leaves the queue and
// returns the last *HeldError joined with the cause; no lock stays behind.
//
// Keys: lock:{name}, lockq:{name}. Cost: O(log n) of those who wait.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lease, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	return lease.wait(ctx, l.opts.TTL)
}

// Do acquires the lock, runs f, and releases the lock, also when f panics. It
// renews the lease while f runs; f's context ends when the lease is lost, with the
// cause ErrLost, ErrRevoked or ErrMaxHold. The error joins f's own, the loss and
// the release's. An f that has released the lock itself is no loss.
func (l *Locker) Do(ctx context.Context, name string, f func(context.Context, *Lease) error) error {
	lease, err := l.newLease(name)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// do waits for the lease and runs f under it.
func (l *Lease) do(ctx context.Context, f func(context.Context, *Lease) error) (err error) {
	if _, err = l.wait(ctx, min(l.locker.opts.Claim, l.locker.opts.TTL)); err != nil {
		return err
	}
	return l.run(ctx, f)
}

// run runs f under a lease that is held, and releases it.
func (l *Lease) run(ctx context.Context, f func(context.Context, *Lease) error) (err error) {
	defer func() {
		lost := l.Err()
		released := l.Release(ctx)
		switch {
		case errors.Is(lost, ErrReleased):
			lost = nil // f did so
		case lost != nil:
			released = nil // it would say the same again
		}
		err = errors.Join(err, lost, released)
	}()
	return f(l.Keep(ctx), l)
}
