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
	failed  error // why nothing was heard on the last connection
	ended   bool
}

// topic is one channel. settled is closed when it is up or has failed.
type topic struct {
	up      bool
	again   bool // it was up before, here or where the slot was
	asked   bool // on the connection that there is
	err     error
	settled chan struct{}
}

// heard reports whether the channel is heard now.
func (l *link) heard(channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	return t != nil && t.up
}

// expect makes the topic, so that whatever comes to the channel from now on counts.
// It is called under the hub's lock, as forget is: no topic is forgotten that
// somebody has joined since.
func (l *link) expect(channel string, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[channel] == nil {
		l.topics[channel] = &topic{again: again, settled: make(chan struct{})}
	}
}

// join subscribes, if that was not done, and returns when the channel is heard. It does
// not wait for the next attempt where the last one came to nothing: one who may not
// subscribe would do so each time, and has other ways.
func (l *link) join(ctx context.Context, channel string) error {
	l.mu.Lock()
	t := l.topics[channel]
	switch {
	case t == nil || l.ended: // forgotten, as the slot moved again
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
		t.err, t.settled = nil, make(chan struct{})
	}
	settled, ps := t.settled, l.ps
	ask := ps != nil && !t.asked
	t.asked = t.asked || ask
	l.mu.Unlock()
	if ask {
		// An error shows in Receive too, which settles the topic.
		_ = ps.Subscribe(ctx, channel)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-settled:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.err
}

// forget drops the topic, and returns what tells the server so: that may take time.
func (l *link) forget(channel string) (unsubscribe func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ps := l.topics[channel], l.ps
	delete(l.topics, channel)
	if t != nil && !t.up && t.err == nil {
		t.err = ErrClosed
		close(t.settled)
	}
	return func() {
		if ps != nil {
			_ = ps.Unsubscribe(context.Background(), channel)
		}
	}
}

// run keeps one subscription after the other until ctx ends or the client is closed.
func (l *link) run(ctx context.Context) {
	wait := firstWait
	for ctx.Err() == nil {
		ps := l.open(ctx)
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends a Receive at once
		heard, err := l.listen(ctx, ps)
		stop()
		_ = ps.Close()
		l.down(err, heard, false)
		if renewed := l.wasRenewed(); !renewed && errors.Is(err, redis.ErrClosed) {
			break
		}
		if heard {
			wait = firstWait
		}
		clock.Sleep(ctx, wait)
		wait = min(2*wait, lastWait)
	}
	l.down(ErrClosed, false, true)
}

// renew gives up the connection for a new one, once a second at most.
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

// open subscribes to what was joined so far. It dials outside the lock, so that a
// Join can give up meanwhile.
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
		_ = ps.Subscribe(ctx, channels...) // an error shows in Receive too
	}
	return ps
}

// listen returns when the connection is broken, and whether anything was heard.
func (l *link) listen(ctx context.Context, ps *redis.PubSub) (heard bool, err error) {
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
			return heard, err
		}
		heard, asked = true, false
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				l.confirmed(m.Channel)
			} else {
				l.undone(ctx, ps, m.Channel)
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
		close(t.settled)
	}
	t.err = nil
	l.mu.Unlock()
	if again {
		l.hub.Up(channel)
	}
}

// undone subscribes anew to a channel that somebody joined while another left it:
// which of the two the server was told first is not known.
func (l *link) undone(ctx context.Context, ps *redis.PubSub, channel string) {
	l.mu.Lock()
	t := l.topics[channel]
	if t != nil && t.up {
		t.up, t.settled = false, make(chan struct{})
	}
	l.mu.Unlock()
	if t != nil {
		_ = ps.Subscribe(ctx, channel) // an error shows in Receive too
	}
}

// down settles who waits, with the reason.
func (l *link) down(err error, heard, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ps, l.failed, l.ended = nil, err, ended
	if heard {
		l.failed = nil // it worked, and is back in a moment
	}
	for _, t := range l.topics {
		t.asked = false
		if !t.up && t.err == nil {
			t.err = err
			close(t.settled)
		}
		if t.up {
			t.up, t.err, t.settled = false, nil, make(chan struct{})
		}
	}
}
