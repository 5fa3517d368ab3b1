// Package notify subscribes to the notification that there may be work. The notification is only a hint: a consumer
// that receives it polls, and one that receives nothing polls too, later.
package notify

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// Listener is one subscription. It costs one connection and no commands.
type Listener struct {
	channel  string
	received chan struct{}
	up       atomic.Bool
}

// New returns a listener on the channel. It receives nothing until Run.
func New(channel string) *Listener {
	return &Listener{channel: channel, received: make(chan struct{}, 1)}
}

// Channel returns the name for a waiter to register. It is empty while the subscription is not confirmed: a
// notification would be lost.
func (l *Listener) Channel() string {
	if l.up.Load() {
		return l.channel
	}
	return ""
}

// Heard receives after each notification, and after each confirmed subscription: notifications before it are lost, so
// the consumer must poll.
func (l *Listener) Heard() <-chan struct{} { return l.received }

func (l *Listener) signal() {
	select {
	case l.received <- struct{}{}:
	default: // a pending notification suffices
	}
}

const (
	firstWait = 10 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Run keeps the subscription until ctx ends, across broken connections. Where subscribing is not allowed it keeps
// trying, and Channel stays empty.
func (l *Listener) Run(ctx context.Context, client redis.UniversalClient) {
	ps := client.Subscribe(ctx, l.channel)
	stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a blocked Receive
	defer stop()
	defer ps.Close()
	wait := firstWait
	for ctx.Err() == nil {
		m, err := ps.Receive(ctx)
		if err != nil {
			l.up.Store(false)
			clock.Sleep(ctx, wait)
			wait = min(2*wait, lastWait)
			continue
		}
		switch m.(type) {
		case *redis.Subscription:
			wait = firstWait
			l.up.Store(true)
			l.signal()
		case *redis.Message:
			l.signal()
		}
	}
}

// exact is the last part of a wait, slept exactly and without receiving notifications.
const exact = time.Millisecond

// Wait returns after d, or earlier when a notification arrives or ctx ends.
func (l *Listener) Wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	end := time.Now().Add(d)
	t := time.NewTimer(d - exact)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-l.received:
	case <-t.C:
		sleepExactly(time.Until(end))
	}
}
