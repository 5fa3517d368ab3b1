package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/internal/clock"
)

// checkDialect refuses what the dialect cannot honour, and what only another has.
func (l *lockCmd) checkDialect() error {
	if l.heal != 0 && l.dialect != redisInAction {
		return usagef("--heal is for the dialect %s; add --dialect %s, or leave it out", redisInAction, redisInAction)
	}
	if l.fence && l.dialect != plain {
		return usagef("--fence is for the dialect %s; add --dialect %s, or leave it out", plain, plain)
	}
	if l.dialect == "" {
		return nil
	}
	o := &l.opts
	return foreignFlags(l.dialect, map[string]bool{
		"read": l.read, "write": l.write, "max-hold": o.MaxHold != 0,
		"lock-delay": o.LockDelay != 0, "replicas": o.Replicas != 0, "note": o.Note != "",
	})
}

func (l *lockCmd) checkForeign(s *session) error {
	if err := errors.Join(atLeast("wait", l.wait, 0), atLeast("heal", l.heal, 0)); err != nil {
		return err
	}
	if l.opts.TTL != 0 || l.dialect != redisInAction { // where it is for ever
		if err := atLeast("ttl", l.opts.TTL, 100*time.Millisecond); err != nil {
			return err
		}
	}
	switch len(s.args) {
	case 0:
		return usagef("the lock is missing")
	case 1:
		return nil
	}
	return usagef("one lock, but there are %d arguments: %q", len(s.args), s.args)
}

// foreignLock is a lock of another dialect that is held.
type foreignLock struct {
	key, token string
	ttl        time.Duration // 0: without an end
	begun      time.Time     // the time to live is counted from here
	extend     func(ctx context.Context) error
	release    func(ctx context.Context) error
	// over reports whether the error of extend means that the lock is no longer held.
	over func(err error) bool
}

// runForeign runs the command under a lock of the dialect.
func (l *lockCmd) runForeign(s *session) error {
	if l.dialect == plain {
		return l.runPlain(s)
	}
	client, err := l.connect(s)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	obtain := l.obtainTask
	if l.dialect == actionHero {
		obtain = l.obtainHero
	}
	held, err := obtain(s, client)
	if err != nil {
		if s.signals.stop.Err() != nil {
			return errInterrupted
		}
		return err
	}
	ending, end := context.WithCancel(context.Background())
	work, lost := l.runChild(s, func(context.Context) context.Context { return held.keep(ending) },
		"LUATOMIC_KEY="+held.key, "LUATOMIC_TOKEN="+held.token)
	end()
	return lockOutcome(s, work, lost, held.release(context.Background()))
}

// obtainTask acquires a lock of Redis in Action.
func (l *lockCmd) obtainTask(s *session, client redis.UniversalClient) (*foreignLock, error) {
	app := redisinaction.New(client, &redisinaction.Options{Prefix: s.prefix})
	name := s.args[0]
	id, err := app.AcquireLock(s.signals.stop, name, &redisinaction.LockOptions{Wait: l.wait, Once: l.wait == 0,
		TTL: l.opts.TTL, Heal: l.heal})
	if errors.Is(err, redisinaction.ErrHeld) {
		return nil, &exitError{exitTryLater, fmt.Errorf("%w; try later, or wait longer with --wait", err)}
	}
	if err != nil {
		return nil, err
	}
	held := &foreignLock{
		key: s.prefix + "lock:" + name, token: id, ttl: l.opts.TTL,
		extend:  func(ctx context.Context) error { return app.ExtendLock(ctx, name, id, l.opts.TTL) },
		release: func(ctx context.Context) error { return app.ReleaseLock(ctx, name, id) },
		over:    func(err error) bool { return errors.Is(err, redisinaction.ErrNotHeld) },
	}
	if err := held.begin(s.signals.stop, s.signals.hard); err != nil {
		return nil, err
	}
	return held, nil
}

// begin extends the lock once: after a wait it is not known here when its time to live
// began. Where that fails the lock is released, after an interrupt too: until hard ends.
func (f *foreignLock) begin(ctx, hard context.Context) error {
	if f.begun = time.Now(); f.ttl == 0 {
		return nil
	}
	err := f.extend(ctx)
	if err != nil {
		err = errors.Join(err, f.release(hard))
	}
	return err
}

// keep extends the lock every third of its time to live, until ctx ends. The context
// that it returns ends when the lock is lost: another process has it, or its time, counted
// from before the last extension was sent, is over.
func (f *foreignLock) keep(ctx context.Context) context.Context {
	if f.ttl == 0 {
		return ctx
	}
	kept, lose := context.WithCancelCause(ctx)
	if time.Since(f.begun) >= f.ttl {
		lose(errNotExtended)
		return kept
	}
	// A call can take longer than the lock lasts, so the end has a clock of its own.
	end := time.AfterFunc(time.Until(f.begun.Add(f.ttl)), func() { lose(errNotExtended) })
	go func() {
		defer lose(nil)
		defer end.Stop()
		next := f.ttl / 3
		for clock.Sleep(kept, next) {
			sent := time.Now()
			switch err := f.extend(kept); {
			case err == nil:
				end.Reset(time.Until(sent.Add(f.ttl)))
				next = f.ttl / 3
			case f.over(err):
				lose(err)
			default:
				next = f.ttl / 20
			}
		}
	}()
	return kept
}

var errNotExtended = errors.New("the lock was not extended in time")
