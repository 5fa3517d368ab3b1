package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/lua"
)

const heroLockPrefix = "actionhero:lock:"

// errHeroLock ends a lock that is free now, or held by another process.
var errHeroLock = errors.New("the lock is not held any more")

// obtainHero takes a lock of ActionHero's cache.
func (l *lockCmd) obtainHero(s *session, client redis.UniversalClient) (*foreignLock, error) {
	// Under a name of this run alone, so that taking it again is extending it.
	cache := actionhero.NewCache(client, &actionhero.CacheOptions{LockPrefix: s.prefix + heroLockPrefix,
		Relock: actionhero.Refresh})
	name, ctx := s.args[0], s.signals.stop
	unlock := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		free, err := cache.Unlock(ctx, name)
		if err == nil && !free {
			err = errHeroLock
		}
		return err
	}
	for end := time.Now().Add(l.wait); ; {
		begun := time.Now()
		ok, err := cache.Lock(ctx, name, l.opts.TTL)
		switch {
		case errors.Is(err, lua.ErrOutcomeUnknown):
			return nil, errors.Join(err, unlock(ctx))
		case err != nil:
			return nil, err
		case ok:
			return &foreignLock{
				key: s.prefix + heroLockPrefix + name, token: cache.LockName(),
				ttl: l.opts.TTL - actionhero.EndMargin, begun: begun,
				extend: func(ctx context.Context) error {
					return extendHero(ctx, cache, name, l.opts.TTL)
				}, release: unlock,
				over: func(err error) bool { return errors.Is(err, errHeroLock) },
			}, nil
		}
		check, err := cache.CheckLock(ctx, name, max(0, time.Until(end)))
		switch {
		case err != nil:
			return nil, err
		case check.OK && time.Now().Before(end):
			continue
		case check.OK: // it was free for a moment
			return nil, notObtained(name, l.wait, nil)
		default:
			held := &actionhero.LockedError{Key: name, Holder: check.Holder, Remaining: check.Remaining}
			return nil, &exitError{exitTryLater, fmt.Errorf("%w; try later, or wait longer with --wait", held)}
		}
	}
}

// extendHero gives the lock a new end, unless it is no longer this run's.
func extendHero(ctx context.Context, cache *actionhero.Cache, name string, ttl time.Duration) error {
	check, err := cache.CheckLock(ctx, name, 0)
	if err != nil {
		return err
	}
	if check.Holder != cache.LockName() {
		return errHeroLock
	}
	ok, err := cache.Lock(ctx, name, ttl)
	if err == nil && !ok {
		err = errHeroLock
	}
	return err
}
