package lock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Election chooses one of many. It is the plain lock of its name, with the leader's
// value as its note: Info, List, ForceRelease and Steal work on it, and so do the
// options MaxHold, LockDelay and Priority. It is safe for concurrent use.
type Election struct {
	locker *Locker
	name   string
}

// Election returns the election of that name. Nothing is sent.
func (l *Locker) Election(name string) *Election { return &Election{locker: l, name: name} }

// Leadership is the lease of a leader. Keep renews it; the context that Keep returns
// is the one to lead under.
type Leadership struct {
	*Lease
	election *Election
}

// Leader is who leads. Its zero value says that nobody does.
type Leader struct {
	// Value is what the leader gave to Campaign or Proclaim.
	Value string
	// Fence grows with every leader; 0 when there is none.
	Fence int64
	// Remaining is what is left of the leader's lease.
	Remaining time.Duration
}

// Campaign waits until it is elected or ctx ends, as Locker.Acquire does. Those who
// observe are told: one round trip more. The value has 1024 bytes at most.
// Keys: lock:{name}, lockq:{name}. Channel: lock:{name}:e.
func (e *Election) Campaign(ctx context.Context, value string) (*Leadership, error) {
	lease, err := e.candidate(value)
	if err != nil {
		return nil, err
	}
	if _, err := lease.wait(ctx, lease.locker.opts.TTL); err != nil {
		return nil, err
	}
	e.tell(ctx, lease.keys)
	return &Leadership{lease, e}, nil
}

// Lead campaigns, runs f while it leads, and resigns. It renews the lease while f
// runs; f's context ends when the leadership is lost. See Locker.Do.
func (e *Election) Lead(ctx context.Context, value string, f func(context.Context, *Leadership) error) error {
	lease, err := e.candidate(value)
	if err != nil {
		return err
	}
	defer func() { e.tell(ctx, lease.keys) }()
	return lease.do(ctx, func(ctx context.Context, lease *Lease) error {
		e.tell(ctx, lease.keys)
		return f(ctx, &Leadership{lease, e})
	})
}

// candidate makes the lease of one who wants to lead.
func (e *Election) candidate(value string) (*Lease, error) {
	opts := e.locker.opts
	opts.Note = value
	return e.locker.With(opts).newLease(e.name)
}

// tell lets those who observe look now. Where it fails they look when the lease that
// they know of is over.
func (e *Election) tell(ctx context.Context, k keys.Lock) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	_ = e.locker.client.Publish(ctx, k.Observers(), "e").Err()
}

const tellTimeout = time.Second

// Proclaim changes the value of the leader. ErrLost says that it does not lead any
// more. Keys: lock:{name}. Cost: O(1), two round trips.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if err := l.Err(); err != nil {
		return err
	}
	if len(value) > maxNote {
		return fmt.Errorf("luatomic: proclaim %q: %w", l.name, &lua.SizeError{What: "value", N: len(value), Max: maxNote, Unit: "bytes"})
	}
	held, err := gen.LockNote(ctx, l.locker.client, gen.LockNoteParams{Lock: l.key, Owner: l.token, Note: value})
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: proclaim %q: %w", l.name, err)
	case !held:
		lost := fmt.Errorf("%w: %q has another leader or none", ErrLost, l.name)
		l.end(lost)
		return lost
	}
	l.election.tell(ctx, l.keys)
	return nil
}

// Resign gives the leadership to the next candidate who waits, as Lease.Release
// does, and tells those who observe.
func (l *Leadership) Resign(ctx context.Context) error {
	defer l.election.tell(ctx, l.keys)
	return l.Lease.Release(ctx)
}

// Release is Resign.
func (l *Leadership) Release(ctx context.Context) error { return l.Resign(ctx) }

// Leader reads who leads; the zero Leader when nobody does.
// Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	info, err := e.locker.Info(ctx, e.name)
	if err != nil || !info.Held {
		return Leader{}, err
	}
	return Leader{Value: info.Note, Fence: info.Fence, Remaining: info.Remaining}, nil
}

// Observe yields who leads, at once and then each time that another leads, that
// nobody does, or that the leader proclaims another value. A leader that came and
// went between two looks is not seen. It ends with ctx, or when the loop is left.
//
// Between changes it sends one command for each lease that it sees: it is told of
// changes by PUBLISH, and looks again when the lease it knows of should be over,
// which covers leaders that die and messages that are lost. Where a look fails, it
// yields the error and goes on with the next.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		k, err := keys.NewLock(e.locker.opts.Prefix, e.locker.opts.Tag, e.name)
		if err == nil {
			err = e.locker.bad // it looks once in a TTL
		}
		if err != nil {
			yield(Leader{}, fmt.Errorf("luatomic: lock: %w", err))
			return
		}
		o := e.locker.observer(k.Observers())
		defer o.leave()
		var last Leader
		for first := true; ctx.Err() == nil; {
			o.join(ctx)
			now, err := e.Leader(ctx)
			changed := err == nil && (first || now.Fence != last.Fence || now.Value != last.Value)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !yield(Leader{}, err), changed && !yield(now, nil):
				return
			case err == nil:
				last, first = now, false
			}
			wait := e.locker.opts.TTL
			if err == nil && now.Fence != 0 {
				wait = now.Remaining + time.Millisecond
			}
			o.wait(ctx, wait)
		}
	}
}

// observer is one who looks when it is told.
type observer struct {
	hub     *lockHub
	channel string
	told    chan struct{}
	joined  bool
}

func (h *lockHub) observer(channel string) *observer {
	o := &observer{hub: h, channel: channel, told: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.observers == nil {
		h.observers = make(map[*observer]struct{})
	}
	h.observers[o] = struct{}{}
	return o
}

// join listens, where that is allowed.
func (o *observer) join(ctx context.Context) {
	if o.joined {
		return
	}
	if o.joined = o.hub.ears.Join(ctx, o.channel) == nil; !o.joined {
		o.hub.ears.Leave(o.channel)
	}
}

func (o *observer) leave() {
	o.hub.mu.Lock()
	delete(o.hub.observers, o)
	o.hub.mu.Unlock()
	if o.joined {
		o.hub.ears.Leave(o.channel)
	}
}

// wait returns when it is told, when d is over or when ctx is.
func (o *observer) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.told:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// tellObserversLocked lets those on the channel look.
func (h *lockHub) tellObserversLocked(channel string) {
	for o := range h.observers {
		if o.channel == channel {
			select {
			case o.told <- struct{}{}:
			default:
			}
		}
	}
}
