package lock

import (
	"context"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/notify"
)

// observers are the observers of elections in a process.
type observers struct {
	subscriptions *notify.Hub

	mu  sync.Mutex // guards all
	all map[*observer]struct{}
}

// observer reads who leads when it is notified.
type observer struct {
	of         *observers
	channel    string
	notified   chan struct{}
	subscribed bool
}

func (os *observers) add(channel string) *observer {
	o := &observer{of: os, channel: channel, notified: make(chan struct{}, 1)}
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.all == nil {
		os.all = make(map[*observer]struct{})
	}
	os.all[o] = struct{}{}
	return o
}

// signal has the observers of the channel read again.
func (os *observers) signal(channel string) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for o := range os.all {
		if o.channel == channel {
			select {
			case o.notified <- struct{}{}:
			default:
			}
		}
	}
}

// subscribe subscribes to the channel, where the server allows that.
func (o *observer) subscribe(ctx context.Context) {
	if o.subscribed {
		return
	}
	s := o.of.subscriptions
	if o.subscribed = s.Subscribe(ctx, o.channel) == nil; !o.subscribed {
		s.Unsubscribe(o.channel)
	}
}

func (o *observer) remove() {
	o.of.mu.Lock()
	delete(o.of.all, o)
	o.of.mu.Unlock()
	if o.subscribed {
		o.of.subscriptions.Unsubscribe(o.channel)
	}
}

// wait returns when the observer is notified, after d, or when ctx ends.
func (o *observer) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.notified:
	case <-timer.C:
	case <-ctx.Done():
	}
}
