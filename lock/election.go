package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Election lets one process of many lead. It is the plain lock of its name, with the leader's value as its note. So
// Info, List, ForceRelease and Steal work on it, and the options MaxHold and LockDelay apply. It is safe for concurrent
// use.
type Election struct {
	locker *Locker
	name   string
}

// Election returns the election of that name. Nothing is sent.
func (l *Locker) Election(name string) *Election { return &Election{locker: l, name: name} }

// Leadership is the lease of a leader. Keep renews it. Do the leader's work under the context that Keep returns. Its
// methods are safe for concurrent use.
type Leadership struct {
	lease    *Lease
	election *Election
}

// Leader describes who leads. Its zero value says that nobody does.
type Leader struct {
	// Value is what the leader gave to Campaign, Lead or Proclaim.
	Value string
	// Fence is greater for each leader than for the one before; 0 when there is none.
	Fence int64
	// Remaining is what is left of the leader's lease, by the server's clock.
	Remaining time.Duration
}

// Campaign waits until it is elected or ctx ends, as Locker.Acquire does. The observers are notified in one more round
// trip, for which Campaign does not wait. The value has at most 1024 bytes. Keys: lock:{name}, lockq:{name}. Channel:
// lock:{name}:e. Cost: that of Locker.Acquire.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	lease, err := e.candidate(value)
	if err != nil {
		return nil, err
	}
	if _, err := lease.acquire(ctx); err != nil {
		return nil, err
	}
	e.notifyBehind(ctx, lease.request.keys)
	return &Leadership{lease, e}, nil
}

// Lead campaigns, runs f while it leads, and resigns. It renews the lease while f runs. The context of f ends when the
// leadership is lost. See Locker.Do. Keys: lock:{name}, lockq:{name}. Channel: lock:{name}:e. Cost: that of
// Locker.Acquire.
func (e *Election) Lead(ctx context.Context, value string, f func(context.Context, *Leadership) error) error {
	lease, err := e.candidate(value)
	if err != nil {
		return err
	}
	if _, err := lease.acquire(ctx); err != nil {
		return err
	}
	defer e.notify(ctx, lease.request.keys)
	return lease.run(ctx, func(ctx context.Context, lease *Lease) error {
		e.notifyBehind(ctx, lease.request.keys)
		return f(ctx, &Leadership{lease, e})
	})
}

// candidate makes the request of one candidate.
func (e *Election) candidate(value string) (*Lease, error) {
	if err := checkValue("campaign", e.name, value); err != nil {
		return nil, err
	}
	opts := e.locker.opts
	opts.Note = value
	return newLocker(e.locker.hub, opts).newLease(e.name)
}

// checkValue reports a value that is too long for the note that it becomes.
func checkValue(doing, name, value string) error {
	if len(value) <= maxNote {
		return nil
	}
	size := &lua.SizeError{What: "value", N: len(value), Max: maxNote, Unit: "bytes"}
	return fmt.Errorf("luatomic: %s %q: %w", doing, name, size)
}

// notify tells the observers to read who leads. If it fails, they read when the lease that they know of is over.
func (e *Election) notify(ctx context.Context, k keys.Lock) {
	e.locker.hub.publish(ctx, k.Observers(), "e")
}

// notifyBehind is notify for a leader that begins: it does not wait, since its lease is running.
func (e *Election) notifyBehind(ctx context.Context, k keys.Lock) {
	e.locker.hub.publishBehind(ctx, k.Observers(), "e")
}

// Name is the name of the election.
func (l *Leadership) Name() string { return l.lease.Name() }

// Key is the key of the lock: lock:{name}.
func (l *Leadership) Key() string { return l.lease.Key() }

// Token names this leadership among all others. Each campaign makes a new one.
func (l *Leadership) Token() string { return l.lease.Token() }

// GuardKey is the key that a guarded script reads; see [lua.Guard].
func (l *Leadership) GuardKey() string { return l.lease.GuardKey() }

// GuardToken is the token that a guarded script compares with the owner in GuardKey; see [lua.Guard].
func (l *Leadership) GuardToken() string { return l.lease.GuardToken() }

// Fence is greater for each leader than for the one before. See Lease.Fence.
func (l *Leadership) Fence() int64 { return l.lease.Fence() }

// Deadline is the latest end of the leadership by this process' clock, unless it is extended. See Lease.Deadline.
func (l *Leadership) Deadline() time.Time { return l.lease.Deadline() }

// Err is nil while the process leads, by its own clock. See Lease.Err.
func (l *Leadership) Err() error { return l.lease.Err() }

// Extend starts the TTL anew. See Lease.Extend. Keys: lock:{name}. Cost: O(1).
func (l *Leadership) Extend(ctx context.Context) error { return l.lease.Extend(ctx) }

