// Package notify subscribes to the notification that there may be work, or a lock, or a reply. The notification is only
// a hint: a waiter that receives it checks, and one that receives nothing checks too, later.
package notify

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
)

// A Hub holds the subscriptions of one domain of a process: of a Locker, or of a consumer. All hubs of a client share
// one connection to each server, for any number of channels, and there is none before the first Subscribe.
//
// A message is lost while its channel's subscription is not confirmed. So Subscribe returns after the confirmation, and
// Confirmed is called after each later one: the waiter must check again.
type Hub struct {
	// Message receives each message of a channel that the hub subscribes to, also one that arrives while the
	// subscription ends: the domain knows what it is for. Messages of one connection come one at a time. It must not
	// block.
	Message func(channel, message string)
	// Confirmed is called when the server has confirmed the subscription; again says that it was confirmed before, so
	// that messages may be lost. It must not block.
	Confirmed func(channel string, again bool)

	// Lost, if not nil, is called when a subscription has ended that the hub did not end, each time that the user may
	// not subscribe, and with each connection that could not be opened. The hub subscribes again by itself, also at
	// another server; where the user may not, every 5 s. It must not block.
	Lost func(channel string, err error)

	// Shard subscribes to sharded channels, of a cluster.
	Shard bool
	// Alone gives the hub connections of its own, for a domain that counts the receivers of a PUBLISH.
	Alone bool

	client redis.UniversalClient
	calls  sync.RWMutex // read-locked while a callback runs

	mu           sync.Mutex // guards all below
	exchange     *exchange  // nil before the first Subscribe
	closed       bool
	lostChannels map[string]struct{} // whose server is looked for, see Place
	stopPlacing  context.CancelFunc  // nil while none is
}

// NewHub returns a hub on the client. Nothing is sent before Subscribe.
func NewHub(client redis.UniversalClient) *Hub { return &Hub{client: client} }

// ErrClosed reports that the hub is closed.
var ErrClosed = errors.New("closed")

// Tagged reports that a channel must be in the slot of its key, because different servers publish: the client is not
// a single-server one.
func (h *Hub) Tagged() bool {
	client := h.client
	if g, ok := client.(interface{ Unguarded() redis.UniversalClient }); ok {
		client = g.Unguarded()
	}
	return !send.OneServer(client)
}

// attached is the exchange of the client, joined if necessary; nil after Close.
func (h *Hub) attached() *exchange {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exchange == nil && !h.closed {
		h.exchange = exchanges.join(h)
	}
	return h.exchange
}

// Subscribed reports whether the channel's subscription is confirmed now.
func (h *Hub) Subscribed(channel string) bool {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	return x != nil && x.confirmed(channel)
}

// Subscribe subscribes to the channel and returns when that is confirmed, or the reason that it is not. Every
// Subscribe needs an Unsubscribe, also one that failed: until then the hub goes on in the background.
func (h *Hub) Subscribe(ctx context.Context, channel string) error {
	x := h.attached()
	if x == nil {
		return ErrClosed
	}
	x.add(h, channel)
	err := h.Follow(ctx, channel)
	if err != nil && x.connectionOf(channel) == nil {
		h.Place(channel)
	}
	return err
}

// Follow moves the subscription to the server that has the channel's slot now, which the hub notices by itself only
// where the subscription has ended. It returns immediately if it is there already. The caller must have called
// Subscribe.
func (h *Hub) Follow(ctx context.Context, channel string) error {
	x := h.attached()
	if x == nil {
		return ErrClosed
	}
	node, name, err := servers.Of(ctx, h.client, channel)
	if err != nil {
		return err
	}
	c, err := x.assign(node, name, channel)
	if err != nil {
		return err
	}
	return c.subscribe(ctx, channel)
}

// InPlace reports whether the subscription is confirmed, at the server that has the channel's slot now.
func (h *Hub) InPlace(ctx context.Context, channel string) bool {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	if x == nil || !x.confirmed(channel) {
		return false
	}
	_, name, err := servers.Of(ctx, h.client, channel)
	return err == nil && x.at(channel, name)
}

// Server names the server at which the channel is subscribed, or will be: empty for the one of a plain client.
func (h *Hub) Server(channel string) string {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	if x == nil {
		return ""
	}
	if c := x.connectionOf(channel); c != nil {
		return c.name
	}
	return ""
}

// Unsubscribe undoes a Subscribe. The connection stays open for the next one.
func (h *Hub) Unsubscribe(channel string) {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	if x != nil {
		x.remove(h, channel)
	}
}

// Reconnect replaces the connection of the channel. It is for a connection to a server that does not get the channel's
// messages any more. Confirmed is called as after a broken connection. It returns false, and does nothing, where the
// connection is younger than a second.
func (h *Hub) Reconnect(channel string) bool {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	return x == nil || x.reconnect(channel)
}

// Close ends the subscriptions, and with the last hub of a client the connections. It waits until no callback runs.
func (h *Hub) Close() {
	h.mu.Lock()
	x := h.exchange
	h.exchange, h.closed = nil, true
	if h.stopPlacing != nil {
		h.stopPlacing()
	}
	h.mu.Unlock()
	if x != nil {
		x.leave(h)
	}
	h.calls.Lock() // waits for callbacks that run
	defer h.calls.Unlock()
}

// open reports whether the hub may be called. The caller holds calls, so that Close waits.
func (h *Hub) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed
}

// receive passes a message on.
func (h *Hub) receive(channel, message string) {
	h.calls.RLock()
	defer h.calls.RUnlock()
	if h.open() {
		h.Message(channel, message)
	}
}

// confirm passes a confirmation on.
func (h *Hub) confirm(channel string, again bool) {
	h.calls.RLock()
	defer h.calls.RUnlock()
	if h.open() {
		h.Confirmed(channel, again)
	}
}

// lost passes the end of a subscription on, and looks for its server.
func (h *Hub) lost(channel string, err error) {
	h.Place(channel)
	h.calls.RLock()
	defer h.calls.RUnlock()
	if h.Lost != nil && h.open() {
		h.Lost(channel, err)
	}
}
