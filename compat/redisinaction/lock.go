package redisinaction

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// LockOptions are the settings of one AcquireLock. The zero value tries for 10 s and holds the lock until it is
// released, as the book's acquire_lock does.
type LockOptions struct {
	// Wait is how long to try. Below 0 means until ctx ends. Default 10 s, as in the book.
	Wait time.Duration
	// Once makes only one attempt. Wait is then ignored.
	Once bool
	// TTL is how long the lock is held if it is not released, by the server's clock, from the last attempt on. At least
	// 1 ms. 0 means for ever: if this process dies, the lock stays held until its key is deleted.
	TTL time.Duration
	// Heal, above 0, is set as the time to live of a lock that another process holds without one. It must be longer
	// than any process holds the lock: a live holder loses it too.
	Heal time.Duration
}

// HeldError reports that another process holds a lock. It matches ErrHeld.
type HeldError struct {
	Name string
	// Remaining is how long the lock is held at most. It is absent if the key has no TTL.
	Remaining lua.Opt[time.Duration]
}

func (e *HeldError) Error() string {
	if d, ok := e.Remaining.Get(); ok {
		return fmt.Sprintf("redisinaction: lock %q is held, for at most %v", e.Name, d)
	}
	return fmt.Sprintf("redisinaction: lock %q is held, with no time to live; "+
		"if its holder is dead, acquire with Heal, or delete the key", e.Name)
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// AcquireLock acquires the lock and returns its identifier, a new uuid; nil options mean the defaults. While another
// process holds the lock it tries again after 1 ms, as the book does, and then in longer intervals up to 16 ms: a
// release in Python sends no notification. Waiters have no order.
//
// A *HeldError reports that another process held the lock until Wait was over, or until ctx ended; then it is joined
// with the cause of ctx. With any error the lock is not held: if a lost reply may have acquired it, AcquireLock tries
// for up to 10 s to release it. If that fails too, the error is lua.ErrOutcomeUnknown.
//
// The first script sets a TTL of at most 10 s. For a longer one, or none, a second script follows when the first has
// the lock. So a request that the server gets after its release, or a copy of one, holds the lock for 10 s at most,
// although no caller has it.
//
// Keys: lock:<name>. Cost: O(1) for each try, and for the second script.
func (c *Client) AcquireLock(ctx context.Context, name string, opts *LockOptions) (identifier string, err error) {
	var o LockOptions
	if opts != nil {
		o = *opts
	}
	switch {
	case o.Once:
		o.Wait = 0
	case o.Wait == 0:
		o.Wait = bookWait
	}
	if err := o.check(name); err != nil {
		return "", lockError("acquire", name, err)
	}
	u, err := uuid.NewRandom()
	if err != nil {
		return "", lockError("acquire", name, err)
	}
	a := &acquire{Client: c, name: name, identifier: u.String(), opts: o}
	if err := a.wait(ctx); err != nil {
		return "", err
	}
	return a.identifier, nil
}

func (o *LockOptions) check(name string) error {
	for _, d := range []time.Duration{o.TTL, o.Heal} {
		if d != 0 && d < time.Millisecond {
			return fmt.Errorf("%w: a time to live of %v; use at least 1 ms, or 0 for none", lua.ErrOutOfRange, d)
		}
	}
	return checkName("lock", name)
}

func lockError(what, name string, err error) error {
	return fmt.Errorf("redisinaction: %s lock %q: %w", what, name, err)
}

// acquire is one call of AcquireLock.
type acquire struct {
	*Client
	name, identifier string
	opts             LockOptions
	taken            bool // it has the lock for firstTTL, and the next script sets its TTL
}

const (
	bookWait = 10 * time.Second // acquire_timeout of the book
	firstTry = time.Millisecond
	lastTry  = 16 * time.Millisecond
)

func (a *acquire) wait(ctx context.Context) error {
	begun, next := time.Now(), firstTry
	var held *HeldError
	for {
		r, err := a.try(ctx)
		switch {
		case err != nil:
			return a.failed(ctx, held, err)
		case r.Acquired:
			return nil
		}
		held = &HeldError{Name: a.name}
		sleep := next/2 + rand.N(next)
		if r.Remaining >= 0 {
			remaining := time.Duration(r.Remaining) * time.Millisecond
			held.Remaining = lua.Some(remaining)
			sleep = min(sleep, remaining+time.Millisecond)
		}
		if left := a.opts.Wait - time.Since(begun); a.opts.Wait >= 0 && left <= 0 {
			return held
		} else if a.opts.Wait >= 0 {
			sleep = min(sleep, left)
		}
		next = min(2*next, lastTry)
		clock.Sleep(ctx, sleep)
		if ctx.Err() != nil {
			return errors.Join(held, clock.EndOf(ctx))
		}
	}
}

// firstTTL bounds the TTL that an acquire sets. A longer one is set by a second script: a copy of the first that the
// server gets when its caller has left holds the lock no longer than this.
const firstTTL = 10 * time.Second

// try makes one attempt.
func (a *acquire) try(ctx context.Context) (r script.AcquireLockResult, err error) {
	first := a.opts.TTL
	if first == 0 || first > firstTTL {
		first = firstTTL
	}
	held, err := inTime(first, func() (bool, error) {
		r, err = script.AcquireLock(ctx, a.redis, script.AcquireLockParams{
			Lock: a.lock(a.name), Identifier: a.identifier, TTL: first, Heal: a.opts.Heal,
		})
		return r.Acquired, err
	})
	if a.taken = held && first != a.opts.TTL; a.taken {
		r.Acquired, err = inTime(a.opts.TTL, func() (bool, error) {
			return a.extend(ctx, a.name, a.identifier, a.opts.TTL)
		})
	}
	return r, err
}

// inTime sets a TTL, 0 for none. If the lock that it set has expired when the reply comes, it does so again.
func inTime(ttl time.Duration, set func() (held bool, err error)) (held bool, err error) {
	keeper.InTime(func(sent time.Time) (until time.Time) {
		if held, err = set(); err == nil && held && ttl > 0 {
			until = keeper.End(sent, ttl)
		}
		return until
	})
	return held, err
}

// failed releases a lock that has been acquired, or may have been. After a release the outcome is known, so the error
// is only that of the connection.
func (a *acquire) failed(ctx context.Context, held *HeldError, err error) error {
	if unknown := errors.Is(err, lua.ErrOutcomeUnknown); unknown || a.taken {
		undo, cancel := detached(ctx)
		defer cancel()
		var lost *lua.Error
		if _, back := a.release(undo, a.name, a.identifier); back != nil {
			err = fmt.Errorf("%w; the lock may be held and could not be released: %w", err, back)
		} else if unknown && errors.As(err, &lost) {
			err = fmt.Errorf("no reply after %d tries: %w", lost.Tries, lost.Err)
		}
	}
	err = lockError("acquire", a.name, err)
	if held != nil && ctx.Err() != nil {
		if !errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx)) { // ctx ended during a call
			err = errors.Join(err, clock.EndOf(ctx))
		}
		return errors.Join(held, err)
	}
	return err
}

