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
	joined     bool // the hub has its subscription, confirmed or not
	subscribed bool // it was confirmed
	missing    bool // it was not when the observer last read; guarded by the lock of observers
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

// signal tells the observers of the channel to read again.
func (os *observers) signal(channel string) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for o := range os.all {
		if o.channel == channel {
			o.signal()
		}
	}
}

// signal tells the observer to read again. Several signals before the read have the effect of one.
func (o *observer) signal() {
	select {
	case o.notified <- struct{}{}:
	default:
	}
}

// confirmed tells the observers of the channel to read that may have missed a message: all of them if the subscription
// was broken, else those that have read without a subscription.
func (os *observers) confirmed(channel string, again bool) {
	os.mu.Lock()
	defer os.mu.Unlock()
	for o := range os.all {
		if o.channel == channel && (again || o.missing) {
			o.signal()
		}
	}
}

// subscribe subscribes to the channel, if the server allows it. If it fails, the observer tries again at its next read.
// After a broken connection the hub tries again by itself.
func (o *observer) subscribe(ctx context.Context) {
	if o.subscribed {
		return
	}
	call := o.of.subscriptions.Subscribe
	if o.joined {
		call = o.of.subscriptions.Follow
	}
	o.joined = true
	o.subscribed = call(ctx, o.channel) == nil
	o.of.mu.Lock()
	o.missing = !o.subscribed
	o.of.mu.Unlock()
}

func (o *observer) remove() {
	o.of.mu.Lock()
	delete(o.of.all, o)
	o.of.mu.Unlock()
	if o.joined {
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

// Event is a change in the life of a lock, for metrics and logs.
type Event struct {
	// Kind is what happened.
	Kind EventKind
	// Name is the name of the lock, semaphore or read-write lock.
	Name string
	// Wait is how long the acquire took, Held how long the lease lasted.
	Wait, Held time.Duration
	// Waiting is the length of the queue when it was joined, with the new waiter.
	Waiting int
	// Err says why the lease was lost.
	Err error
}

// EventKind says what happened to a lock.
type EventKind uint8

const (
	// EventAcquired has Name and Wait.
	EventAcquired EventKind = iota + 1
	// EventQueued has Name and Waiting: an acquire has joined the queue.
	EventQueued
	// EventReleased has Name and Held: the server has confirmed a release.
	EventReleased
	// EventLost has Name, Held and Err: the lease ended before its release.
	EventLost
)

// String is the kind in lower case, such as "acquired".
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

var eventNames = [...]string{"unknown", "acquired", "queued", "released", "lost"}

// observe passes the event to Options.Observe.
func (o *Options) observe(e Event) {
	if o.Observe != nil {
		o.Observe(e)
	}
}
