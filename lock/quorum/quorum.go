// Package quorum has locks on a majority of independent Redis servers: a lock survives the loss of the other servers.
// The servers must not replicate each other. Package lock works on one server, has more features and makes fewer
// assumptions. docs/lock-kin.md lists the assumptions of a quorum.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/calls"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

// ErrNoQuorum says that too few servers answered within NodeTimeout to grant a lock or to report who holds it.
var ErrNoQuorum = errors.New("luatomic: no majority of the servers answered in time")

// ErrClocks says that no majority of the servers has clocks that are close enough for the fences. Synchronize them with
// NTP.
var ErrClocks = errors.New("luatomic: the clocks of the servers differ too much")

// Options are the settings of a Quorum. The zero value is ready to use. A duration is at most ten years.
type Options struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// TTL is the length of a lease. Default 10 s; at least 1 ms.
	TTL time.Duration
	// Note tells other processes who the holder is. It is a host name, for example. At most 1024 bytes.
	Note string
	// MaxHold is the time after the acquire at which a lease ends, even if it is renewed. Zero is no limit.
	MaxHold time.Duration
	// NodeTimeout is how long one server may take. Default 250 ms; at most a third of TTL.
	NodeTimeout time.Duration
	// Poll is the longest time between two attempts of Acquire. Default 50 ms.
	Poll time.Duration
	// Observe is called for each event but lock.EventQueued, on the goroutine that caused it. It must not block.
	Observe func(lock.Event)
}

func (o *Options) setDefaults() {
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.TTL > time.Millisecond {
		o.TTL = o.TTL.Truncate(time.Millisecond) // the scripts count milliseconds
	}
	if o.Poll == 0 {
		o.Poll = 50 * time.Millisecond
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 250 * time.Millisecond
	}
	o.NodeTimeout = min(o.NodeTimeout, max(o.TTL/3, time.Millisecond))
}

const maxNote = 1024

// check returns the first setting that is out of range.
func (o *Options) check() error {
	if err := keeper.CheckSettings(
		keeper.Setting{Field: "TTL", Value: o.TTL, Min: time.Millisecond},
		keeper.Setting{Field: "MaxHold", Value: o.MaxHold},
		keeper.Setting{Field: "Poll", Value: o.Poll}, keeper.Setting{Field: "NodeTimeout", Value: o.NodeTimeout},
	); err != nil {
		return err
	}
	if len(o.Note) > maxNote {
		return &lua.SizeError{What: "Note", N: len(o.Note), Max: maxNote, Unit: "bytes"}
	}
	return nil
}

func (o *Options) observe(e lock.Event) {
	if o.Observe != nil {
		o.Observe(e)
	}
}

// Quorum acquires locks on a majority of servers. It is safe for concurrent use.
//
// A lease is valid while a majority of servers hold it. This process' monotonic clock measures it, from before the
// first request, minus what clocks may differ by. That rests on assumptions. Processes and the network are not delayed
// beyond the lease without noticing. The clocks of the servers run at about the same speed. A server that lost its
// memory stays away for a TTL. If a second holder could do harm, send Lease.Fence with each write. The fence is the
// greatest one of the majority and is written back to the majority. The next majority shares a server with this one, so
// its fence is greater.
//
// There are no semaphores on a quorum: majorities of two permits out of three servers can be granted to three
// holders.
type Quorum struct {
	clients []lua.Client
	opts    Options
	bad     error
	tokens  *keeper.Tokens
	keeper  *keeper.Keeper
	floor   keeper.Floor // the greatest fence that is known
	calls   *calls.Group
	life    context.Context // of calls to a slow server; ended by Close
	end     context.CancelFunc
}

// New returns a Quorum on the servers. Use an odd number of servers, and at least three to survive the loss of one. Nil
// options mean the defaults. Nothing is sent. When an option is out of range, or a client is nil or listed twice, each
// later call returns a [lua.ErrOutOfRange]. Set ContextTimeoutEnabled on the clients: otherwise a server that hangs
// keeps a connection busy until the ReadTimeout.
func New(clients []redis.UniversalClient, opts *Options) *Quorum {
	q := &Quorum{clients: clients, tokens: keeper.NewTokens(), calls: calls.New()}
	q.life, q.end = context.WithCancel(context.Background())
	if opts != nil {
		q.opts = *opts
	}
	q.opts.setDefaults()
	if q.bad = checkServers(clients); q.bad != nil {
		return q
	}
	q.bad = q.opts.check()
	q.keeper = keeper.NewKeeper(clients[0], keeper.Causes{
		Lost: lock.ErrLost, MaxHold: lock.ErrMaxHold, Released: lock.ErrReleased,
	})
	return q
}

