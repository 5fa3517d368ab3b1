package lock

import (
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// Lease is the hold on a lock that was acquired, or on a permit of a Semaphore or an RWLock. It ends with Release or
// when its TTL is over, whichever comes first. Extend and Keep renew it before that. Its methods are safe for
// concurrent use.
type Lease struct {
	request request
	hub     *hub
	fence   int64
	state   keeper.Entry
}

// newLease makes the request of one acquire. Nothing is sent, and nothing is held yet.
func (l *Locker) newLease(name string) (*Lease, error) {
	k, err := l.keysOf(name)
	if err != nil {
		return nil, err
	}
	h := l.hub
	lease := &Lease{request: h.request(name, k, h.tokens.Next(), &l.opts, &h.plain), hub: h}
	lease.request.own = " " + lease.request.token + l.tail
	return lease, nil
}

// again makes another request for the lock of the lease, under a token of its own.
func (l *Lease) again() request {
	of := &l.request
	return l.hub.request(of.name, of.keys, l.hub.tokens.Next(), of.opts, of.scripts)
}

// try makes one attempt. Its context is not bound to the Locker: that would cost as much as all other allocations here.
// It waits for one answer only. When the Locker was closed meanwhile, try gives back what the answer grants.
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

// acquire waits for the lock. A lease that another holder's release hands over lasts for Claim. acquire extends it to
// the whole TTL immediately, which confirms it. The caller does not wait for that.
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

// open begins the lease. When the Locker was closed meanwhile, it gives the grant back.
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
	terms := keeper.Terms{Name: r.name, TTL: r.opts.TTL, MaxHold: r.opts.MaxHold}
	l.state.Begin(l.hub.keeper, (*holder)(l), terms, g.deadline)
	r.opts.observe(Event{Kind: EventAcquired, Name: r.name, Wait: time.Since(begun)})
	return l
}

// Name is the name of the lock, semaphore or read-write lock.
func (l *Lease) Name() string { return l.request.name }

// Key is its key in Redis: lock:{name}, sem:{name} or rw:{name}.
func (l *Lease) Key() string { return l.request.keys.Record }

// Token identifies this lease. Each acquire makes a new token.
func (l *Lease) Token() string { return l.request.token }

// GuardKey is the key that a guarded script reads; see [lua.Guard].
func (l *Lease) GuardKey() string { return l.request.keys.Record }

// GuardToken is the token that a guarded script compares with the owner in GuardKey; see [lua.Guard].
func (l *Lease) GuardToken() string { return l.request.token }

// Fence is greater for each holder of the lock than for the holder before. Send it with each write to what the lock
// protects, and let the store refuse a fence that is smaller than the greatest one that it has seen. Then a holder that
// was paused beyond the end of its lease does no harm.
func (l *Lease) Fence() int64 { return l.fence }

// Deadline is the latest time at which the lease ends, by this process' monotonic clock. It counts from before the
// request was sent, and is earlier by a thousandth of the lease's length, because clocks run at different speeds. An
// extension moves it.
func (l *Lease) Deadline() time.Time { return l.state.Deadline() }

// Err is nil while the lease holds by this process' clock. After that it is an ErrLost, ErrRevoked or ErrMaxHold, or
// ErrReleased after Release. Err reads the clock itself, so it is right immediately after a pause of the process. It
// sends nothing.
func (l *Lease) Err() error { return l.state.Err() }

// Extend restarts the TTL of the lease, in one script. It returns an ErrLost when the lease is over, even when nobody
// has acquired the lock since: the work was unprotected for a moment. After Release it returns an ErrLost that matches
// ErrReleased, and sends nothing. After a lost reply it repeats the call. Keys: lock:{name}. Cost: O(1); for a permit
// O(log n) of the holders.
func (l *Lease) Extend(ctx context.Context) error { return l.state.Extend(ctx) }

// Keep renews the lease three times in its TTL, until Release or the end of ctx. It returns a context that ends with
// ctx or with the lease. context.Cause then says why: ErrLost when the server reported the loss or the deadline passed
// without an answer, else ErrRevoked, ErrMaxHold or ErrReleased. The end of ctx does not release the lease: without a
// Release, the lease ends when the rest of its TTL is over. A second Keep returns another context. The lease is renewed
// until the last of these contexts has ended.
//
// The leases of a client are renewed together, 500 in one round trip. One goroutine for each server renews them, and
// runs only while there are leases to renew. A server that hangs ends no lease at another server.
func (l *Lease) Keep(ctx context.Context) context.Context {
	kept := l.state.KeepWhile(ctx)
	if l.Err() == nil {
		l.hub.subscribeInbox()
	}
	return kept
}

// Release gives the lock back, and hands it to the next waiter in the same script. It also works after ctx has ended,
// which is usual in a deferred call: it uses the values of ctx but not its end. While the server does not answer,
// Release repeats the call for 10 s. The last attempt has the time-out of the client: with a time-out of 5 s, Release
// takes up to 15 s.
//
// A concurrent second Release waits for the first one and returns the same error. After a Release that returned nil,
// another Release returns nil too. An ErrLost says that the lease was over before the release, so another holder may
// have overlapped. Each later Release then returns it again. After any other error Release can be called again. Keys:
// lock:{name}, lockq:{name}. Cost: O(1), and O(n) of the dead waiters before the next holder; for a permit O(log n) of
// the holders and the waiters.
func (l *Lease) Release(ctx context.Context) error { return l.state.Release(ctx) }

// holder is a Lease as its keeper sees it.
type holder Lease

// Server names the server that has the lock.
func (h *holder) Server(ctx context.Context) string {
	_, name, _ := servers.Of(ctx, h.hub.client, h.request.keys.Record) // without a server, the call has the error
	return name
}

// Extend adds the extension to b.
func (h *holder) Extend(b *lua.Batch, ttl time.Duration) (outcome func() error) {
	return h.request.scripts.extend(b, &h.request, ttl)
}

// Release gives the lock back. If the lease was lost, the lock is closed for the LockDelay, which a release would end.
func (h *holder) Release(ctx context.Context) error {
	if lost := h.state.Err(); h.request.opts.LockDelay > 0 && errors.Is(lost, ErrLost) && !errors.Is(lost, ErrMaxHold) {
		return nil
	}
	return h.request.scripts.release(ctx, &h.request, h.fence)
}

// Ended reports the end of the lease. A lost lease is settled in the background: the call or the renewal that noticed
// the loss does not wait.
func (h *holder) Ended(why error, held time.Duration) {
	e := Event{Kind: EventReleased, Name: h.request.name, Held: held}
	if errors.Is(why, ErrLost) {
		e.Kind, e.Err = EventLost, why
		if h.request.noted.resent.Load() {
			go h.request.settleLost(context.Background())
		}
	}
	h.request.opts.observe(e)
}

// hasToken reports whether the lease has the token and, unless key is empty, the key: all leases of an AcquireAll can
// have the same token.
func (h *holder) hasToken(token, key string) bool {
	return h.request.token == token && (key == "" || h.request.keys.Record == key)
}
