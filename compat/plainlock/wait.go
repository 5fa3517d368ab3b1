package plainlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// await tries until the lock is held, ctx ends or the Locker is closed.
func (l *Locker) await(ctx context.Context, lock *Lock) error {
	name := channel(lock.key)
	t := l.turns.enter(name)
	defer l.turns.leave(name, t)
	err := l.take(ctx, t, lock)
	if held := t.held.Load(); err != nil && held != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed)) {
		return errors.Join(held, err) // another waiter of this process may know the holder
	}
	return err
}

// take waits for the turn of the caller and then tries.
func (l *Locker) take(ctx context.Context, t *turn, lock *Lock) error {
	select {
	case t.taken <- struct{}{}:
		defer func() { <-t.taken }()
	case <-ctx.Done():
		return lock.failed(clock.EndOf(ctx))
	case <-l.calls.Closed():
		return lock.failed(ErrClosed)
	}
	held, err := lock.attempt(ctx)
	if err != nil || held == nil {
		return err
	}
	t.held.Store(held)
	// The attempt after the subscription finds a release that came before it was confirmed. Without a subscription the
	// waiter polls.
	joining, cancel := context.WithTimeout(ctx, time.Second)
	defer l.hub.Unsubscribe(channel(lock.key))
	_ = l.hub.Subscribe(joining, channel(lock.key))
	cancel()
	for {
		if held, err = lock.attempt(ctx); err != nil || held == nil {
			return err
		}
		t.held.Store(held)
		select {
		case <-t.woken:
		case <-time.After(l.pause(held)):
		case <-ctx.Done():
			return lock.failed(clock.EndOf(ctx))
		case <-l.calls.Closed():
			return lock.failed(ErrClosed)
		}
	}
}

// pause returns a random part of Poll, which ends at the latest when the key expires.
func (l *Locker) pause(held *HeldError) time.Duration {
	wait := l.opts.Poll/2 + rand.N(l.opts.Poll/2+1)
	if d, ends := held.Remaining.Get(); ends {
		wait = min(wait, d+time.Millisecond)
	}
	return wait
}

// turns lets the callers of one Locker that wait for a key try one after the other, so that a release wakes only one of
// them.
type turns struct {
	mu      sync.Mutex
	byTopic map[string]*turn
}

// turn is the place of the caller that tries.
type turn struct {
	users int
	taken chan struct{}             // has a value while a caller tries
	woken chan struct{}             // signalled by a release
	held  atomic.Pointer[HeldError] // of the last attempt that found the lock held
}

// enter returns the turn of the key. The caller must leave it later.
func (t *turns) enter(topic string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.byTopic[topic]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
		if t.byTopic == nil {
			t.byTopic = make(map[string]*turn)
		}
		t.byTopic[topic] = one
	}
	one.users++
	return one
}

// leave forgets the turn with its last caller.
func (t *turns) leave(topic string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.byTopic, topic)
	}
}

// wake tells the caller whose turn it is to make another attempt.
func (t *turns) wake(topic string) {
	t.mu.Lock()
	one := t.byTopic[topic]
	t.mu.Unlock()
	if one == nil {
		return
	}
	select {
	case one.woken <- struct{}{}:
	default:
	}
}
