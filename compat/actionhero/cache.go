package actionhero

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/lua"
)

// Relock is what Lock does when this Cache's own name already holds the lock.
type Relock uint8

const (
	// Deny does not acquire it again, as ActionHero from 18 on.
	Deny Relock = iota
	// Refresh acquires it again with a new TTL, as ActionHero up to 17.
	Refresh
)

// Layout is the form in which Save writes an item. Load reads both.
type Layout uint8

const (
	// Stamped is the layout of ActionHero up to 28, with expireTimestamp and readAt. All versions read it.
	Stamped Layout = iota
	// Plain is the layout of ActionHero 29, byte for byte. Older nodes treat such items as expired.
	Plain
)

// CacheOptions are the settings of a Cache. The zero value has ActionHero's defaults.
type CacheOptions struct {
	// LockName is the owner of this Cache's locks: every caller with that name passes them. Default: a random name.
	// ActionHero uses the id of the process.
	LockName string
	// LockPrefix is ActionHero's general.lockPrefix. Default "actionhero:lock:".
	LockPrefix string
	// CachePrefix is ActionHero's general.cachePrefix. Default "actionhero:cache:".
	CachePrefix string
	// LockDuration is ActionHero's general.lockDuration. Default 10 s.
	LockDuration time.Duration
	// LockRetry is the longest sleep of CheckLock between two checks. Default 100 ms.
	LockRetry time.Duration
	Relock    Relock
	Layout    Layout
}

// Cache is api.cache of an ActionHero cluster. Its methods are safe for concurrent use;
// all callers of one Cache are one owner of locks.
//
// Lock and item are two keys. On a Redis Cluster, calls for an item need a key with a {tag}. Other calls are refused
// (CROSSSLOT) and change nothing.
type Cache struct {
	client lua.Client
	opts   CacheOptions
	ends   ends
}

// NewCache returns the cache on the client; nil options mean the defaults. Nothing is sent.
func NewCache(client lua.Client, opts *CacheOptions) *Cache {
	c := &Cache{client: client}
	if opts != nil {
		c.opts = *opts
	}
	o := &c.opts
	if o.LockName == "" {
		o.LockName = freshName()
	}
	if o.LockPrefix == "" {
		o.LockPrefix = "actionhero:lock:"
	}
	if o.CachePrefix == "" {
		o.CachePrefix = "actionhero:cache:"
	}
	if o.LockDuration <= 0 {
		o.LockDuration = 10 * time.Second
	}
	if o.LockRetry <= 0 {
		o.LockRetry = 100 * time.Millisecond
	}
	return c
}

// LockName returns the owner of this Cache's locks.
func (c *Cache) LockName() string { return c.opts.LockName }

func (c *Cache) lock(key string) string { return c.opts.LockPrefix + key }
func (c *Cache) item(key string) string { return c.opts.CachePrefix + key }

// A Check is the result of CheckLock.
type Check struct {
	// OK is true when the key is not locked, or locked by this Cache's own name.
	OK bool
	// Holder is the name in the lock, empty without a lock.
	Holder string
	// Remaining is the remaining time of the lock by the server's clock, or -1 if the lock never expires.
	Remaining time.Duration
}

// CheckLock checks whether the lock of the key lets this Cache pass, until it does or the retry window is over; 0
// checks once. Between two checks it sleeps for LockRetry, or for the remaining time of the lock if that is less. The
// last check is at the end of the window. Each check is one call; nothing is written. It returns ctx's cause when ctx
// ends.
func (c *Cache) CheckLock(ctx context.Context, key string, retry time.Duration) (Check, error) {
	end := time.Now().Add(retry)
	for {
		r, err := script.CacheCheck(ctx, c.client, script.CacheCheckParams{Lock: c.lock(key)})
		if err != nil {
			return Check{}, fmt.Errorf("actionhero: %w", err)
		}
		holder, held := r.Holder.Get()
		check := Check{OK: !held || holder == c.opts.LockName, Holder: holder, Remaining: remaining(r.Remaining)}
		left := time.Until(end)
		if check.OK || left <= 0 {
			return check, nil
		}
		if !clock.Sleep(ctx, min(left, c.pause(check.Remaining))) {
			return check, fmt.Errorf("actionhero: %w", clock.EndOf(ctx))
		}
	}
}

