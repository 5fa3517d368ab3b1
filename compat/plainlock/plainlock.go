// Package plainlock takes and releases the locks that redsync, redislock, redis-py's Lock, redlock of Node.js and Ruby
// and Laravel's Cache::lock make on one server: SET key token NX PX, and a delete of the key if it has the token. Go
// and those libraries exclude each other on one key.
//
//	<prefix><name>          string  the token of the holder; expires with the lease
//	{<prefix><name>}:fence  string  the last fence, with Options.Fence; a day after the last acquire
//
// If only Go takes part, use package lock. It also has an order of waiters, a hand-over in the script that releases,
// and always a fence. docs/plainlock.md says what stays racy with other libraries.
package plainlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/plainlock/internal/script"
	"github.com/luatomic/luatomic/internal/calls"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Errors that callers branch on.
var (
	// ErrHeld reports that another holder has the lock. The error is a *HeldError.
	ErrHeld = errors.New("plainlock: held by another")
	// ErrLost reports that a lock ended before its release: its TTL was over, or its key was deleted or changed.
	ErrLost = errors.New("plainlock: lost")
	// ErrReleased is the cause of a context of Keep, and the result of Err, after Release.
	ErrReleased = errors.New("plainlock: released")
	// ErrClosed reports that the Locker is closed.
	ErrClosed = errors.New("plainlock: locker closed")
)

// HeldError reports that another holder has a lock. It matches ErrHeld.
type HeldError struct {
	Name string
	// Remaining is how long the key still exists at most, by the server's clock. It is absent if the key has no TTL.
	Remaining lua.Opt[time.Duration]
}

func (e *HeldError) Error() string {
	if d, ok := e.Remaining.Get(); ok {
		return fmt.Sprintf("plainlock: lock %q is held, for at most %v", e.Name, d)
	}
	return fmt.Sprintf("plainlock: lock %q is held, and its key has no time to live; "+
		"if its holder is dead, delete the key", e.Name)
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Options are the settings of a Locker. Nil means the defaults.
type Options struct {
	// Prefix and the name are the key. Default none: the key is the name itself, as in redsync, redislock, redis-py and
	// redlock. Laravel's prefix is that of the connection and then that of the cache, "laravel_database_laravel_cache_"
	// with the files of 11. docs/plainlock.md has the prefixes of the others. With a wrong prefix, Go and the other
	// library do not exclude each other.
	Prefix string
	// TTL is the length of a lease, by the server's clock. Default 10 s, at least 1 ms, at most ten years.
	TTL time.Duration
	// Poll is the longest sleep of a waiter between two attempts. A release in Go notifies the waiters in Go. A release
	// by another library notifies nobody. Default 100 ms.
	Poll time.Duration
	// Fence gives each lock a number that is greater than those before, stored in a key of its own. Other libraries do
	// not raise it, so it orders only the holders in Go. With Fence, a key with a closing brace that ends no hash tag,
	// such as "user:{}", is a lua.ErrBadName: no name puts another key into its slot.
	Fence bool
}

// Locker takes locks on one server. Its methods may be called from any goroutine. Close it when it is no longer used.
type Locker struct {
	client lua.Client
	opts   Options
	bad    error
	tokens *keeper.Tokens
	keeper *keeper.Keeper
	hub    *notify.Hub
	turns  turns
	calls  *calls.Group // attempts, which may go on after their callers have left
}

// New returns a Locker on the client; nil options mean the defaults. Nothing is sent. When an option is out of range,
// each later call returns a lua.ErrOutOfRange. When the client is nil, each later call says so.
func New(client lua.Client, opts *Options) *Locker {
	l := &Locker{client: client, tokens: keeper.NewTokens(), calls: calls.New()}
	if opts != nil {
		l.opts = *opts
	}
	if l.opts.TTL == 0 {
		l.opts.TTL = 10 * time.Second
	}
	if l.opts.Poll == 0 {
		l.opts.Poll = 100 * time.Millisecond
	}
	l.bad = cmp.Or(send.CheckClient(client), keeper.CheckSettings(
		keeper.Setting{Field: "TTL", Value: l.opts.TTL, Min: time.Millisecond},
		keeper.Setting{Field: "Poll", Value: l.opts.Poll},
	))
	l.opts.TTL = l.opts.TTL.Truncate(time.Millisecond) // the script counts milliseconds
	l.keeper = keeper.NewKeeper(client, keeper.Causes{Lost: ErrLost, MaxHold: ErrLost, Released: ErrReleased})
	l.hub = notify.NewHub(client)
	l.hub.Message = func(channel, _ string) { l.turns.wake(channel) }
	l.hub.Confirmed = func(channel string, again bool) {
		if again {
			l.turns.wake(channel)
		}
	}
	return l
}

// Close stops the renewal of locks and ends the subscription. Each Acquire that waits returns ErrClosed, and so does
// each later Try, Acquire and Do. What attempts under way acquire is released. Close waits for that for half a second
// at most; after that it goes on in the background until the server answers. Close releases no lock that a caller has;
// Release still does. It does not close the client. The error is always nil.
func (l *Locker) Close() error {
	none := l.calls.Close()
	l.keeper.Close()
	l.hub.Close()
	calls.Await(none)
	return nil
}

// Try acquires the lock if it is free. The error is a *HeldError if another holder has it. Keys: the lock's, and its
// fence. Cost: O(1), one round trip.
func (l *Locker) Try(ctx context.Context, name string) (*Lock, error) {
	lock, err := l.newLock(name)
	if err != nil {
		return nil, err
	}
	held, err := lock.attempt(ctx)
	if err == nil && held != nil {
		err = held
	}
	if err != nil {
		lock.settle(ctx)
		return nil, err
	}
	return lock, nil
}

// Acquire tries until it has the lock or ctx ends. When ctx ends, the error joins the last *HeldError of the waiters of
// this Locker with the cause of ctx. When the Locker is closed, the error is ErrClosed. Waiters of one Locker try one
// after the other, in the order of their calls. Waiters of other processes and libraries have no order. Between two
// attempts a waiter sleeps until a process with this package releases the lock, until the key expires, or for Poll.
// With any error the lock is not held. What a lost reply may have acquired is released in the background. So is what a
// request acquires that arrives up to 10 s late, or a copy of the request that arrives after a Release or after a
// noticed loss.
//
// Keys: those of Try. Channel: luatomic:released:<key>. Cost: O(1) for each attempt.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	lock, err := l.newLock(name)
	if err != nil {
		return nil, err
	}
	if err := l.await(ctx, lock); err != nil {
		lock.settle(ctx)
		return nil, err
	}
	return lock, nil
}

