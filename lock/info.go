package lock

import (
	"context"
	"fmt"
	"strings"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Info describes a lock at the time that it was read.
type Info struct {
	Name, Key string
	// Held reports whether the lock is held; Owner to Remaining describe the holder.
	Held bool
	// Owner is the Lease.Token of the holder.
	Owner string
	// Fence is that of the holder, or of the last holder if the lock is not held. It is 0 where nothing is stored of
	// the lock: a released lock leaves nothing, unless Options.Afterlife is set.
	Fence int64
	// Note is the holder's Options.Note.
	Note string
	// Remaining is what is left of the lease, or of the lock delay after it, by the server's clock.
	Remaining time.Duration
	// Waiting is the length of the queue, Waiters the notes of the first ten waiters.
	Waiting int
	Waiters []string
}

const shownWaiters = 10

// Info reads the holder of a lock and its queue, in one script. It changes nothing. A lock of which nothing is stored
// looks free, with no fence. Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (l *Locker) Info(ctx context.Context, name string) (Info, error) {
	k, err := l.keysOf(name)
	if err != nil {
		return Info{}, err
	}
	r, err := lockscript.Info(ctx, l.hub.client, lockscript.InfoParams{Lock: k.Record, Queue: k.Queue,
		Max: shownWaiters})
	if err != nil {
		return Info{}, fmt.Errorf("luatomic: info of lock %q: %w", name, recordError(err, k.Record))
	}
	return lockInfo(name, k.Record, r), nil
}

func lockInfo(name, key string, r lockscript.InfoResult) Info {
	return Info{
		Name: name, Key: key, Held: r.Held, Owner: r.Owner, Fence: r.Fence, Note: r.Note,
		Remaining: r.Remaining, Waiting: int(r.Waiting), Waiters: lockWaiters(r.Entries),
	}
}

// lockWaiters returns the notes in entries of a lock's queue.
func lockWaiters(entries []string) []string {
	var notes []string
	for _, entry := range entries {
		fields := strings.SplitN(entry, " ", 5)
		notes = append(notes, fields[len(fields)-1])
	}
	return notes
}

// waiterNotes returns the notes in entries of a semaphore's queue.
func waiterNotes(entries []string) []string {
	var notes []string
	for _, entry := range entries {
		_, note, _ := strings.Cut(entry, "\n")
		notes = append(notes, note)
	}
	return notes
}

// ForceRelease takes the lock from its holder and hands it to the next waiter, in one script. It reports whether the
// lock was held. If the holder keeps its lease, the context of that lease ends with ErrRevoked as soon as the process
// is notified. Otherwise the holder learns of the loss from its next call.
//
// A fence other than 0 names the holder that is meant, so a repeat does not end the lease of the next holder. When the
// reply to the first request was lost and the repeat does not find that holder, the error matches
// lua.ErrOutcomeUnknown: the lease is over, and Info says who has the lock now.
//
// Keys: lock:{name}, lockq:{name}. Cost: that of Lease.Release, and a PUBLISH, for whose reply it waits a second at
// most.
func (l *Locker) ForceRelease(ctx context.Context, name string, fence int64) (bool, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return false, err
	}
	var again send.Resent
	r, err := l.hub.plain.force(send.WatchResent(ctx, &again), &lease.request, false, fence)
	if err == nil && !r.Done && bool(again) && fence != 0 {
		err = fmt.Errorf("%w: the reply was lost, and the holder with the fence %d is gone", lua.ErrOutcomeUnknown,
			fence)
	}
	if err != nil {
		return false, fmt.Errorf("luatomic: force release %q: %w", name, err)
	}
	if r.Done {
		l.hub.notifyForced(ctx, &lease.request, r.Token)
	}
	return r.Done, nil
}

// Steal takes the lock from its holder for this caller, before all waiters, in one script. The old holder is notified
// as by ForceRelease. When Steal returns an error, the holder may have lost the lock nevertheless. Only a
// lua.ErrNotExecuted says that nothing was changed. Keys: lock:{name}, lockq:{name}. Cost: O(1), and a PUBLISH, for
// whose reply it waits a second at most.
func (l *Locker) Steal(ctx context.Context, name string) (*Lease, error) {
	ctx, leave, err := l.hub.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	r := &lease.request
	begun := time.Now()
	g, err := l.steal(ctx, r)
	if err == nil {
		err = l.hub.plain.replicate(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("luatomic: steal %q: %w", name, r.undone(ctx, err, ""))
	}
	return lease.open(ctx, begun, g)
}

// steal takes the lock in time, as lease.InTime defines it.
func (l *Locker) steal(ctx context.Context, r *request) (g grant, err error) {
	r.noted.Context = ctx
	keeper.InTime(func(sent time.Time) time.Time {
		var forced lockscript.ForceResult
		forced, err = l.hub.plain.force(&r.noted, r, true, 0)
		r.noteOutcome(forced.Fence != 0, err)
		if err == nil && forced.Fence == 0 {
			err = errVoid
		}
		if err != nil {
			return time.Time{}
		}
		l.hub.floor.Note(forced.Fence)
		l.hub.notifyForced(ctx, r, forced.Token)
		g = r.granted(sent, lockscript.AcquireResult{Fence: forced.Fence, Remaining: forced.Remaining})
		return g.deadline
	})
	return g, err
}