// detached returns a context for calls that must work after ctx has ended.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

// ReleaseLock releases the lock. It also works after ctx has ended, which is usual in a deferred call, and takes at
// most 10 s. ErrNotHeld reports that the identifier did not hold the lock: it was released before, or it expired and
// another process may have held it since. After a lost reply, a lock that does not exist counts as released by this
// call.
//
// Keys: lock:<name>. Cost: O(1).
func (c *Client) ReleaseLock(ctx context.Context, name, identifier string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	released, err := c.release(ctx, name, identifier)
	if err == nil && !released {
		err = ErrNotHeld
	}
	if err != nil {
		return lockError("release", name, err)
	}
	return nil
}

func (c *Client) release(ctx context.Context, name, identifier string) (bool, error) {
	if err := checkName("lock", name); err != nil {
		return false, err
	}
	var again send.Resent
	released, err := script.ReleaseLock(send.WatchResent(ctx, &again), c.redis,
		script.ReleaseLockParams{Lock: c.lock(name), Identifier: identifier})
	return released || bool(again), err
}

// ExtendLock sets the TTL of a lock that the identifier holds, from now on, by the server's clock. At least 1 ms. A
// longer TTL stays, so a late copy of an earlier call shortens none. ErrNotHeld reports that the identifier does not
// hold the lock.
//
// Keys: lock:<name>. Cost: O(1).
func (c *Client) ExtendLock(ctx context.Context, name, identifier string, ttl time.Duration) error {
	err := checkName("lock", name)
	if err == nil && ttl < time.Millisecond {
		err = &lua.RangeError{Field: "ttl", Value: ttl.String(), Min: "1ms"}
	}
	if err == nil {
		var held bool
		if held, err = c.extend(ctx, name, identifier, ttl); err == nil && !held {
			err = ErrNotHeld
		}
	}
	if err != nil {
		return lockError("extend", name, err)
	}
	return nil
}

func (c *Client) extend(ctx context.Context, name, identifier string, ttl time.Duration) (held bool, err error) {
	return script.ExtendLock(ctx, c.redis,
		script.ExtendLockParams{Lock: c.lock(name), Identifier: identifier, TTL: ttl})
}