// Do acquires the lock, runs f under a context of Keep, and releases the lock, also when f panics. The error joins
// those of f, of a loss and of the release.
func (l *Locker) Do(ctx context.Context, name string, f func(context.Context) error) error {
	lock, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return lock.state.Run(ctx, f)
}

// newLock makes the request of one caller.
func (l *Locker) newLock(name string) (*Lock, error) {
	key, bad := l.opts.Prefix+name, l.bad
	switch {
	case bad != nil:
	case name == "":
		bad = keys.CheckName("lock", name)
	case l.opts.Fence && strings.Contains(key, "}") && !tagged(key):
		bad = fmt.Errorf("%w: key %q has a brace that closes no tag, so no fence can be in its cluster slot; "+
			"use another name, or no Options.Fence", lua.ErrBadName, key)
	}
	if bad != nil {
		return nil, fmt.Errorf("plainlock: %w", bad)
	}
	return &Lock{locker: l, name: name, key: key, token: l.tokens.Next()}, nil
}

// channel returns the channel to which the Go waiters of a key are subscribed.
func channel(key string) string { return "luatomic:released:" + key }

// fenceKeys returns the key of the fence, in the slot of the lock, if there is one.
func (l *Locker) fenceKeys(key string) []string {
	switch {
	case !l.opts.Fence:
		return nil
	case tagged(key):
		return []string{key + ":fence"}
	}
	return []string{"{" + key + "}:fence"}
}

// tagged reports whether a part of the key in braces decides its slot.
func tagged(key string) bool {
	_, rest, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	return open && closed && tag != ""
}

// Scripts returns all scripts of this package, for lua.Preload.
func Scripts() []*lua.Script {
	return []*lua.Script{&script.AcquireScript, &script.ExtendScript, &script.ReleaseScript}
}
