package notify

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
	seats  map[string]*seat // by channel
	closed bool
	done   sync.WaitGroup
}

// seat is who listens on a channel, and where.
type seat struct {
	joins int
	link  *link
}

// NewHub returns a hub on the client. Nothing is sent before Join.
func NewHub(client redis.UniversalClient) *Hub {
	return &Hub{client: client, links: make(map[string]*link), seats: make(map[string]*seat)}
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
	defer h.mu.Unlock()
	s := h.seats[channel]
	return s != nil && s.link != nil && s.link.heard(channel)
}

// Join returns when the channel is heard, or why it is not. Every Join needs a
// Leave, also one that failed.
func (h *Hub) Join(ctx context.Context, channel string) error {
	h.mu.Lock()
	s := h.seats[channel]
	if s == nil {
		s = &seat{}
		h.seats[channel] = s
	}
	s.joins++
	h.mu.Unlock()
	return h.Follow(ctx, channel)
}

// Follow listens where the channel is now: a slot of a cluster moves. It returns at
// once where it does already. It is for those who joined.
func (h *Hub) Follow(ctx context.Context, channel string) error {
	node, name, err := h.place(ctx, channel)
	if err != nil {
		return err
	}
	l, err := h.link(node, name, channel)
	if err != nil {
		return err
	}
	return l.join(ctx, channel)
}

// place is the server that serves the channel, and the name of a connection to it.
func (h *Hub) place(ctx context.Context, channel string) (redis.UniversalClient, string, error) {
	switch c := h.client.(type) {
	case *redis.Client:
		return c, "", nil
	case *redis.ClusterClient:
		master, err := c.MasterForKey(ctx, channel)
		if err != nil {
			return nil, "", err
		}
		return master, master.Options().Addr, nil
	case *redis.Ring:
		shard, err := c.GetShardClientForKey(channel)
		if err != nil {
			return nil, "", err
		}
		return shard, shard.Options().Addr, nil
	}
	return h.client, channel, nil
}

// link seats the channel at the connection of that name, which it makes if need be.
func (h *Hub) link(node redis.UniversalClient, name, channel string) (*link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.seats[channel]
	if h.closed || s == nil {
		return nil, ErrClosed
	}
	moved := s.link != nil && s.link.name != name
	if moved {
		go s.link.forget(channel)()
	}
	l := h.links[name]
	if l == nil {
		ctx, stop := context.WithCancel(context.Background())
		l = &link{hub: h, name: name, client: node, stop: stop, topics: make(map[string]*topic)}
		h.links[name] = l
		h.done.Go(func() {
			l.run(ctx)
			h.remove(l)
		})
	}
	s.link = l
	l.expect(channel, moved)
	return l, nil
}

// remove forgets a link that has ended.
func (h *Hub) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[l.name] == l {
		delete(h.links, l.name)
	}
	for _, s := range h.seats {
		if s.link == l {
			s.link = nil
		}
	}
}

// Leave ends a Join. The connection stays for the next one.
func (h *Hub) Leave(channel string) {
	h.mu.Lock()
	s := h.seats[channel]
	if s == nil {
		h.mu.Unlock()
		return
	}
	if s.joins--; s.joins > 0 {
		h.mu.Unlock()
		return
	}
	delete(h.seats, channel)
	l := s.link
	if l == nil {
		h.mu.Unlock()
		return
	}
	unsubscribe := l.forget(channel)
	if l.name == channel { // a connection of its own
		delete(h.links, channel)
		l.stop()
	}
	h.mu.Unlock()
	unsubscribe()
}

// Renew gives up the connection on which the channel is heard for a new one, where the
// server that says something there does not know of it. Up is called as after a break.
func (h *Hub) Renew(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.seats[channel]; s != nil && s.link != nil {
		s.link.renew()
	}
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
