// Package wake listens on a channel for the word that there may be work. The word is
// only a hint: whoever hears it looks, and whoever hears nothing looks too, later.
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
	channel string
	heard   chan struct{}
	up      atomic.Bool
}

// New returns a listener on the channel. It hears nothing until Run.
func New(channel string) *Listener {
	return &Listener{channel: channel, heard: make(chan struct{}, 1)}
}

// Channel is the name to leave behind before waiting. It is empty while the
// subscription is not confirmed: nobody could be heard, so nobody should try.
func (l *Listener) Channel() string {
	if l.up.Load() {
		return l.channel
	}
	return ""
}

// Heard receives after each word, and after each confirmed subscription: what was
// said while it was down is lost, so it is time to look.
func (l *Listener) Heard() <-chan struct{} { return l.heard }

func (l *Listener) tell() {
	select {
	case l.heard <- struct{}{}:
	default: // a word that was not taken yet says the same
	}
}

const (
	firstWait = 10 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Run subscribes and listens until ctx ends, across broken connections. Where
// subscribing is not allowed it keeps trying, and Channel stays empty.
func (l *Listener) Run(ctx context.Context, client redis.UniversalClient) {
	ps := client.Subscribe(ctx, l.channel)
	stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a Receive at once
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
			l.tell()
		case *redis.Message:
			l.tell()
		}
	}
}

// exact is the end of a wait that is slept exactly, and in which nothing is heard.
const exact = time.Millisecond

// Wait returns after d, or earlier when a word is heard or ctx ends.
func (l *Listener) Wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	end := time.Now().Add(d)
	t := time.NewTimer(d - exact)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-l.heard:
	case <-t.C:
		sleepExactly(time.Until(end))
	}
}