// Keep renews the lease and returns a context that ends with ctx or with the leadership. See Lease.Keep.
func (l *Leadership) Keep(ctx context.Context) context.Context { return l.lease.Keep(ctx) }

// Proclaim changes the value of the leader, if it still leads, in one script. Then it notifies the observers, in a
// second round trip. If an attempt may still be on its way, a third round trip makes it void. An ErrLost says that the
// process no longer leads. An ErrRevoked says that the leadership was taken away; it is over then. After Resign the
// ErrLost matches ErrReleased. Keys: lock:{name}. Channel: lock:{name}:e. Cost: O(1).
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if l.Err() != nil {
		return l.Extend(ctx) // it sends nothing, and says why
	}
	if err := checkValue("proclaim", l.Name(), value); err != nil {
		return err
	}
	r, held := l.lease.again(), false
	err := r.voidAfter(ctx, func(ctx context.Context) (err error) {
		held, err = lockscript.Note(ctx, l.election.locker.hub.client, lockscript.NoteParams{
			Lock: l.Key(), Owner: l.Token(), Text: value, Request: r.token,
		})
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: proclaim %q: %w", l.Name(), recordError(err, l.Key()))
	case !held:
		return l.lost(ctx)
	}
	l.election.notify(ctx, l.lease.request.keys)
	return nil
}

// lost ends a leadership that the server no longer has. The error of an extension says why.
func (l *Leadership) lost(ctx context.Context) error {
	if err := l.Extend(ctx); errors.Is(err, ErrLost) {
		return err
	}
	lost := fmt.Errorf("%w: %q has another leader or none", ErrLost, l.Name())
	l.lease.state.End(lost)
	return lost
}

// Resign hands the leadership to the next candidate, as Lease.Release does, and notifies the observers. Keys:
// lock:{name}, lockq:{name}. Channel: lock:{name}:e. Cost: that of Lease.Release.
func (l *Leadership) Resign(ctx context.Context) error {
	defer l.election.notify(ctx, l.lease.request.keys)
	return l.lease.Release(ctx)
}

// Release is Resign.
func (l *Leadership) Release(ctx context.Context) error { return l.Resign(ctx) }

// Leader reads who leads. It returns the zero Leader when nobody leads. Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.locker.Info(ctx, e.name)
	if err != nil || !info.Held {
		return Leader{}, err
	}
	return Leader{Value: info.Note, Fence: info.Fence, Remaining: info.Remaining}, nil
}

// Observe yields who leads: first the present leader, then each change. A change is another leader, no leader, or
// another value. Observe misses a leader that came and went between two reads. It ends with ctx, or when the caller
// leaves the loop. When the Locker is closed, it yields ErrClosed and ends.
//
// Changes are published. Between them Observe sends one command for each lease that it sees: it reads again when the
// lease that it knows of should be over. That covers leaders that die and notifications that are lost. When a read
// fails, Observe yields the error and reads again, 5 s later at most. Where it may not subscribe, it reads every 5 s.
// Keys: lock:{name}, lockq:{name}. Channel: lock:{name}:e.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		h := e.locker.hub
		k, err := e.locker.keysOf(e.name)
		if err == nil {
			err = h.open()
		}
		if err != nil {
			yield(Leader{}, err)
			return
		}
		ctx, free := h.calls.Bind(ctx, ErrClosed)
		defer free()
		o := h.observers.add(k.Observers())
		defer o.remove()
		if e.observe(ctx, o, yield) && context.Cause(ctx) == ErrClosed {
			yield(Leader{}, ErrClosed)
		}
	}
}

// readAgain is the longest time between two reads of Observe after one that failed, and while it is not subscribed.
const readAgain = 5 * time.Second

// observe reads who leads until ctx ends or yield returns false. It reports whether yield wants more.
func (e *Election) observe(ctx context.Context, o *observer, yield func(Leader, error) bool) (more bool) {
	var last Leader
	for first := true; ctx.Err() == nil; {
		o.subscribe(ctx)
		now, err := e.Leader(ctx)
		changed := err == nil && (first || now.Fence != last.Fence || now.Value != last.Value)
		switch {
		case ctx.Err() != nil:
			return true
		case err != nil && !yield(Leader{}, err), changed && !yield(now, nil):
			return false
		case err == nil:
			last, first = now, false
		}
		wait := e.locker.opts.TTL
		if now.Fence != 0 {
			wait = now.Remaining + time.Millisecond
		}
		if err != nil || !o.subscribed { // no message comes for what it has missed
			wait = min(wait, readAgain)
		}
		o.wait(ctx, wait)
	}
	return true
}
