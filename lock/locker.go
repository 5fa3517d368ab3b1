package lock

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// printable returns a note that is safe on a terminal or in a log: quoted if it has characters that are not graphic.
func printable(note string) string {
	if len(note) > maxNote {
		note = note[:maxNote]
	}
	if strings.IndexFunc(note, func(r rune) bool { return !strconv.IsGraphic(r) || r == utf8.RuneError }) < 0 {
		return note
	}
	return strconv.QuoteToASCII(note)
}

// Options are the settings of a Locker. The zero value is ready to use.
type Options struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// Tag puts all locks of this Locker into one slot of a cluster, and is part of their keys. With a tag AcquireAll is
	// one script.
	Tag string
	// TTL is the length of a lease. Default 10 s; at least 1 ms.
	TTL time.Duration
	// Claim is the length of the first lease of a waiter to whom the lock is handed over. The waiter extends it to TTL
	// immediately. If the waiter's process has stopped meanwhile, the waiters of other processes are delayed by Claim,
	// once. Default 1 s; at most TTL.
	Claim time.Duration
	// Afterlife is how long the record of a lock stays after its release, which includes a ForceRelease by another
	// Locker. While the record is stored, each fence is greater than the last one, even if the server's clock was set
	// back and the Locker does not know the last fence. The default is 0: a released lock leaves nothing. After a lease
	// that ended without a release, the record stays for Afterlife, and for a second at least.
	Afterlife time.Duration
	// Note tells other processes who the holder is. It is a host name, for example. At most 1024 bytes.
	Note string
	// MaxHold is the time after the acquire at which a lease ends, even if it is renewed. Zero is no limit. MaxHold
	// ends the lease in the process that holds it and sends nothing: the lock is free after the holder's Release, which
	// Do calls, or at the end of the TTL. So TTL need not be longer than MaxHold.
	MaxHold time.Duration
	// LockDelay is how long the lock stays closed after a lease that ended without a release, so that the old holder's
	// last writes can arrive. A Release after the end of the lease sends nothing and leaves the lock closed.
	LockDelay time.Duration
	// Replicas is how many replicas must confirm an acquire within ReplicaTimeout, whose default is 1 s. If fewer do,
	// the lock is released and the error is ErrNotReplicated. A failover can still lose the lock, but the time in which
	// it can is shorter.
	Replicas       int
	ReplicaTimeout time.Duration
	// Poll is the longest time between two attempts of an Acquire that is not subscribed: the server does not allow it,
	// or the subscription was lost and is not there again. It is also the longest time between two rounds of an
	// AcquireAll whose first lease ended. Default 50 ms. A waiter that polls has no place in the queue.
	Poll time.Duration
	// Observe is called for each Event, on the goroutine that caused it. It must not block or call Close: the goroutine
	// may be the one that reads the subscriptions of the client, and Close waits for that one.
	Observe func(Event)
}

func (o *Options) setDefaults() {
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.TTL, 10 * time.Second}, {&o.Claim, time.Second}, {&o.Poll, 50 * time.Millisecond},
		{&o.ReplicaTimeout, time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	for _, d := range []*time.Duration{&o.TTL, &o.Claim, &o.Afterlife, &o.LockDelay} {
		if *d > time.Millisecond {
			*d = d.Truncate(time.Millisecond) // the scripts count milliseconds
		}
	}
}

// check returns the first setting that is out of range.
func (o *Options) check() error {
	if err := keeper.CheckSettings(
		keeper.Setting{Field: "TTL", Value: o.TTL, Min: time.Millisecond},
		keeper.Setting{Field: "Claim", Value: o.Claim, Min: time.Millisecond},
		keeper.Setting{Field: "Afterlife", Value: o.Afterlife}, keeper.Setting{Field: "MaxHold", Value: o.MaxHold},
		keeper.Setting{Field: "LockDelay", Value: o.LockDelay},
		keeper.Setting{Field: "ReplicaTimeout", Value: o.ReplicaTimeout}, keeper.Setting{Field: "Poll", Value: o.Poll},
	); err != nil {
		return err
	}
	if o.Replicas < 0 {
		return &lua.RangeError{Field: "Replicas", Value: strconv.Itoa(o.Replicas), Min: "0"}
	}
	if len(o.Note) > maxNote {
		return &lua.SizeError{What: "Note", N: len(o.Note), Max: maxNote, Unit: "bytes"}
	}
	return nil
}

const maxNote = 1024

// Locker acquires locks by name. It is safe for concurrent use. One Locker is enough for a process. With makes others
// that share its connection.
//
// A free lock costs one round trip to acquire and one to release. When the first lock is kept or has to be waited for,
// the Locker opens a connection to subscribe: on a cluster one to each master that has a lock with waiters. It keeps
// the connection until Close.
type Locker struct {
	opts Options
	tail string // of each record
	bad  error  // what is wrong with opts or the client
	hub  *hub
}

// New returns a Locker on the client; nil options mean the defaults. Nothing is sent and nothing starts. When an option
// is out of range, each later call returns a [lua.ErrOutOfRange]. When the client is nil, each later call says so.
func New(client lua.Client, opts *Options) *Locker {
	if opts == nil {
		opts = &Options{}
	}
	return newLocker(newHub(client, opts.Prefix), *opts)
}

func newLocker(h *hub, opts Options) *Locker {
	opts.setDefaults()
	bad := cmp.Or(send.CheckClient(h.client), opts.check())
	return &Locker{opts: opts, tail: opts.tail(), bad: bad, hub: h}
}

