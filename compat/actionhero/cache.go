package actionhero

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/actionhero/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// Relock is what Lock does where the lock has this Cache's own name already.
type Relock uint8

const (
	// Deny does not take it again, as ActionHero from 18 on.
	Deny Relock = iota
	// Refresh takes it again with a new end, as ActionHero up to 17.
	Refresh
)

// Layout is the form in which Save writes an item. Load reads both.
type Layout uint8

const (
	// Stamped is that of ActionHero up to 28, with expireTimestamp and readAt. All
	// versions read it.
	Stamped Layout = iota
	// Plain is that of ActionHero 29, to the byte. Older nodes take it for expired.
	Plain
)

// CacheOptions are the settings of a Cache. The zero value is that of ActionHero.
type CacheOptions struct {
	// LockName is the owner of this Cache's locks: whoever has the same name passes
	// them. Default: a name of its own. ActionHero uses the id of the process.
	LockName string
	// LockPrefix is general.lockPrefix there. Default "actionhero:lock:".
	LockPrefix string
	// CachePrefix is general.cachePrefix there. Default "actionhero:cache:".
	CachePrefix string
	// LockDuration is general.lockDuration there. Default 10 s.
	LockDuration time.Duration
	// LockRetry is how long CheckLock sleeps at most between two looks. Default 100 ms.
	LockRetry time.Duration
	Relock    Relock
	Layout    Layout
}

// Cache is api.cache of an ActionHero cluster. Its methods are safe for concurrent use;
// all callers of one Cache are one owner of locks.
//
// Lock and item are two keys. On a Redis Cluster, calls for an item need a key with a
// {tag}; others are refused there (CROSSSLOT), and nothing is changed.
type Cache struct {
	client lua.Client
	opts   CacheOptions
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

// LockName is the owner of this Cache's locks.
func (c *Cache) LockName() string { return c.opts.LockName }

func (c *Cache) lock(key string) string { return c.opts.LockPrefix + key }
func (c *Cache) item(key string) string { return c.opts.CachePrefix + key }

// A Check is what CheckLock saw.
type Check struct {
	// OK says that the key is not locked, or by this Cache's own name.
	OK bool
	// Holder is the name in the lock, empty where there is none.
	Holder string
	// Remaining is the rest of the lock's time by the server's clock, -1 where it never
	// ends.
	Remaining time.Duration
}

// CheckLock looks whether the lock of the key lets this Cache pass, and again until it does
// or the retry window is over; 0 looks once. Between two looks it sleeps for LockRetry, or
// for the rest of the lock's time where that is less. The last look is at the end of the
// window. One call for each look; nothing is written. It returns ctx's cause when ctx ends.
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
			return check, fmt.Errorf("actionhero: %w", context.Cause(ctx))
		}
	}
}

// pause is how long to wait for a lock that has so much time left: a millisecond more,
// as the server's count is cut off.
func (c *Cache) pause(left time.Duration) time.Duration {
	if left < 0 {
		return c.opts.LockRetry
	}
	return min(c.opts.LockRetry, left+time.Millisecond)
}

// remaining makes one value of all that mean "no end".
func remaining(d time.Duration) time.Duration {
	if d < 0 {
		return -1
	}
	return d
}

// Lock takes the lock of the key for ttl, 0 for LockDuration; ttl is rounded up to whole
// seconds, as ActionHero does. It does not wait. It reports whether the lock is held by
// this call: false where another has it, and, with Deny, where this Cache's own name has
// it. A lock of this name without an end is taken: whoever set it has died.
//
// One call, one write, in which the lock gets its value and its end. After a lost reply the
// error is lua.ErrOutcomeUnknown: the lock may be held until ttl is over, or until Unlock.
func (c *Cache) Lock(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if ttl <= 0 {
		ttl = c.opts.LockDuration
	}
	r, err := script.CacheLock(ctx, c.client, script.CacheLockParams{
		Lock: c.lock(key), Name: c.opts.LockName, TTL: wholeSeconds(ttl), Refresh: c.opts.Relock == Refresh,
	})
	if err != nil {
		return false, fmt.Errorf("actionhero: %w", err)
	}
	switch r.State {
	case script.CacheLockStateHeld, script.CacheLockStateOwn:
		return false, nil
	}
	return true, nil
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// Unlock ends the lock of the key if it has this Cache's name, and reports whether the key
// is free: true too where it was not locked, as in ActionHero; false where another has it.
//
// One call. After a lost reply the error is lua.ErrOutcomeUnknown. Repeat it then, unless
// another caller of the same name may have locked the key since.
func (c *Cache) Unlock(ctx context.Context, key string) (bool, error) {
	r, err := script.CacheUnlock(ctx, c.client, script.CacheUnlockParams{Lock: c.lock(key), Name: c.opts.LockName})
	if err != nil {
		return false, fmt.Errorf("actionhero: %w", err)
	}
	return r.State != script.CacheUnlockStateHeld, nil
}

// await makes a call again while another holds the lock of the key, until retry is over.
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
			return fmt.Errorf("actionhero: %w", context.Cause(ctx))
		}
	}
}