// checkServers refuses clients that cannot form a majority. A client that is listed twice would vote twice.
func checkServers(clients []redis.UniversalClient) error {
	if len(clients) == 0 {
		return &lua.RangeError{Field: "clients", Value: "0", Min: "1"}
	}
	for i, client := range clients {
		if send.CheckClient(client) != nil {
			return fmt.Errorf("clients: number %d is nil: %w; give a client of each server", i, lua.ErrOutOfRange)
		}
		for j, other := range clients[:i] {
			if reflect.TypeOf(client).Comparable() && client == other {
				return fmt.Errorf("clients: number %d is number %d again: %w; give each server once", i, j,
					lua.ErrOutOfRange)
			}
		}
	}
	return nil
}

// Close stops the renewal of leases. Each Acquire that waits returns a lock.ErrClosed, and so does each later Try,
// Acquire and Do. Calls that are still on their way after their outcome was known, such as a release at a slow server,
// have NodeTimeout to finish. What such a server holds then ends with its lease. Close releases no lease; Release still
// does. Close does not close the clients. The error is always nil.
func (q *Quorum) Close() error {
	none := q.calls.Close()
	if q.keeper != nil {
		q.keeper.Close()
	}
	defer time.AfterFunc(q.opts.NodeTimeout, q.end).Stop()
	<-none
	q.end()
	return nil
}

func (q *Quorum) isClosed() bool {
	select {
	case <-q.calls.Closed():
		return true
	default:
		return false
	}
}

// majority is how many servers decide.
func (q *Quorum) majority() int { return len(q.clients)/2 + 1 }

// Try acquires the lock if it is free on a majority of the servers. It takes two round trips to all servers
// concurrently; each ends when a majority has decided. If Try does not get the lock, it returns a *lock.HeldError when
// a majority has answered, else an ErrNoQuorum joined with the errors of the servers. It releases in the background
// what servers granted. Two concurrent calls may both fail. When the key holds something else on so many servers that
// no majority is left, the error is not ErrNoQuorum but a lock.ErrNotALock or a lua.ErrWrongType. Extend and Release
// return those errors too. Keys: lock:{name} on each server. Cost: O(1).
func (q *Quorum) Try(ctx context.Context, name string) (*Lease, error) {
	l, err := q.newLease(name)
	if err != nil {
		return nil, err
	}
	if err := l.attempt(ctx, time.Now()); err != nil {
		return nil, err
	}
	return l, nil
}

// Acquire tries until it has the lock or ctx ends, with pauses of random length, also while no majority answers. A
// release notifies nobody: servers that do not know each other cannot agree on who is next. When ctx ends, Acquire
// returns the last error joined with the cause. When the Quorum is closed, it returns the last error joined with
// lock.ErrClosed. When the key holds something else on too many servers, it returns immediately; see Try. Keys:
// lock:{name} on each server. Cost of each attempt: O(1).
func (q *Quorum) Acquire(ctx context.Context, name string) (*Lease, error) {
	for begun := time.Now(); ; {
		l, err := q.newLease(name) // an earlier one may still be being released
		if err != nil {
			return nil, err
		}
		if err = l.attempt(ctx, begun); err == nil {
			return l, nil
		}
		if isForeign(err) && !errors.Is(err, ErrNoQuorum) {
			return nil, err
		}
		switch end := q.sleep(ctx, q.pause(err)); {
		case end == nil:
		case errors.Is(err, end):
			return nil, err
		default:
			return nil, errors.Join(err, end)
		}
	}
}

// sleep returns nil, or why there is no further attempt: the cause of ctx or lock.ErrClosed.
func (q *Quorum) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-q.calls.Closed():
	}
	switch {
	case ctx.Err() != nil:
		return clock.EndOf(ctx)
	case q.isClosed():
		return lock.ErrClosed
	}
	return nil
}

// pause is how long to wait after an attempt with that error: at most until the holder's lease ends.
func (q *Quorum) pause(err error) time.Duration {
	wait := q.opts.Poll/4 + rand.N(q.opts.Poll*3/4+1)
	if held := (*lock.HeldError)(nil); errors.As(err, &held) {
		wait = min(wait, held.Remaining)
	}
	return max(wait, time.Millisecond)
}

// Do acquires the lock as Acquire does, runs f, and releases the lock, also when f panics. It renews the lease while f
// runs. The context of f ends when the lease is lost. The error joins those of f, of the loss and of the release. Keys:
// lock:{name} on each server. Cost of each attempt: O(1).
func (q *Quorum) Do(ctx context.Context, name string, f func(context.Context, *Lease) error) error {
	l, err := q.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return l.state.Run(ctx, func(ctx context.Context) error { return f(ctx, l) })
}
