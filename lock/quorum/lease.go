package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

// Lease is a lock that a majority of the servers granted. It ends with Release or when its TTL is over, whichever
// comes first; Extend and Keep renew it before that. Its methods are safe for concurrent use.
//
// It cannot guard scripts (see [lua.Guard]): one server alone does not know who holds the lock.
type Lease struct {
	q     *Quorum
	name  string
	keys  keys.Lock
	token string
	nodes []nodeState
	fence int64
	state keeper.Entry
}

// nodeState is the state of a lease at one server.
type nodeState struct {
	asked chan struct{} // closed when the acquire there has ended
	may   bool          // the server may have granted the lock; set before asked is closed
	again bool          // its acquire was sent twice, and a copy may still arrive; likewise

	releasing sync.Mutex // held by a release; one that was slow may go on when the next one begins
	released  bool       // a release of this lease has found it there
}

// newLease makes the request of one attempt. Nothing is sent, and nothing is held yet.
func (q *Quorum) newLease(name string) (*Lease, error) {
	if q.bad != nil {
		return nil, fmt.Errorf("luatomic: quorum: %w", q.bad)
	}
	k, err := keys.NewLock(q.opts.Prefix, "", name)
	if err != nil {
		return nil, fmt.Errorf("luatomic: lock: %w", err)
	}
	l := &Lease{q: q, name: name, keys: k, token: q.tokens.Next(), nodes: make([]nodeState, len(q.clients))}
	for i := range l.nodes {
		l.nodes[i].asked = make(chan struct{})
	}
	return l, nil
}

// attempt makes the one attempt of the lease, for a caller that has waited since begun.
func (l *Lease) attempt(ctx context.Context, begun time.Time) error {
	if !l.q.calls.Begin() {
		return fmt.Errorf("luatomic: acquire %q: %w", l.name, lock.ErrClosed)
	}
	defer l.q.calls.End()
	sent := time.Now()
	held, err := l.acquire(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: acquire %q: %w", l.name, err)
	case held != nil:
		return held
	}
	o := &l.q.opts
	terms := keeper.Terms{Name: l.name, TTL: o.TTL, MaxHold: o.MaxHold}
	l.state.Begin(l.q.keeper, (*holder)(l), terms, keeper.End(sent, o.TTL))
	o.observe(lock.Event{Kind: lock.EventAcquired, Name: l.name, Wait: time.Since(begun)})
	return nil
}

// Name is the name of the lock.
func (l *Lease) Name() string { return l.name }

// Key is its key on each server: lock:{name}.
func (l *Lease) Key() string { return l.keys.Record }

// Token identifies this lease. Each attempt makes a new token.
func (l *Lease) Token() string { return l.token }

// Fence is the greatest fence of the majority. It is greater for each holder of the lock than for the holder before.
// Send it with each write to what the lock protects, and let the store refuse a fence that is smaller than the greatest
// one that it has seen.
func (l *Lease) Fence() int64 { return l.fence }

// Deadline is the latest time at which the lease ends, by this process' monotonic clock. It counts from before the
// first request was sent, and is earlier by a thousandth of the lease's length, because clocks run at different speeds.
// An extension moves it.
func (l *Lease) Deadline() time.Time { return l.state.Deadline() }

// Err is nil while the lease holds by this process' clock. After that it is a lock.ErrLost or lock.ErrMaxHold, or
// lock.ErrReleased after Release. It reads the clock itself and sends nothing.
func (l *Lease) Err() error { return l.state.Err() }

// Extend restarts the TTL of the lease on a majority of the servers. It returns a lock.ErrLost when the lease is over
// or too few servers hold it. It returns an ErrNoQuorum when too few servers answer in time: the lease then ends at its
// old deadline unless it is extended before. Extend returns when ctx ends, although the calls go on. Keys: lock:{name}
// on each server. Cost: O(1).
func (l *Lease) Extend(ctx context.Context) error {
	extended := make(chan error, 1)
	if ctx.Err() == nil {
		go func() { extended <- l.state.Extend(ctx) }()
	}
	select {
	case err := <-extended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("luatomic: extend %q: %w", l.name, clock.EndOf(ctx))
	}
}

// Keep renews the lease three times in its TTL, until Release or the end of ctx. It returns a context that ends with
// ctx or with the lease. context.Cause then says why: lock.ErrLost when too few servers hold the lease or the deadline
// passed without a majority of answers, else lock.ErrMaxHold or lock.ErrReleased. The end of ctx does not release the
// lease: without a Release, the lease ends when the rest of its TTL is over.
func (l *Lease) Keep(ctx context.Context) context.Context { return l.state.KeepWhile(ctx) }

// Release gives the lock back on every server that granted it or may have granted it. It also works after ctx has
// ended. It returns when a majority has answered. Calls to slower servers go on in the background until the lease is
// over. After a Release that returned nil, another Release returns nil too. A lock.ErrLost says that the lease was over
// before the release. Each later Release then returns it again. After any other error Release can be called again.
// Keys: lock:{name}, lockq:{name} on each server. Cost: O(1).
func (l *Lease) Release(ctx context.Context) error { return l.state.Release(ctx) }

// holder is a Lease as its keeper sees it.
type holder Lease

// Server names the servers of the quorum.
func (h *holder) Server(context.Context) string { return "quorum " + h.q.tokens.Process() }

// Extend asks each server through its own client and does not use b.
func (h *holder) Extend(_ *lua.Batch, ttl time.Duration) (outcome func() error) {
	return (*Lease)(h).extend(ttl)
}

// Release gives the lock back on each server.
func (h *holder) Release(ctx context.Context) error { return (*Lease)(h).release(ctx) }

// Ended reports the end of the lease. A lost lease is settled in the background: the call or the renewal that noticed
// the loss does not wait.
func (h *holder) Ended(why error, held time.Duration) {
	e := lock.Event{Kind: lock.EventReleased, Name: h.name, Held: held}
	if errors.Is(why, lock.ErrLost) {
		e.Kind, e.Err = lock.EventLost, why
		(*Lease)(h).settle()
	}
	h.q.opts.observe(e)
}