// keysOf returns the keys of the plain lock of that name. The error says what is wrong with the name or the options.
func (l *Locker) keysOf(name string) (keys.Lock, error) {
	k, err := keys.NewLock(l.opts.Prefix, l.opts.Tag, name)
	if err == nil {
		err = l.bad
	}
	if err != nil {
		return keys.Lock{}, fmt.Errorf("luatomic: lock: %w", err)
	}
	return k, nil
}

// With returns a Locker for calls with other options: each field of opts that is not zero replaces this Locker's,
// except Prefix, which stays. The new Locker shares the connection of this one and the greatest fence that it knows,
// and costs one allocation. So it can be made for a single call:
// locks.With(lock.Options{TTL: time.Minute}).Do(ctx, name, f). Close on either closes both.
func (l *Locker) With(opts Options) *Locker {
	o := l.opts
	for _, d := range []struct{ own, other *time.Duration }{
		{&o.TTL, &opts.TTL}, {&o.Claim, &opts.Claim}, {&o.Afterlife, &opts.Afterlife}, {&o.MaxHold, &opts.MaxHold},
		{&o.LockDelay, &opts.LockDelay}, {&o.ReplicaTimeout, &opts.ReplicaTimeout}, {&o.Poll, &opts.Poll},
	} {
		*d.own = cmp.Or(*d.other, *d.own)
	}
	o.Tag, o.Note = cmp.Or(opts.Tag, o.Tag), cmp.Or(opts.Note, o.Note)
	o.Replicas = cmp.Or(opts.Replicas, o.Replicas)
	if opts.Observe != nil {
		o.Observe = opts.Observe
	}
	return newLocker(l.hub, o)
}

// Close closes the connections on which the Locker is subscribed. An Acquire that waits returns ErrClosed. So does each
// acquire after Close, of any kind, and it sends nothing. An Election.Observe yields ErrClosed and ends. Leases are no
// longer renewed. Close releases no lease and does not close the client. It waits up to half a second until the
// acquires that it ends, or whose ctx has ended, have left the queue. So a program that ends after Close leaves nothing
// in the queue. A Locker that never waited for a lock, kept a lease or observed an election need not be closed. The
// error is always nil.
func (l *Locker) Close() error {
	l.hub.end()
	return nil
}

// Try acquires the lock if it is free, in one round trip. Otherwise it returns a *HeldError. If the lock is free and
// has waiters, the same script hands it to the first of them.
//
// After a lost reply Try repeats the call, which finds that the caller already has the lock. When ctx ends before the
// reply, a call that does not depend on ctx releases the lock again. Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (l *Locker) Try(ctx context.Context, name string) (*Lease, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	return lease.try(ctx)
}

// Acquire waits until it has the lock or ctx ends. Waiters are served in order of arrival. A waiter sends nothing while
// it waits: the script that releases the lock hands it over. When ctx ends, Acquire leaves the queue and returns the
// last *HeldError joined with the cause. It holds nothing then. When the Locker is closed, Acquire returns ErrClosed
// joined with the last *HeldError. While the server is away, Acquire asks it again until the deadline of ctx. If ctx
// has none, it gives up after 10 s, takes up to 10 s more to withdraw, and returns the error of its last attempt.
//
// Keys: lock:{name}, lockq:{name}. Cost: O(1) to acquire the lock or to join the queue, O(n) of the waiters to check or
// to leave the queue.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lease, error) {
	lease, err := l.newLease(name)
	if err != nil {
		return nil, err
	}
	return lease.acquire(ctx)
}

// Do acquires the lock as Acquire does, runs f, and releases the lock, also when f panics. It renews the lease while f
// runs. When the lease is lost, the context of f ends with the cause ErrLost, ErrRevoked or ErrMaxHold. The error joins
// those of f, of the loss and of the release. When f itself releases the lock, that is no loss. Keys: lock:{name},
// lockq:{name}. Cost: that of Acquire.
func (l *Locker) Do(ctx context.Context, name string, f func(context.Context, *Lease) error) error {
	lease, err := l.newLease(name)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// TryDo acquires the lock if it is free, as Try does, and runs f under it, as Do does. Otherwise it returns a
// *HeldError, and f does not run. A process that comes after the release runs f too. For work that is due once, f
// checks under the lock whether it is done. Keys: lock:{name}, lockq:{name}. Cost: O(1).
func (l *Locker) TryDo(ctx context.Context, name string, f func(context.Context, *Lease) error) error {
	lease, err := l.newLease(name)
	if err != nil {
		return err
	}
	if _, err := lease.try(ctx); err != nil {
		return err
	}
	return lease.run(ctx, f)
}

// Doer is what DoValue needs of a Locker. A program can equally declare an interface with the methods that it calls: a
// *Locker implements it, and so does the double for tests (see package locktest).
type Doer interface {
	Do(ctx context.Context, name string, f func(context.Context, *Lease) error) error
}

// DoValue is Do for a function that returns a value. LeaseFrom returns the lease inside f. DoValue returns the value of
// f also with an error, such as the ErrLost of a lease that ended while f ran.
func DoValue[T any](ctx context.Context, l Doer, name string, f func(context.Context) (T, error)) (value T, err error) {
	err = l.Do(ctx, name, func(ctx context.Context, _ *Lease) error {
		var err error
		value, err = f(ctx)
		return err
	})
	return value, err
}

// LeaseFrom returns the lease of a context that Do or Lease.Keep made, or of a context derived from it. With several
// leases it returns the innermost, without one nil.
func LeaseFrom(ctx context.Context) *Lease {
	h, _ := ctx.Value(keeper.Of[*holder]{}).(*holder)
	return (*Lease)(h)
}
