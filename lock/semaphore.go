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

// A semaphore is one zset, sem:{name}. While a process waits, there is a second zset, semq:{name}. Each permit is a
// member, scored by the end of its lease. So the permits of a holder that dies become free, whatever the others do. A
// whole semaphore is in the one zset, so each change is one command, and an error half-way can neither add nor lose
// permits. lock/sem_acquire.lua lists the members.
//
// Waiting is as for a lock: an entry in the queue, one connection, no polling. The head of the queue is served first,
// even if a waiter with less weight behind it would fit. Otherwise a heavy waiter could wait for ever. A release grants
// permits to as many waiters from the head as fit, in the same script.

// maxPermits is the greatest limit of a semaphore.
const maxPermits = 1 << 30

// Semaphore gives out permits whose weights add up to a limit at most. Each permit is a Lease of its own: it can be
// extended and kept, and it ends when its holder dies. A Semaphore is safe for concurrent use.
//
// Of its Locker's Options it uses Prefix, Tag, TTL, Claim, Note, MaxHold, Poll and Observe. With LockDelay or Replicas
// each call returns a [lua.ErrOutOfRange].
type Semaphore struct {
	set   permitSet
	limit atomic.Int64
}

// Semaphore returns the semaphore of that name. Nothing is sent. The first acquire of a permit stores the limit. The
// stored limit counts for all processes until Resize changes it, or until nobody has held or waited for a permit for a
// minute. So a new limit can be deployed without errors in old and new processes, for weights within both limits:
// deploy it, then call Resize once.
func (l *Locker) Semaphore(name string, limit int) *Semaphore {
	s := &Semaphore{set: permitSet{locker: l, name: name}}
	s.limit.Store(int64(limit))
	s.set.keys, s.set.bad = keys.NewSemaphore(l.opts.Prefix, l.opts.Tag, name)
	s.set.bad = errors.Join(s.set.bad, l.bad, l.plainOnly())
	return s
}

// plainOnly returns an error that names an option which is set and which only a plain lock has.
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

// newLease makes the request. The script compares the weight with the stored limit, because this Semaphore's own limit
// may be an old one.
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

// Try acquires a permit of that weight if it fits under the limit and nobody waits, in one round trip. Otherwise it
// returns a *HeldError, whose Remaining says when the permit may fit. A weight above the limit of the semaphore is a
// *LimitError. A weight below 1 is a [lua.ErrOutOfRange], before anything is sent. Lost replies and cancelled contexts
// are handled as in Locker.Try.
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

// Resize sets the limit of the semaphore and grants what becomes free, in the same script. A smaller limit takes no
// permit away. From then on the limit counts for every process, also for one whose Semaphore has another limit, and a
// weight above it is an ErrLimit. The limit stays for a minute at least, even if nobody uses the semaphore. Later calls
// of this Semaphore use the new limit too. If an attempt may still be on its way, a second call makes it void. Keys:
// sem:{name}, semq:{name}. Cost: O(log n) for each permit that is granted.
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
	// Limit is the stored limit: 0 if nobody has held or waited for a permit for a minute. Used is the sum of the
	// weights of the permits that are held.
	Limit, Used int
	// Fence is the last fence that was given.
	Fence int64
	// Holders are the permits whose leases end first, 500 at most.
	Holders []Permit
	// Waiting is the length of the queue, Waiters the notes of the first ten waiters.
	Waiting int
	Waiters []string
}

// Permit is a permit that is held.
type Permit struct {
	// Token is the Lease.Token of the permit, for Revoke.
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

// Revoke takes a permit from its holder and grants permits to the waiters that fit, in one script. It reports whether a
// permit with the token was stored, which includes one whose lease is over. Info lists the tokens. If the holder keeps
// its lease, the context of that lease ends with ErrRevoked as soon as the process is notified. Otherwise the holder
// gets ErrRevoked from its next Extend or Release within 10 s, and an ErrLost after that. Keys: sem:{name},
// semq:{name}. Cost: O(log n) of the holders.
func (s *Semaphore) Revoke(ctx context.Context, token string) (bool, error) {
	return s.set.revoke(ctx, token)
}
