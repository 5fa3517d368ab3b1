package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// A semaphore is one zset, sem:{name}, and while somebody waits another one,
// semq:{name}. Each permit is a member, scored by the end of its lease, so that a
// holder that dies gives back what it has, and the live ones do not keep it up. All
// of a semaphore is in the one zset, so each change is one command, and nothing
// half-done can make permits appear or vanish. sem_acquire.lua lists the members.
//
// Who waits, waits as for a lock: an entry in the queue, one connection, no polling.
// The head of the queue is served first even where a lighter one behind it would
// fit, so that a heavy one is not passed over for ever. What is given back goes to
// as many from the head as fit, in the same script.

// ErrLimit says that the semaphore has another limit. It comes as a *LimitError.
var ErrLimit = errors.New("luatomic: semaphore has another limit")

// LimitError says which limit was asked for and which one the semaphore has. It
// matches ErrLimit.
type LimitError struct {
	Name string
	// Asked is the limit of the call, Limit that of the semaphore.
	Asked, Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: %q has %d, not %d; use one limit everywhere, or Resize", ErrLimit, e.Name, e.Limit, e.Asked)
}

// Is matches ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// maxPermits is the greatest limit of a semaphore.
const maxPermits = 1 << 30

// Semaphore gives out permits, up to a limit of the sum of their weights. Each is a
// Lease of its own: it can be extended and kept, and ends by itself with its holder.
// It is safe for concurrent use.
//
// Of LockerOptions it heeds TTL, Claim, Note, Priority, MaxHold, Poll and Observe.
type Semaphore struct {
	permits
	limit atomic.Int64
}

// Semaphore returns the semaphore of that name. The first who acquires a permit sets
// its limit; another limit is an ErrLimit until nobody has held or waited for a
// permit for a minute. Nothing is sent.
func (l *Locker) Semaphore(name string, limit int) *Semaphore {
	s := &Semaphore{permits: permits{locker: l, name: name}}
	s.limit.Store(int64(limit))
	s.keys, s.bad = keys.NewSemaphore(l.opts.Prefix, l.opts.Tag, name)
	s.bad = errors.Join(s.bad, l.bad, l.plainOnly())
	return s
}

// plainOnly names an option that no kin of the plain lock has.
func (l *Locker) plainOnly() error {
	o := &l.opts
	for _, set := range []struct {
		field string
		is    bool
	}{{"LockDelay", o.LockDelay > 0}, {"Replicas", o.Replicas > 0}} {
		if set.is {
			return fmt.Errorf("%w: %s is for plain locks only; use Locker.With without it", lua.ErrOutOfRange, set.field)
		}
	}
	return nil
}

// newLease checks the weight against the limit and makes the token.
func (s *Semaphore) newLease(weight int) (*Lease, error) {
	limit := s.limit.Load()
	if err := checkRange("limit", int64(limit), maxPermits); err != nil {
		return nil, fmt.Errorf("luatomic: semaphore %q: %w", s.name, err)
	}
	if err := checkRange("weight", int64(weight), limit); err != nil {
		return nil, fmt.Errorf("luatomic: semaphore %q: %w", s.name, err)
	}
	return s.permit(weight, limit)
}

func checkRange(field string, n, most int64) error {
	if n < 1 || n > most {
		return &lua.RangeError{Field: field, Value: strconv.FormatInt(n, 10), Min: "1", Max: strconv.FormatInt(most, 10)}
	}
	return nil
}

// Try acquires a permit of that weight if there is room and nobody waits, in one
// round trip, else returns a *HeldError whose Remaining says when there may be room.
// A weight below 1 or over the limit is a lua.ErrOutOfRange, before anything is sent.
// Lost replies and cancelled contexts are as for Locker.Try.
// Keys: sem:{name}, semq:{name}. Cost: O(log n) of the holders.
func (s *Semaphore) Try(ctx context.Context, weight int) (*Lease, error) {
	lease, err := s.newLease(weight)
	if err != nil {
		return nil, err
	}
	return lease.tryOnce(ctx)
}

// Acquire waits until it has a permit of that weight or ctx ends, as Locker.Acquire
// does. Those who wait are served in order of arrival, whatever their weight.
// Keys: sem:{name}, semq:{name}. Cost: O(log n) of the holders and those who wait.
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*Lease, error) {
	lease, err := s.newLease(weight)
	if err != nil {
		return nil, err
	}
	return lease.wait(ctx, s.locker.opts.TTL)
}

