package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// ErrNoQuorum says that too few servers answered in time to hold a lock or to know
// that it is held.
var ErrNoQuorum = errors.New("luatomic: no majority of the servers answered in time")

// QuorumOptions are the settings of a Quorum. The zero value is ready to use.
type QuorumOptions struct {
	// Prefix, TTL, Note, MaxHold and Observe are as in LockerOptions.
	Prefix  string
	TTL     time.Duration
	Note    string
	MaxHold time.Duration
	Observe func(Event)
	// NodeTimeout is how long one server may take. Default 250 ms; never more than a
	// third of TTL.
	NodeTimeout time.Duration
	// Poll is the longest time between two attempts of Acquire. Default 50 ms.
	Poll time.Duration
}

// Quorum acquires locks on a majority of independent servers, so that a lock
// survives the loss of the others. The servers must not replicate each other. It is
// safe for concurrent use.
//
// A lease is valid while a majority of servers hold it, counted on this process'
// monotonic clock from before the first request, less what clocks may differ by. That
// rests on assumptions: processes and the network are not delayed beyond the lease
// without noticing, clocks of servers run at about the same speed, and a server that
// lost its memory stays away for a TTL. Where a wrong holder would do harm, send
// Lease.Fence along with each write: it is the greatest fence of the majority, which
// is written back to it, so that the next majority, which shares a server with this
// one, has a greater one.
//
// There are no semaphores on a quorum: majorities of two permits out of three servers
// can be given to three holders. Guard is of no use with a lease of a quorum, since
// one server alone does not know who holds it.
type Quorum struct {
	nodes  []lua.Client
	opts   QuorumOptions
	bad    error
	locker *Locker
	late   sync.WaitGroup
	life   context.Context // ended by Close
	end    context.CancelFunc
}

// NewQuorum returns a Quorum on the servers, an odd number of them, three at least to
// survive the loss of one. Nil options mean the defaults. Nothing is sent. The
// clients should have ContextTimeoutEnabled set: else a server that hangs binds a
// connection until its ReadTimeout.
func NewQuorum(clients []redis.UniversalClient, opts *QuorumOptions) *Quorum {
	q := &Quorum{nodes: clients}
	q.life, q.end = context.WithCancel(context.Background())
	if opts != nil {
		q.opts = *opts
	}
	o := &q.opts
	if len(clients) == 0 {
		q.bad = &lua.RangeError{Field: "clients", Value: "0", Min: "1"}
		return q
	}
	q.locker = New(clients[0], &Options{
		Prefix: o.Prefix, TTL: o.TTL, Note: o.Note, MaxHold: o.MaxHold, Poll: o.Poll, Observe: o.Observe,
	})
	q.locker.home = true // no server alone can say that a lease was taken away
	q.bad = q.locker.bad
	if o.NodeTimeout <= 0 {
		o.NodeTimeout = 250 * time.Millisecond
	}
	o.NodeTimeout = min(o.NodeTimeout, max(q.locker.opts.TTL/3, time.Millisecond))
	return q
}

// Close stops to keep leases. Calls that go on after their answer was known, such as
// a release on a server that is slow, have NodeTimeout to finish; what such a server
// holds then ends with its lease. It does not close the clients.
func (q *Quorum) Close() error {
	defer q.end()
	if q.locker == nil {
		return nil
	}
	err := q.locker.Close()
	timer := time.AfterFunc(q.opts.NodeTimeout, q.end)
	defer timer.Stop()
	q.late.Wait()
	return err
}

// majority is how many servers decide.
func (q *Quorum) majority() int { return len(q.nodes)/2 + 1 }

// newLease makes a lease that is not held yet.
func (q *Quorum) newLease(name string) (*Lease, error) {
	if q.bad != nil {
		return nil, fmt.Errorf("luatomic: quorum: %w", q.bad)
	}
	return q.locker.newLease(name)
}

// Try acquires the lock if a majority of the servers has it free: two round trips,
// to all servers at once, which end when a majority has decided. Else it returns a
// *HeldError, or ErrNoQuorum joined with what the servers said, and gives back what
// it got, in the background. Two that try at the same time may both fail.
// Keys: lock:{name} on each server. Cost: O(1).
func (q *Quorum) Try(ctx context.Context, name string) (*Lease, error) {
	lease, err := q.newLease(name)
	if err != nil {
		return nil, err
	}
	if err := q.attempt(ctx, lease, time.Now()); err != nil {
		return nil, err
	}
	return lease, nil
}

// Acquire tries until it has the lock or ctx ends, with pauses of random length, also
// while no majority answers. Nobody is told of a release: servers that do not know of
// each other cannot agree on who is next. When ctx ends it returns the last error
// joined with the cause.
func (q *Quorum) Acquire(ctx context.Context, name string) (*Lease, error) {
	lease, err := q.newLease(name)
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); ; {
		err := q.attempt(ctx, lease, begun)
		if err == nil {
			return lease, nil
		}
		if ctx.Err() == nil {
			wait := q.locker.opts.Poll/4 + rand.N(q.locker.opts.Poll*3/4+1)
			if held := (*HeldError)(nil); errors.As(err, &held) {
				wait = min(wait, held.Remaining)
			}
			clock.Sleep(ctx, max(wait, time.Millisecond))
		}
		if ctx.Err() != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

// Do acquires the lock, runs f and gives the lock back, as Locker.Do does.
func (q *Quorum) Do(ctx context.Context, name string, f func(context.Context, *Lease) error) error {
	lease, err := q.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return lease.run(ctx, f)
}

// attempt makes one attempt under a token of its own: what a former one left is given
// back meanwhile.
func (q *Quorum) attempt(ctx context.Context, l *Lease, begun time.Time) error {
	l.kind = newQuorumKind(q)
	l.token = l.locker.newToken()
	start := time.Now()
	r, err := l.kind.acquire(ctx, l, "")
	if err != nil {
		return fmt.Errorf("luatomic: acquire %q: %w", l.name, err)
	}
	if !r.Acquired {
		return l.held(r)
	}
	l.fence = r.Fence
	_, err = l.took(begun, l.ends(start, 0))
	return err
}

// answer is what a server said.
type answer[T any] struct {
	value T
	err   error
	node  int
}

// answers come as the servers give them.
type answers[T any] struct {
	came <-chan answer[T]
	left int
	stop <-chan struct{} // no answer counts after it
}

// ask calls all servers at once. Answers count for NodeTimeout; calls may go on for
// as long as they have patience.
func ask[T any](ctx context.Context, q *Quorum, patience time.Duration, call func(ctx context.Context, node int) (T, error)) *answers[T] {
	came := make(chan answer[T], len(q.nodes))
	counts, decided := context.WithTimeout(ctx, q.opts.NodeTimeout)
	ctx, cancel := context.WithTimeout(ctx, patience)
	stop := context.AfterFunc(q.life, cancel)
	var calls sync.WaitGroup
	for node := range q.nodes {
		calls.Go(func() {
			v, err := call(ctx, node)
			came <- answer[T]{v, err, node}
		})
	}
	q.late.Go(func() {
		calls.Wait()
		stop()
		cancel()
		decided()
	})
	return &answers[T]{came: came, left: len(q.nodes), stop: counts.Done()}
}

// next is the next answer; ok is false when there is none in time.
func (a *answers[T]) next() (answer[T], bool) {
	if a.left == 0 {
		return answer[T]{}, false
	}
	select {
	case v := <-a.came:
		a.left--
		return v, true
	case <-a.stop:
	}
	select { // what is there counts
	case v := <-a.came:
		a.left--
		return v, true
	default:
		return answer[T]{}, false
	}
}
