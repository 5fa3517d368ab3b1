package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
)

// LockEvent is a turn in the life of a lock, for metrics and logs.
type Event struct {
	Kind EventKind
	Name string
	// Wait is how long an acquire took, Held how long a lease lasted.
	Wait, Held time.Duration
	// Waiting is the length of the queue, with this one, when it was joined.
	Waiting int
	// Err says why a lease was lost.
	Err error
}

// LockEventKind says what happened to a lock.
type EventKind uint8

// The turns in the life of a lock.
const (
	EventAcquired EventKind = iota + 1
	EventQueued
	EventReleased
	EventLost
)

func (k EventKind) String() string {
	if int(k) >= len(lockEventNames) {
		return "unknown"
	}
	return lockEventNames[k]
}

var lockEventNames = [...]string{"unknown", "acquired", "queued", "released", "lost"}

// observe tells the one who wants to know.
func (l *Locker) observe(e Event) {
	if l.opts.Observe != nil {
		l.opts.Observe(e)
	}
}

// LockInfo is what is known of a lock.
type Info struct {
	Name, Key string
	// Held says whether somebody holds it; the next five are of that one.
	Held  bool
	Owner string
	// Fence is that of the last holder if nobody holds the lock now.
	Fence int64
	Note  string
	// Remaining is what is left of the lease, or of the time that the lock rests.
	Remaining time.Duration
	// Waiting is the length of the queue, Waiters the notes of the first ten there.
	Waiting int
	Waiters []string
}

const shownWaiters = 10

// Info reads who holds a lock and who waits. It changes nothing. A lock that nobody
// has acquired for a minute is unknown: its LockInfo is free with no fence.
// Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (l *Locker) Info(ctx context.Context, name string) (Info, error) {
	k, err := keys.NewLock(l.opts.Prefix, l.opts.Tag, name)
	if err != nil {
		return Info{}, fmt.Errorf("luatomic: lock: %w", err)
	}
	r, err := gen.LockInfo(ctx, l.client, gen.LockInfoParams{Lock: k.Record, Queue: k.Queue, Max: shownWaiters})
	if err != nil {
		return Info{}, fmt.Errorf("luatomic: info of lock %q: %w", name, err)
	}
	return lockInfo(name, k.Record, r), nil
}

func lockInfo(name, key string, r gen.LockInfoResult) Info {
	info := Info{
		Name: name, Key: key, Held: r.Held, Owner: r.Owner, Fence: r.Fence, Note: r.Note,
		Remaining: r.Remaining, Waiting: int(r.Waiting),
	}
	for _, entry := range r.Entries {
		_, note, _ := strings.Cut(entry, "\n")
		info.Waiters = append(info.Waiters, note)
	}
	return info
}

// ForceRelease takes the lock away from whoever holds it and hands it to the next
// one who waits. The old holder's context ends at once, with ErrRevoked, if it keeps
// the lease; else it learns of it at its next call. It reports whether somebody held
// the lock. A fence other than 0 names the holder that is meant, so that a repeat
// does not hit its successor. Keys: lock:{name}, lockq:{name}.
func (l *Locker) ForceRelease(ctx context.Context, name string, fence int64) (bool, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return false, err
	}
	r, err := lease.force(ctx, "-", fence)
	return r.Done, err
}

// Steal takes the lock away from whoever holds it, past all who wait, in one
// round trip; the old holder is told as by ForceRelease.
// Keys: lock:{name}, lockq:{name}.
func (l *Locker) Steal(ctx context.Context, name string) (*Lease, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	r, err := lease.force(ctx, lease.token, 0)
	if err == nil {
		err = l.replicate(ctx, lease)
	}
	if err != nil {
		return nil, errors.Join(err, lease.undo(ctx, ""))
	}
	lease.fence = r.Fence
	return lease.taken(start, 0)
}

func (l *Lease) force(ctx context.Context, owner string, fence int64) (gen.LockForceResult, error) {
	o := &l.locker.opts
	r, err := gen.LockForce(ctx, l.locker.client, gen.LockForceParams{
		Lock: l.keys.Record, Queue: l.keys.Queue, Fence: fence, Owner: owner, TTL: o.TTL, Delay: o.LockDelay,
		Inbox: keys.LockInbox(o.Prefix), Note: o.Note,
	})
	if err != nil {
		return r, fmt.Errorf("luatomic: take lock %q away: %w", l.name, err)
	}
	return r, nil
}
