package wake

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Hub hears for a whole process. It has one connection to each server that it
// listens on, however many channels, and none before the first Join.
//
// What is said while a channel is not confirmed is lost. So Join returns after the
// confirmation, and Up is called after each later one: it is time to look again.
type Hub struct {
	// Heard and Up are called one at a time for each connection and must not block.
	Heard func(channel, message string)
	Up    func(channel string)

	client redis.UniversalClient

	mu     sync.Mutex
	links  map[string]*link // by address, or by channel where no address is known
	topics map[string]*link
	closed bool
	done   sync.WaitGroup
}

// NewHub returns a hub on the client. Nothing is sent before Join.
func NewHub(client redis.UniversalClient) *Hub {
	return &Hub{client: client, links: make(map[string]*link), topics: make(map[string]*link)}
}

// ErrClosed says that the hub was closed.
var ErrClosed = errors.New("closed")

// Tagged says that a channel must be in the slot of the key that it belongs to,
// because the server that says something there is not always the same.
func (h *Hub) Tagged() bool {
	_, one := h.client.(*redis.Client)
	return !one
}

// Listening reports whether the channel is heard now.
func (h *Hub) Listening(channel string) bool {
	h.mu.Lock()
	l := h.topics[channel]
	h.mu.Unlock()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	return t != nil && t.up
}

// Join returns when the channel is heard, or why it is not. Every Join needs a
// Leave, also one that failed.
func (h *Hub) Join(ctx context.Context, channel string) error {
	l, err := h.link(ctx, channel)
	if err != nil {
		return err
	}
	return l.join(ctx, channel)
}

func (h *Hub) link(ctx context.Context, channel string) (*link, error) {
	node, name := h.client, ""
	switch c := h.client.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		master, err := c.MasterForKey(ctx, channel)
		if err != nil {
			return nil, err
		}
		node, name = master, master.Options().Addr
	default:
		name = channel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if l := h.topics[channel]; l != nil && l.name != name {
		l.leave(channel) // the slot has moved
	}
	l := h.links[name]
	if l == nil {
		ctx, stop := context.WithCancel(context.Background())
		l = &link{hub: h, name: name, client: node, stop: stop, topics: make(map[string]*topic)}
		h.links[name] = l
		h.done.Add(1)
		go func() {
			defer h.done.Done()
			l.run(ctx)
			h.remove(l)
		}()
	}
	h.topics[channel] = l
	return l, nil
}

// remove forgets a link that has ended.
func (h *Hub) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[l.name] == l {
		delete(h.links, l.name)
	}
	for channel, at := range h.topics {
		if at == l {
			delete(h.topics, channel)
		}
	}
}

// Leave ends a Join. The connection stays for the next one.
func (h *Hub) Leave(channel string) {
	h.mu.Lock()
	l := h.topics[channel]
	if l == nil || !l.drop(channel) {
		h.mu.Unlock()
		return
	}
	delete(h.topics, channel)
	if l.name == channel { // a connection of its own
		delete(h.links, channel)
		l.stop()
	}
	h.mu.Unlock()
	l.leave(channel)
}

// Close ends the connections and waits until nothing is called any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, l := range h.links {
		l.stop()
	}
	h.mu.Unlock()
	h.done.Wait()
}

// idle is how long a connection may be silent before it is asked for a sign of
// life, and again before it counts as broken: a half-open one says nothing.
const idle = 3 * time.Second

// link is one connection.
type link struct {
	hub    *Hub
	name   string
	client redis.UniversalClient
	stop   context.CancelFunc

	mu     sync.Mutex
	ps     *redis.PubSub
	topics map[string]*topic
}

// topic is one channel. settled is closed when it is up or has failed.
type topic struct {
	joins   int
	up      bool
	again   bool // it was up before
	err     error
	settled chan struct{}
}

func (l *link) join(ctx context.Context, channel string) error {
	l.mu.Lock()
	t := l.topics[channel]
	if t == nil {
		t = &topic{settled: make(chan struct{})}
		l.topics[channel] = t
	}
	t.joins++
	if t.up {
		l.mu.Unlock()
		return nil
	}
	if t.err != nil {
		t.err, t.settled = nil, make(chan struct{})
	}
	settled, ps, first := t.settled, l.ps, t.joins == 1
	l.mu.Unlock()
	if ps != nil && first {
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

// drop reports whether nobody is left on the channel.
func (l *link) drop(channel string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[channel]
	if t == nil {
		return true
	}
	t.joins--
	return t.joins <= 0
}

func (l *link) leave(channel string) {
	l.mu.Lock()
	t, ps := l.topics[channel], l.ps
	delete(l.topics, channel)
	if t != nil && !t.up && t.err == nil {
		t.err = ErrClosed
		close(t.settled)
	}
	l.mu.Unlock()
	if ps != nil {
		_ = ps.Unsubscribe(context.Background(), channel)
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
		l.down(err)
		if errors.Is(err, redis.ErrClosed) {
			break
		}
		if heard {
			wait = firstWait
		}
		sleep(ctx, wait)
		wait = min(2*wait, lastWait)
	}
	l.down(ErrClosed)
}

// open subscribes to what was joined so far. It dials outside the lock, so that a
// Join can give up meanwhile.
func (l *link) open(ctx context.Context) *redis.PubSub {
	ps := l.client.Subscribe(ctx)
	l.mu.Lock()
	channels := make([]string, 0, len(l.topics))
	for c := range l.topics {
		channels = append(channels, c)
	}
	l.ps = ps
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
			}
		case *redis.Message:
			l.hub.Heard(m.Channel, m.Payload)
		}
	}
}

func (l *link) confirmed(channel string) {
	l.mu.Lock()
	t := l.topics[channel]
	again := t != nil && t.again
	if t != nil && !t.up {
		t.up, t.again = true, true
		if t.err == nil {
			close(t.settled)
		}
		t.err = nil
	}
	l.mu.Unlock()
	if again {
		l.hub.Up(channel)
	}
}

// down settles who waits, with the reason.
func (l *link) down(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ps = nil
	for _, t := range l.topics {
		if !t.up && t.err == nil {
			t.err = err
			close(t.settled)
		}
		if t.up {
			t.up, t.err, t.settled = false, nil, make(chan struct{})
		}
	}
}
