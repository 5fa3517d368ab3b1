package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/lease"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/lua"
)

// Lease is a lock that was acquired, or a permit of a Semaphore or an RWLock. It ends with Release or when its TTL is
// over, whichever comes first; Extend and Keep renew it before that. Its methods are safe for concurrent use.
type Lease struct {
	request request
	hub     *hub
	fence   int64
	state   lease.Lease
}

// newLease makes the request of one acquire. Nothing is sent, and nothing is held yet.
func (l *Locker) newLease(name string) (*Lease, error) {
	k, err := keys.NewLock(l.opts.Prefix, l.opts.Tag, name)
	if err == nil {
		err = l.bad
	}
	if err != nil {
		return nil, fmt.Errorf("luatomic: lock: %w", err)
	}
	h := l.hub
	lease := &Lease{request: h.request(name, k, h.tokens.Next(), &l.opts, &h.plain), hub: h}
	lease.request.own = " " + lease.request.token + l.tail
	return lease, nil
}

// again is a request about the lock of the lease, under a token of its own.
func (l *Lease) again() request {
	of := &l.request
	return l.hub.request(of.name, of.keys, l.hub.tokens.Next(), of.opts, of.scripts)
}

// try makes one attempt. It is not bound to the Locker, which costs as much as all else that is allocated here: it
// waits for one answer only, and Close has it give back what that grants.
func (l *Lease) try(ctx context.Context) (*Lease, error) {
	if !l.hub.calls.Begin() {
		return nil, ErrClosed
	}
	defer l.hub.calls.End()
	begun := time.Now()
	g, held, err := l.request.try(ctx)
	switch {
	case err != nil:
		return nil, err
	case held != nil:
		l.request.settle(ctx)
		return nil, held
	}
	return l.open(ctx, begun, g)
}

// acquire waits for the lock. A lease that another holder's release hands over lasts for Claim; it is extended to the
// whole TTL at once, which confirms it, and the caller does not wait for that.
func (l *Lease) acquire(ctx context.Context) (*Lease, error) {
	ctx, leave, err := l.hub.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	begun := time.Now()
	g, err := l.hub.wait(ctx, &l.request)
	if err != nil {
		l.request.settle(ctx)
		return nil, err
	}
	if _, err := l.open(ctx, begun, g); err != nil {
		return nil, err
	}
	if g.claim {
		go l.confirm(context.WithoutCancel(ctx), g.deadline)
	}
	return l, nil
}

// open begins the lease, unless the Locker was closed meanwhile: then the grant is given back.
func (l *Lease) open(ctx context.Context, begun time.Time, g grant) (*Lease, error) {
	if err := l.hub.open(); err != nil {
		return nil, errors.Join(err, l.request.withdraw(ctx, ""))
	}
	return l.begin(begun, g), nil
}

