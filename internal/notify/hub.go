package notify

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Hub holds the subscriptions of a process. It has one connection to each server, for any number of channels, and
// none before the first Join.
//
// A message is lost while its channel's subscription is not confirmed. So Join returns after the confirmation, and Up
// is called after each later one: the waiter must check again.
type Hub struct {
	// Heard and Up are called one at a time for each connection and must not block.
	Heard func(channel, message string)
	Up    func(channel string)

	client redis.UniversalClient

	mu            sync.Mutex
	links         map[string]*link         // by address, or by channel where no address is known
	subscriptions map[string]*subscription // by channel
	closed        bool
	done          sync.WaitGroup
}

// subscription counts the Joins of a channel and has its connection.
type subscription struct {
	users int
	link  *link
}

// NewHub returns a hub on the client. Nothing is sent before Join.
func NewHub(client redis.UniversalClient) *Hub {
	return &Hub{client: client, links: make(map[string]*link), subscriptions: make(map[string]*subscription)}
}

// ErrClosed reports that the hub is closed.
var ErrClosed = errors.New("closed")

// Tagged reports that a channel must be in the slot of its key, because different servers publish: the client is not
// a single-server one.
func (h *Hub) Tagged() bool {
	_, one := h.client.(*redis.Client)
	return !one
}

// Listening reports whether the channel is subscribed now.
func (h *Hub) Listening(channel string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.subscriptions[channel]
	return s != nil && s.link != nil && s.link.subscribed(channel)
}

// Join subscribes to the channel and returns when that is confirmed, or the reason that it is not. Every Join needs a
// Leave, also one that failed.
func (h *Hub) Join(ctx context.Context, channel string) error {
	h.mu.Lock()
	s := h.subscriptions[channel]
	if s == nil {
		s = &subscription{}
		h.subscriptions[channel] = s
	}
	s.users++
	h.mu.Unlock()
	return h.Follow(ctx, channel)
}

// Follow moves the subscription to the server that has the channel's slot now. It returns immediately if it is there
// already. The caller must have joined.
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

// place returns the server of the channel, and the name of the connection to it.
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

// link assigns the channel to the connection of that name, which it opens if necessary.
func (h *Hub) link(node redis.UniversalClient, name, channel string) (*link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.subscriptions[channel]
	if h.closed || s == nil {
		return nil, ErrClosed
	}
	moved := s.link != nil && s.link.name != name
	if moved {
		go s.link.drop(channel)()
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
	l.add(channel, moved)
	return l, nil
}

// remove drops a link that has ended.
func (h *Hub) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[l.name] == l {
		delete(h.links, l.name)
	}
	for _, s := range h.subscriptions {
		if s.link == l {
			s.link = nil
		}
	}
}

// Leave undoes a Join. The connection stays open for the next one.
func (h *Hub) Leave(channel string) {
	h.mu.Lock()
	s := h.subscriptions[channel]
	if s == nil {
		h.mu.Unlock()
		return
	}
	if s.users--; s.users > 0 {
		h.mu.Unlock()
		return
	}
	delete(h.subscriptions, channel)
	l := s.link
	if l == nil {
		h.mu.Unlock()
		return
	}
	unsubscribe := l.drop(channel)
	if l.name == channel { // the channel's own connection
		delete(h.links, channel)
		l.stop()
	}
	h.mu.Unlock()
	unsubscribe()
}

// Renew replaces the connection of the channel. It is for a connection to a server that does not get the channel's
// messages any more. Up is called as after a broken connection.
func (h *Hub) Renew(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.subscriptions[channel]; s != nil && s.link != nil {
		s.link.renew()
	}
}

// Close closes the connections and waits until no callback runs.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, l := range h.links {
		l.stop()
	}
	h.mu.Unlock()
	h.done.Wait()
}

// idle is how long a connection may be silent before it gets a PING, and how long the PING may be unanswered before
// it counts as broken: a half-open connection reports no error.
const idle = 3 * time.Second
