package notify

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// link is one connection.
type link struct {
	hub    *Hub
	name   string
	client redis.UniversalClient
	stop   context.CancelFunc

	mu      sync.Mutex
	ps      *redis.PubSub
	opened  time.Time
	renewed bool // ps was closed to make another one
	topics  map[string]*topic
	failed  error // why the last connection received nothing
	ended   bool
}

// topic is one channel. resolved is closed when it is up or has failed.
type topic struct {
	up       bool
	again    bool // it was up before, here or on the slot's former server
	asked    bool // on the current connection
	err      error
	resolved chan struct{}
}

// subscribed reports whether the channel is subscribed now.
func (l *link) subscribed(channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	return t != nil && t.up
}

// add creates the topic, so that messages of the channel count from now on. Like drop it is called under the hub's
// lock, so no topic is dropped that another caller has joined since.
func (l *link) add(channel string, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[channel] == nil {
		l.topics[channel] = &topic{again: again, resolved: make(chan struct{})}
	}
}

// join subscribes, if the topic is not, and returns when that is confirmed. If the last attempt failed it returns the
// error without waiting for the next: a user without permission to subscribe would wait each time, and can poll
// instead.
func (l *link) join(ctx context.Context, channel string) error {
	l.mu.Lock()
	t := l.topics[channel]
	switch {
	case t == nil || l.ended: // dropped, as the slot moved again
		l.mu.Unlock()
		return ErrClosed
	case t.up:
		l.mu.Unlock()
		return nil
	case l.ps == nil && l.failed != nil:
		err := l.failed
		l.mu.Unlock()
		return err
	case t.err != nil:
		t.err, t.resolved = nil, make(chan struct{})
	}
	resolved, ps := t.resolved, l.ps
	ask := ps != nil && !t.asked
	t.asked = t.asked || ask
	l.mu.Unlock()
	if ask {
		// Receive returns the error too, and resolves the topic.
		_ = ps.Subscribe(ctx, channel)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-resolved:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.err
}

// drop deletes the topic. It returns the function that unsubscribes at the server, which may take time.
func (l *link) drop(channel string) (unsubscribe func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ps := l.topics[channel], l.ps
	delete(l.topics, channel)
	if t != nil && !t.up && t.err == nil {
		t.err = ErrClosed
		close(t.resolved)
	}
	return func() {
		if ps != nil {
			_ = ps.Unsubscribe(context.Background(), channel)
		}
	}
}

// run keeps a subscription open, reconnecting, until ctx ends or the client is closed.
func (l *link) run(ctx context.Context) {
	wait := firstWait
	for ctx.Err() == nil {
		ps := l.open(ctx)
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a blocked Receive
		received, err := l.receive(ctx, ps)
		stop()
		_ = ps.Close()
		l.disconnected(err, received, false)
		if renewed := l.wasRenewed(); !renewed && errors.Is(err, redis.ErrClosed) {
			break
		}
		if received {
			wait = firstWait
		}
		clock.Sleep(ctx, wait)
		wait = min(2*wait, lastWait)
	}
	l.disconnected(ErrClosed, false, true)
}

// renew replaces the connection, at most once a second.
func (l *link) renew() {
	l.mu.Lock()
	ps := l.ps
	if ps == nil || l.renewed || time.Since(l.opened) < time.Second {
		l.mu.Unlock()
		return
	}
	l.renewed = true
	l.mu.Unlock()
	_ = ps.Close()
}

func (l *link) wasRenewed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.renewed
	l.renewed = false
	return was
}

// open subscribes to all topics. It dials outside the lock, so that a Join can give up meanwhile.
func (l *link) open(ctx context.Context) *redis.PubSub {
	ps := l.client.Subscribe(ctx)
	l.mu.Lock()
	channels := make([]string, 0, len(l.topics))
	for c, t := range l.topics {
		channels = append(channels, c)
		t.asked = true
	}
	l.ps, l.opened = ps, time.Now()
	l.mu.Unlock()
	if len(channels) > 0 {
		_ = ps.Subscribe(ctx, channels...) // Receive returns the error too
	}
	return ps
}

// receive returns when the connection is broken, and whether it received anything.
func (l *link) receive(ctx context.Context, ps *redis.PubSub) (received bool, err error) {
	asked := false
	for {
		m, err := ps.ReceiveTimeout(ctx, idle)
		var late interface{ Timeout() bool }
		if errors.As(err, &late) && late.Timeout() && !asked && ctx.Err() == nil {
			asked = true
			if err = ps.Ping(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return received, err
		}
		received, asked = true, false
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				l.confirmed(m.Channel)
			} else {
				l.resubscribe(ctx, ps, m.Channel)
			}
		case *redis.Message:
			l.hub.Heard(m.Channel, m.Payload)
		}
	}
}

func (l *link) confirmed(channel string) {
	l.mu.Lock()
	t := l.topics[channel]
	if t == nil || t.up {
		l.mu.Unlock()
		return
	}
	again := t.again
	t.up, t.again = true, true
	if t.err == nil {
		close(t.resolved)
	}
	t.err = nil
	l.mu.Unlock()
	if again {
		l.hub.Up(channel)
	}
}

// resubscribe subscribes again to a channel that one caller joined while another left it: the order at the server is
// not known.
func (l *link) resubscribe(ctx context.Context, ps *redis.PubSub, channel string) {
	l.mu.Lock()
	t := l.topics[channel]
	if t != nil && t.up {
		t.up, t.resolved = false, make(chan struct{})
	}
	l.mu.Unlock()
	if t != nil {
		_ = ps.Subscribe(ctx, channel) // Receive returns the error too
	}
}

// disconnected resolves all pending joins with the error.
func (l *link) disconnected(err error, received, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ps, l.failed, l.ended = nil, err, ended
	if received {
		l.failed = nil // it worked, and reconnects soon
	}
	for _, t := range l.topics {
		t.asked = false
		if !t.up && t.err == nil {
			t.err = err
			close(t.resolved)
		}
		if t.up {
			t.up, t.err, t.resolved = false, nil, make(chan struct{})
		}
	}
}