// pause returns how long to wait for a lock with that remaining time: a millisecond more, as the server rounds down.
func (c *Cache) pause(left time.Duration) time.Duration {
	if left < 0 {
		return c.opts.LockRetry
	}
	return min(c.opts.LockRetry, left+time.Millisecond)
}

// remaining maps every value that means "no end" to -1.
func remaining(d time.Duration) time.Duration {
	if d < 0 {
		return -1
	}
	return d
}

// Lock acquires the lock of the key for ttl, 0 for LockDuration; ttl is rounded up to whole seconds, as ActionHero
// does, less EndMargin. It does not wait. It reports whether this call holds the lock: false if another owner has it,
// or, with Deny, if this Cache's own name has it. Lock acquires a lock of this name without a TTL: the process that set
// it has died. It does not acquire a lock that this Cache took and whose end another process has changed: a process of
// ActionHero up to 17 may be inside.
//
// One call, one write that sets the value and the TTL. After a lost reply the error is lua.ErrOutcomeUnknown: the
// lock may be held until ttl is over, or until Unlock.
func (c *Cache) Lock(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if ttl <= 0 {
		ttl = c.opts.LockDuration
	}
	r, err := script.CacheLock(ctx, c.client, script.CacheLockParams{
		Lock: c.lock(key), Name: c.opts.LockName, TTL: wholeSeconds(ttl), Refresh: c.opts.Relock == Refresh,
		Known: c.ends.of(key),
	})
	if err != nil {
		if !errors.Is(err, lua.ErrNotExecuted) {
			c.ends.forget(key) // the call may have changed it
		}
		return false, fmt.Errorf("actionhero: %w", err)
	}
	switch r.State {
	case script.CacheLockStateHeld:
		c.ends.forget(key)
		return false, nil
	case script.CacheLockStateOwn, script.CacheLockStateShared:
		return false, nil
	}
	c.ends.set(key, r.Ends, r.Remaining)
	return true, nil
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// Unlock deletes the lock of the key if it has this Cache's name, and reports whether the key is free. As in
// ActionHero, that is true even if the key was not locked, and false if another owner has the lock. A lock that this
// Cache took and whose end another process has changed is left alone until that end, and the result is false: a process
// of ActionHero up to 17 may be inside.
//
// One call, which also works after ctx has ended: it uses the values of ctx and not its end, and takes up to 10 s.
// After a lost reply the error is lua.ErrOutcomeUnknown. Retry, unless another caller of the same name may have locked
// the key since.
func (c *Cache) Unlock(ctx context.Context, key string) (bool, error) {
	r, err := script.CacheUnlock(keeper.Detach(ctx), c.client, script.CacheUnlockParams{
		Lock: c.lock(key), Name: c.opts.LockName, Known: c.ends.of(key),
	})
	if err != nil {
		return false, fmt.Errorf("actionhero: %w", err)
	}
	if r.State == script.CacheUnlockStateShared {
		return false, nil
	}
	c.ends.forget(key)
	return r.State != script.CacheUnlockStateHeld, nil
}

// await retries a call while another owner holds the lock of the key, until retry is over.
func (c *Cache) await(ctx context.Context, retry time.Duration, call func() error) error {
	end := time.Now().Add(retry)
	for {
		err := call()
		var locked *LockedError
		left := time.Until(end)
		if !errors.As(err, &locked) || left <= 0 {
			return err
		}
		if !clock.Sleep(ctx, min(left, c.pause(locked.Remaining))) {
			return fmt.Errorf("actionhero: %w", clock.EndOf(ctx))
		}
	}
}
