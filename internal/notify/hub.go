// Package notify subscribes to notifications that a job, a lock or a reply may be available. A notification is only a
// hint: a waiter that receives one checks, and a waiter that receives none checks later.
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
	// Message receives each message of a channel that the hub subscribes to, and may receive one after Unsubscribe.
	// Messages of one connection come one at a time. It must not block.
	Message func(channel, message string)
	// Confirmed is called when the server has confirmed the subscription. again reports that it was confirmed before:
	// messages may be lost. It must not block.
	Confirmed func(channel string, again bool)

	// Lost, if not nil, is called when a subscription has ended that the hub did not end, when the user has no
	// permission to subscribe, and when a connection could not be opened. The hub subscribes again by itself, at
	// another server if necessary; without permission, every 5 s. It must not block.
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
	lostChannels map[string]struct{} // the hub looks for their servers, see Relocate
	stopSearch   context.CancelFunc  // nil while no search runs
}

// NewHub returns a hub on the client. It sends nothing before Subscribe.
func NewHub(client redis.UniversalClient) *Hub { return &Hub{client: client} }

// ErrClosed reports that the hub is closed.
var ErrClosed = errors.New("closed")

// Tagged reports that the client has several servers. Then a channel must be in the hash slot of its key, whose server
// publishes.
func (h *Hub) Tagged() bool {
	client := h.client
	if g, ok := client.(interface{ Unguarded() redis.UniversalClient }); ok {
		client = g.Unguarded()
	}
	return !send.OneServer(client)
}

// attached returns the exchange of the client, which the hub joins if necessary; nil after Close.
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

// Subscribe subscribes to the channel. It returns when the server has confirmed that, or the reason why it has not.
// Every Subscribe needs an Unsubscribe, even after an error: until then the hub tries to subscribe in the background.
func (h *Hub) Subscribe(ctx context.Context, channel string) error {
	x := h.attached()
	if x == nil {
		return ErrClosed
	}
	x.add(h, channel)
	err := h.Follow(ctx, channel)
	if err != nil && x.connectionOf(channel) == nil {
		h.Relocate(channel)
	}
	return err
}

// Follow moves the subscription to the server that has the channel's hash slot now. The hub itself notices a move only
// when the subscription ends. Follow returns immediately if the subscription is there already. The caller must have
// called Subscribe.
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

// Current reports whether the subscription is confirmed at the server that has the channel's hash slot now.
func (h *Hub) Current(ctx context.Context, channel string) bool {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	if x == nil || !x.confirmed(channel) {
		return false
	}
	_, name, err := servers.Of(ctx, h.client, channel)
	return err == nil && x.at(channel, name)
}

// Server returns the name of the server at which the channel is or will be subscribed; empty for a plain client.
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

// Reconnect replaces the connection of the channel, when its server no longer receives the channel's messages.
// Confirmed is called as after a broken connection. If the connection is younger than a second, Reconnect does nothing
// and returns false.
func (h *Hub) Reconnect(channel string) bool {
	h.mu.Lock()
	x := h.exchange
	h.mu.Unlock()
	return x == nil || x.reconnect(channel)
}

// Close ends the subscriptions. The last hub of a client also closes the connections. Close waits until no callback
// runs.
func (h *Hub) Close() {
	h.mu.Lock()
	x := h.exchange
	h.exchange, h.closed = nil, true
	if h.stopSearch != nil {
		h.stopSearch()
	}
	h.mu.Unlock()
	if x != nil {
		x.leave(h)
	}
	h.calls.Lock() // waits for callbacks that run
	defer h.calls.Unlock()
}

// open reports whether callbacks may run. The caller holds calls, so that Close waits.
func (h *Hub) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed
}

// receive passes a message to the domain.
func (h *Hub) receive(channel, message string) {
	h.calls.RLock()
	defer h.calls.RUnlock()
	if h.open() {
		h.Message(channel, message)
	}
}

// confirm passes a confirmation to the domain.
func (h *Hub) confirm(channel string, again bool) {
	h.calls.RLock()
	defer h.calls.RUnlock()
	if h.open() {
		h.Confirmed(channel, again)
	}
}

// lost reports the end of a subscription to the domain, and looks for the server of the channel.
func (h *Hub) lost(channel string, err error) {
	h.Relocate(channel)
	h.calls.RLock()
	defer h.calls.RUnlock()
	if h.Lost != nil && h.open() {
		h.Lost(channel, err)
	}
}