// Do acquires a permit of that weight, runs f and gives the permit back, as
// Locker.Do does.
func (s *Semaphore) Do(ctx context.Context, weight int, f func(context.Context, *Lease) error) error {
	lease, err := s.newLease(weight)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// Resize sets the limit of the semaphore, also for this Semaphore's later calls, and
// grants what becomes free. A smaller limit takes nothing from those who hold
// permits. Others learn of it by ErrLimit. Keys: sem:{name}, semq:{name}.
// Cost: O(log n) for each permit that is granted.
func (s *Semaphore) Resize(ctx context.Context, limit int) error {
	err := s.bad
	if err == nil {
		err = checkRange("limit", int64(limit), maxPermits)
	}
	if err == nil {
		_, err = gen.SemResize(ctx, s.locker.client, gen.SemResizeParams{Permits: s.keys.Record, Queue: s.keys.Queue, Size: int64(limit)})
	}
	if err != nil {
		return fmt.Errorf("luatomic: resize semaphore %q: %w", s.name, err)
	}
	s.limit.Store(int64(limit))
	return nil
}

// SemaphoreInfo is what is known of a semaphore.
type SemaphoreInfo struct {
	Name, Key string
	// Limit is 0 where nobody has held or waited for a permit for a minute.
	Limit, Used int
	// Fence is the last one that was given.
	Fence int64
	// Holders are those whose leases end first, 500 at most.
	Holders []Permit
	// Waiting is the length of the queue, Waiters the notes of the first ten there.
	Waiting int
	Waiters []string
}

// Permit is one that is held.
type Permit struct {
	Token  string
	Weight int
	Note   string
	// Remaining is what is left of the lease.
	Remaining time.Duration
}

// Info reads who holds permits and who waits. It changes nothing.
// Keys: sem:{name}, semq:{name}. Cost: O(n) of the holders.
func (s *Semaphore) Info(ctx context.Context) (SemaphoreInfo, error) { return s.info(ctx) }

// Revoke takes a permit from its holder and gives it to those who wait. The holder's
// context ends at once, with ErrRevoked, if it keeps the lease; else it learns of it
// at its next call. It reports whether the permit was held.
// Keys: sem:{name}, semq:{name}.
func (s *Semaphore) Revoke(ctx context.Context, token string) (bool, error) {
	return s.revoke(ctx, token)
}

// permits is what a semaphore and a read-write lock have in common. It is the kind
// of their leases.
type permits struct {
	locker *Locker
	name   string
	keys   keys.Lock
	bad    error
}

// permit makes the token of one acquire. Nothing is sent.
func (p *permits) permit(weight int, limit int64) (*Lease, error) {
	if p.bad != nil {
		return nil, fmt.Errorf("luatomic: %w", p.bad)
	}
	token := p.locker.newToken() + ":" + strconv.Itoa(weight)
	return &Lease{locker: p.locker, kind: &permitKind{p, limit}, name: p.name, key: p.keys.Record, keys: p.keys, token: token}, nil
}

func (p *permits) info(ctx context.Context) (SemaphoreInfo, error) {
	r, err := gen.SemInfoResult{}, p.bad
	if err == nil {
		r, err = gen.SemInfo(ctx, p.locker.client, gen.SemInfoParams{Permits: p.keys.Record, Queue: p.keys.Queue, Max: shownHolders, Waiters: shownWaiters})
	}
	if err != nil {
		return SemaphoreInfo{}, fmt.Errorf("luatomic: info of %q: %w", p.name, err)
	}
	return permitInfo(p.name, p.keys.Record, r), nil
}

func permitInfo(name, key string, r gen.SemInfoResult) SemaphoreInfo {
	info := SemaphoreInfo{
		Name: name, Key: key, Limit: int(r.Limit), Used: int(r.Used), Fence: r.Fence, Waiting: int(r.Waiting),
	}
	notes := make(map[string]string)
	for _, member := range r.Members {
		if token, note, ok := strings.Cut(member, "\n"); ok {
			notes[token] = note
		}
	}
	for i, member := range r.Members[:min(len(r.Members), len(r.Remaining))] {
		if strings.Contains(member, "\n") {
			continue
		}
		info.Holders = append(info.Holders, Permit{
			Token: member, Weight: weightOf(member), Note: notes[member], Remaining: time.Duration(r.Remaining[i]) * time.Millisecond,
		})
	}
	for _, entry := range r.Entries {
		_, note, _ := strings.Cut(entry, "\n")
		info.Waiters = append(info.Waiters, note)
	}
	return info
}

const shownHolders = 500

// weightOf is the weight that a token carries; 0 for what is no token.
func weightOf(token string) int {
	_, text, _ := strings.Cut(token, ":")
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

func (p *permits) revoke(ctx context.Context, token string) (bool, error) {
	err := p.bad
	if err == nil && (weightOf(token) == 0 || !strings.Contains(token, ".")) {
		err = fmt.Errorf("%w: no such token; Info lists them", lua.ErrOutOfRange)
	}
	var state gen.SemReleaseResult
	if err == nil {
		state, err = gen.SemRelease(ctx, p.locker.client, gen.SemReleaseParams{
			Permits: p.keys.Record, Queue: p.keys.Queue, Owner: token, Inbox: keys.LockInbox(p.locker.opts.Prefix),
		})
	}
	if err != nil {
		return false, fmt.Errorf("luatomic: revoke a permit of %q: %w", p.name, err)
	}
	return state == gen.SemReleaseResultReleased, nil
}
