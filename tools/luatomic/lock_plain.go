package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/luatomic/luatomic/compat/plainlock"
)

// runPlain runs the command under a lock made by SET NX PX, as redsync, redis-py and others make it.
func (l *lockCmd) runPlain(s *session) error {
	client, err := l.connect(s)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	locker := plainlock.New(client, &plainlock.Options{Prefix: s.prefix, TTL: l.opts.TTL, Fence: l.fence})
	defer func() { _ = locker.Close() }()
	held, err := l.obtainPlain(s, locker)
	if err != nil {
		return err
	}
	env := []string{"LUATOMIC_KEY=" + held.Key(), "LUATOMIC_TOKEN=" + held.Token()}
	if l.fence {
		env = append(env, "LUATOMIC_FENCE="+strconv.FormatInt(held.Fence(), 10))
	}
	work, lost := l.runChild(s, held.Keep, env...)
	return lockOutcome(s, work, lost, held.Release(context.Background()))
}

func (l *lockCmd) obtainPlain(s *session, locker *plainlock.Locker) (*plainlock.Lock, error) {
	name, ctx, obtain := s.args[0], context.Context(s.signals.stop), locker.Try
	if l.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, l.begun.Add(l.wait), errWaited)
		defer cancel()
		obtain = locker.Acquire
	}
	lock, err := obtain(ctx, name)
	var held *plainlock.HeldError
	switch {
	case err == nil:
		return lock, nil
	case s.signals.stop.Err() != nil:
		return nil, errInterrupted
	case errors.As(err, &held):
		return nil, &exitError{exitTryLater, fmt.Errorf("%w; try later, or wait longer with --wait", held)}
	case context.Cause(ctx) == errWaited: // whatever the last attempt says of it
		return nil, notObtained(name, l.wait, nil)
	}
	return nil, err
}
