package plainlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// await tries until the lock is held or ctx ends.
func (l *Locker) await(ctx context.Context, lock *Lock) error {
	name := channel(lock.key)
	t, err := l.turns.enter(ctx, name)
	defer l.turns.leave(name, t, err == nil)
	if err != nil {
		return lock.failed(err)
	}
	held, err := lock.attempt(ctx)
	if err != nil || held == nil {
		return err
	}
	// What is released before the subscription is confirmed is found by the attempt after it. Without a subscription
	// the waiter polls.
	joining, cancel := context.WithTimeout(ctx, time.Second)
	defer l.hub.Unsubscribe(name)
	_ = l.hub.Subscribe(joining, name)
	cancel()
	for {
		last := held
		if held, err = lock.attempt(ctx); err != nil && ctx.Err() != nil {
			return errors.Join(last, err)
		}
		if err != nil || held == nil {
			return err
		}
		select {
		case <-t.woken:
		case <-time.After(l.pause(held)):
		case <-ctx.Done():
			return errors.Join(held, context.Cause(ctx))
		}
	}
}

// pause is a random part of Poll, and at most until the key expires.
func (l *Locker) pause(held *HeldError) time.Duration {
	wait := l.opts.Poll/2 + rand.N(l.opts.Poll/2+1)
	if d, ends := held.Remaining.Get(); ends {
		wait = min(wait, d+time.Millisecond)
	}
	return wait
}

// turns lets the callers of one Locker that wait for a key try one after the other: a release wakes one of them.
type turns struct {
	mu      sync.Mutex
	byTopic map[string]*turn
}

// turn is the place of the caller that tries.
type turn struct {
	users int
	taken chan struct{} // has a value while a caller tries
	woken chan struct{} // signalled by a release
}

// enter waits until no other caller tries. Every enter needs a leave.
func (t *turns) enter(ctx context.Context, topic string) (*turn, error) {
	t.mu.Lock()
	one := t.byTopic[topic]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
		if t.byTopic == nil {
			t.byTopic = make(map[string]*turn)
		}
		t.byTopic[topic] = one
	}
	one.users++
	t.mu.Unlock()
	select {
	case one.taken <- struct{}{}:
		return one, nil
	case <-ctx.Done():
		return one, context.Cause(ctx)
	}
}

// leave lets the next caller try.
func (t *turns) leave(topic string, one *turn, tried bool) {
	if tried {
		<-one.taken
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.byTopic, topic)
	}
}

// wake has the caller that tries make another attempt.
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
