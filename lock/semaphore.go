package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// A semaphore is one zset, sem:{name}, and while a process waits another one, semq:{name}. Each permit is a member,
// scored by the end of its lease: a holder that dies gives back its permits, whatever the others do. Because all of a
// semaphore is in the one zset, each change is one command, and an error half-way can neither add nor lose permits.
// sem_acquire.lua lists the members.
//
// Waiting is as for a lock: an entry in the queue, one connection, no polling. The head of the queue is served first
// even where a waiter with less weight behind it would fit, so that a heavy one is not passed over for ever. A
// release grants to as many waiters from the head as fit, in the same script.

// ErrLimit says that a permit is heavier than the limit of the semaphore: the one that is stored, or where none is, the
// one of the call. It comes as a *LimitError.
var ErrLimit = errors.New("luatomic: weight above the limit of the semaphore")

// LimitError says which weight was asked for and which limit the semaphore has. It matches ErrLimit.
type LimitError struct {
	// Name is the name of the semaphore.
	Name string
	// Weight is that of the call, Limit that of the semaphore.
	Weight, Limit int
}

// Error names the semaphore, the weight and the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %q has %d, the permit weighs %d; ask for less, or Resize", ErrLimit, e.Name,
		e.Limit, e.Weight)
}

// Is matches ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// maxPermits is the greatest limit of a semaphore.
const maxPermits = 1 << 30

// Semaphore gives out permits, up to a limit of the sum of their weights. Each permit is a Lease of its own: it can
// be extended and kept, and ends with its holder. A Semaphore is safe for concurrent use.
//
// Of the Options of its Locker it uses Prefix, Tag, TTL, Claim, Note, MaxHold, Poll and Observe; with
// LockDelay or Replicas each call returns a [lua.ErrOutOfRange].
type Semaphore struct {
	set   permitSet
	limit atomic.Int64
}

// Semaphore returns the semaphore of that name. The first acquire of a permit stores the limit, which then counts for
// all until Resize changes it, or until nobody has held or waited for a permit for a minute. So a new limit rolls out
// without an error on either side, for weights within both limits: deploy it, then call Resize once. Nothing is sent.
func (l *Locker) Semaphore(name string, limit int) *Semaphore {
	s := &Semaphore{set: permitSet{locker: l, name: name}}
	s.limit.Store(int64(limit))
	s.set.keys, s.set.bad = keys.NewSemaphore(l.opts.Prefix, l.opts.Tag, name)
	s.set.bad = errors.Join(s.set.bad, l.bad, l.plainOnly())
	return s
}

// plainOnly names an option that is set and that only a plain lock has.
func (l *Locker) plainOnly() error {
	o := &l.opts
	for _, set := range []struct {
		field string
		is    bool
	}{{"LockDelay", o.LockDelay > 0}, {"Replicas", o.Replicas > 0}} {
		if set.is {
			return fmt.Errorf("%w: %s is for plain locks only; use a Locker without it", lua.ErrOutOfRange, set.field)
		}
	}
	return nil
}

// newLease makes the request. The script compares the weight with the limit that is stored: this Semaphore's own may
// be an old one.
func (s *Semaphore) newLease(weight int) (*Lease, error) {
	limit := s.limit.Load()
	if err := checkRange("limit", limit, maxPermits); err != nil {
		return nil, fmt.Errorf("luatomic: semaphore %q: %w", s.set.name, err)
	}
	if err := checkRange("weight", int64(weight), maxPermits); err != nil {
		return nil, fmt.Errorf("luatomic: semaphore %q: %w", s.set.name, err)
	}
	return s.set.newLease(weight, limit)
}

func checkRange(field string, n, most int64) error {
	if n < 1 || n > most {
		return &lua.RangeError{
			Field: field, Value: strconv.FormatInt(n, 10), Min: "1", Max: strconv.FormatInt(most, 10),
		}
	}
	return nil
}