// confirm extends a lease that was handed over.
func (l *Lease) confirm(ctx context.Context, deadline time.Time) {
	if l.Err() != nil {
		return // it is released already
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_ = l.state.Extend(ctx) // without an answer the lease ends at its deadline, unless it is renewed before
}

// do waits for the lock and runs f under it.
func (l *Lease) do(ctx context.Context, f func(context.Context, *Lease) error) error {
	if _, err := l.acquire(ctx); err != nil {
		return err
	}
	return l.run(ctx, f)
}

// run runs f under the lease.
func (l *Lease) run(ctx context.Context, f func(context.Context, *Lease) error) error {
	return l.state.Run(ctx, func(ctx context.Context) error {
		l.hub.subscribeInbox()
		return f(ctx, l)
	})
}

// begin starts the lease that was granted to a caller that has waited since begun.
func (l *Lease) begin(begun time.Time, g grant) *Lease {
	r := &l.request
	l.fence = g.fence
	r.floor.Note(g.fence)
	terms := lease.Terms{Name: r.name, TTL: r.opts.TTL, MaxHold: r.opts.MaxHold}
	l.state.Begin(l.hub.keeper, (*holder)(l), terms, g.deadline)
	r.opts.observe(Event{Kind: EventAcquired, Name: r.name, Wait: time.Since(begun)})
	return l
}

// Name is the name of the lock, semaphore or read-write lock.
func (l *Lease) Name() string { return l.request.name }

// Key is its key in Redis: lock:{name}, sem:{name} or rw:{name}.
func (l *Lease) Key() string { return l.request.keys.Record }

// Token names this lease among all others. Each acquire makes a new one.
func (l *Lease) Token() string { return l.request.token }

// GuardKey is the key that a guarded script reads; see [lua.Guard].
func (l *Lease) GuardKey() string { return l.request.keys.Record }

// GuardToken is the token that a guarded script compares with the owner in GuardKey; see [lua.Guard].
func (l *Lease) GuardToken() string { return l.request.token }

// Fence is greater for each holder of the lock than for the one before. Send it along with each write to what the
// lock protects, and let the store refuse a fence that is smaller than the greatest it has seen: a holder that was
// paused past its lease then does no harm.
func (l *Lease) Fence() int64 { return l.fence }

// Deadline is the latest end of the lease by this process' monotonic clock: counted from before the request was sent,
// and earlier by a thousandth of its length, because clocks run at different speeds. An extension moves it.
func (l *Lease) Deadline() time.Time { return l.state.Deadline() }

// Err is nil while the lease holds by this process' clock. After that it is an ErrLost, ErrRevoked or ErrMaxHold, or
// ErrReleased after Release. It reads the clock itself, so it is right at the first check after the process was
// paused. It sends nothing.
func (l *Lease) Err() error { return l.state.Err() }

// Extend starts the TTL of the lease anew, in one script. It returns an ErrLost when the lease is over, also when
// nobody has acquired the lock since: what was unprotected for a moment was unprotected. After Release it returns an
// ErrLost that matches ErrReleased, and sends nothing. After a lost reply the call
// is repeated. Keys: lock:{name}. Cost: O(1); of a permit O(log n) of the holders.
func (l *Lease) Extend(ctx context.Context) error { return l.state.Extend(ctx) }

// Keep renews the lease three times in its TTL until Release or the end of ctx, and returns a context that ends with
// ctx or with the lease. context.Cause then says why: ErrLost when the server reported the loss or the deadline passed
// without an answer, else ErrRevoked, ErrMaxHold or ErrReleased. The end of ctx does not release the lease: without a
// Release it ends after what is left of its TTL. A second Keep returns a context of its own; the lease is renewed until
// the last of them has ended.
//
// The leases of a client are renewed together, 500 in one round trip, by one goroutine for each server that runs while
// there are any. A server that hangs ends no lease of another one.
func (l *Lease) Keep(ctx context.Context) context.Context {
	kept := l.state.KeepWhile(ctx)
	if l.Err() == nil {
		l.hub.subscribeInbox()
	}
	return kept
}

// Release gives the lock back, and hands it to the next waiter in the same script. It also works after ctx has ended,
// the usual case in a deferred call: it keeps the values of ctx but not its end. While the server does not answer, the
// call is repeated for 10 s, and the last attempt has the time-out of the client: 15 s where that is 5 s. A Release
// beside another one waits for it and returns the same. One after a Release that returned nil is nil. An ErrLost says
// that the lease was over before, so that another holder may have overlapped, and stays; after any other error Release
// can be called again. Keys: lock:{name}, lockq:{name}. Cost: O(log n) of the waiters.
func (l *Lease) Release(ctx context.Context) error { return l.state.Release(ctx) }

// holder is a Lease as its keeper sees it.
type holder Lease

// Server names the server that has the lock.
func (h *holder) Server(ctx context.Context) string {
	_, name, _ := nodes.Of(ctx, h.hub.client, h.request.keys.Record) // without a server, the call has the error
	return name
}

// Extend adds the extension to b.
func (h *holder) Extend(b *lua.Batch, ttl time.Duration) (outcome func() error) {
	return h.request.scripts.extend(b, &h.request, ttl)
}

// Release gives the lock back.
func (h *holder) Release(ctx context.Context) error {
	return h.request.scripts.release(ctx, &h.request, h.fence)
}

// Ended reports the end of the lease. One that is lost is settled behind the call or the renewal that noticed it.
func (h *holder) Ended(why error, held time.Duration) {
	e := Event{Kind: EventReleased, Name: h.request.name, Held: held}
	if errors.Is(why, ErrLost) {
		e.Kind, e.Err = EventLost, why
		if h.request.noted.resent.Load() {
			go h.request.settle(context.Background())
		}
	}
	h.request.opts.observe(e)
}

// hasToken reports whether it is the lease with the token, at the key unless that is empty: the leases of AcquireAll
// have one token.
func (h *holder) hasToken(token, key string) bool {
	return h.request.token == token && (key == "" || h.request.keys.Record == key)
}