// Try acquires a permit of that weight if it fits under the limit and nobody waits, in one round trip, else returns a
// *HeldError whose Remaining says when it may fit. A weight above the limit of the semaphore is a *LimitError. One
// below 1 is a [lua.ErrOutOfRange], before anything is sent. Lost replies and cancelled contexts are as for Locker.Try.
//
// Keys: sem:{name}, semq:{name}. Cost: O(log n) of the holders.
func (s *Semaphore) Try(ctx context.Context, weight int) (*Lease, error) {
	lease, err := s.newLease(weight)
	if err != nil {
		return nil, err
	}
	return lease.try(ctx)
}

// Acquire waits until it has a permit of that weight or ctx ends, as Locker.Acquire does. Waiters are served in
// order of arrival, whatever their weight.
// Keys: sem:{name}, semq:{name}. Cost: O(log n) of the holders and the waiters.
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*Lease, error) {
	lease, err := s.newLease(weight)
	if err != nil {
		return nil, err
	}
	return lease.acquire(ctx)
}

// Do acquires a permit of that weight, runs f and gives the permit back, as Locker.Do does.
// Keys: sem:{name}, semq:{name}. Cost: O(log n) of the holders and the waiters.
func (s *Semaphore) Do(ctx context.Context, weight int, f func(context.Context, *Lease) error) error {
	lease, err := s.newLease(weight)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// Resize sets the limit of the semaphore, also for later calls of this Semaphore, and grants what becomes free, in
// the same script. A smaller limit takes no permit away. It counts for every process from then on, also for one that
// was made with another limit; a weight above it is an ErrLimit. It stays for a minute at
// least, also where nobody uses the semaphore. Where an attempt may still be on its way, a second call makes that void.
// Keys: sem:{name}, semq:{name}. Cost: O(log n) for each permit that is granted.
func (s *Semaphore) Resize(ctx context.Context, limit int) error {
	err := s.set.bad
	if err == nil {
		err = checkRange("limit", int64(limit), maxPermits)
	}
	if err == nil {
		err = s.set.resize(ctx, int64(limit))
	}
	if err != nil {
		return fmt.Errorf("luatomic: resize semaphore %q: %w", s.set.name, recordError(err, s.set.keys.Record))
	}
	s.limit.Store(int64(limit))
	return nil
}

// SemaphoreInfo describes a semaphore at the time that it was read.
type SemaphoreInfo struct {
	Name, Key string
	// Limit is 0 where nobody has held or waited for a permit for a minute; Used is the sum of the weights that are
	// held.
	Limit, Used int
	// Fence is the last one that was given.
	Fence int64
	// Holders are the permits whose leases end first, 500 at most.
	Holders []Permit
	// Waiting is the length of the queue, Waiters the notes of the first ten waiters.
	Waiting int
	Waiters []string
}

// Permit is a permit that is held.
type Permit struct {
	// Token is that of its Lease; Revoke takes it.
	Token string
	// Weight is 1 for a reader of an RWLock.
	Weight int
	// Note is the Options.Note of its holder.
	Note string
	// Remaining is what is left of the lease, by the server's clock.
	Remaining time.Duration
}

// Info reads the permits that are held and the queue, in one script. It changes nothing.
// Keys: sem:{name}, semq:{name}. Cost: O(n) of the holders.
func (s *Semaphore) Info(ctx context.Context) (SemaphoreInfo, error) { return s.set.info(ctx) }

// Revoke takes a permit from its holder and grants to the waiters that fit, in one script. The context of a lease that
// is kept ends with ErrRevoked as soon as its process is notified; another holder gets that error from its next Extend
// or Release within 10 s, and an ErrLost after that. Revoke reports whether a permit with the token was stored, also
// one whose lease is over. Info lists the tokens.
// Keys: sem:{name}, semq:{name}. Cost: O(log n) of the holders.
func (s *Semaphore) Revoke(ctx context.Context, token string) (bool, error) {
	return s.set.revoke(ctx, token)
}
