package notify

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// exchanges are the exchanges of this process, by client.
var exchanges = register{byClient: make(map[any]*exchange)}

type register struct {
	mu       sync.Mutex // guards all below, and the number of hubs of an exchange
	byClient map[any]*exchange
}

// exchange has what the hubs of a client share: a connection to each server, and the subscribers of each channel.
type exchange struct {
	id   any // the client, without its guard
	hubs int

	mu            sync.Mutex
	connections   map[string]*connection   // by the server's name
	subscriptions map[string]*subscription // by channel
	closed        bool
}

// subscription counts the Subscribes of a channel by hub, and has the channel's connection. hubs are the users, in a
// slice that is replaced and never changed.
type subscription struct {
	users      map[*Hub]int
	hubs       []*Hub
	shard      bool
	connection *connection
	again      bool // it had a connection that has ended, so messages may be lost
}

// join returns the exchange of the hub's client.
func (r *register) join(h *Hub) *exchange {
	id := any(h.client)
	if g, ok := id.(interface{ Unguarded() redis.UniversalClient }); ok {
		id = g.Unguarded()
	}
	if h.Alone || !reflect.TypeOf(id).Comparable() {
		id = h
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.byClient[id]
	if x == nil {
		x = &exchange{id: id, connections: make(map[string]*connection), subscriptions: make(map[string]*subscription)}
		r.byClient[id] = x
	}
	x.hubs++
	return x
}

// leave ends the subscriptions of the hub. The last hub closes the connections.
func (x *exchange) leave(h *Hub) {
	exchanges.mu.Lock()
	x.hubs--
	last := x.hubs == 0
	if last {
		delete(exchanges.byClient, x.id)
	}
	exchanges.mu.Unlock()
	if last {
		x.close()
		return
	}
	x.removeAll(h)
}

func (x *exchange) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, c := range x.connections {
		c.stop()
	}
}

// add counts a Subscribe.
func (x *exchange) add(h *Hub, channel string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.subscriptions[channel]
	if s == nil {
		s = &subscription{users: make(map[*Hub]int), shard: h.Shard}
		x.subscriptions[channel] = s
	}
	s.users[h]++
	s.hubs = slices.Collect(maps.Keys(s.users))
}

// assign gives the channel to the connection to the server of that name, which it opens if necessary.
func (x *exchange) assign(node redis.UniversalClient, name, channel string) (*connection, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.subscriptions[channel]
	if x.closed || s == nil {
		return nil, ErrClosed
	}
	moved := s.connection != nil && s.connection.name != name
	if moved {
		s.connection.drop(channel, nil)
	}
	c := x.connections[name]
	if c == nil {
		ctx, stop := context.WithCancel(context.Background())
		c = &connection{
			exchange: x, name: name, client: node, stop: stop,
			topics: make(map[string]*topic), leaving: make(map[string][]*Hub),
			comparing: clock.Backoff{First: pingEvery, Last: lastCompare},
		}
		x.connections[name] = c
		go func() {
			defer stop()
			c.run(ctx)
			x.forget(c)
		}()
	}
	s.connection = c
	c.add(channel, s.shard, moved || s.again)
	return c, nil
}

// retire removes the connection if no channel needs it, and reports whether that is so. Its server may never return.
func (x *exchange) retire(c *connection) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.mu.Lock()
	needed := len(c.topics) > 0
	c.mu.Unlock()
	if !needed && x.connections[c.name] == c {
		delete(x.connections, c.name)
	}
	return !needed
}

// forget removes a connection that has ended.
func (x *exchange) forget(c *connection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.connections[c.name] == c {
		delete(x.connections, c.name)
	}
	for _, s := range x.subscriptions {
		if s.connection == c {
			s.connection, s.again = nil, true
		}
	}
}

// remove undoes an add.
func (x *exchange) remove(h *Hub, channel string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.subscriptions[channel]; s != nil && s.users[h] > 0 {
		if s.users[h]--; s.users[h] == 0 {
			x.removeUser(h, channel, s)
		}
	}
}

// removeAll undoes every add of the hub.
func (x *exchange) removeAll(h *Hub) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for channel, s := range x.subscriptions {
		if s.users[h] > 0 {
			x.removeUser(h, channel, s)
		}
	}
}

// removeUser removes the hub from the users of the channel. The caller holds the lock.
func (x *exchange) removeUser(h *Hub, channel string, s *subscription) {
	delete(s.users, h)
	s.hubs = slices.Collect(maps.Keys(s.users))
	if len(s.users) > 0 {
		return
	}
	delete(x.subscriptions, channel)
	c := s.connection
	if c == nil {
		return
	}
	c.drop(channel, h)
	if c.name == channel { // the channel's own connection
		delete(x.connections, channel)
		c.stop()
	}
}

// users returns the hubs that subscribe to the channel.
func (x *exchange) users(channel string) []*Hub {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.subscriptions[channel]
	if s == nil {
		return nil
	}
	return s.hubs
}

// connectionOf returns the connection of the channel; nil for none.
func (x *exchange) connectionOf(channel string) *connection {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.subscriptions[channel]; s != nil {
		return s.connection
	}
	return nil
}

// hasSubscriber reports whether the hub subscribes to the channel.
func (x *exchange) hasSubscriber(h *Hub, channel string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.subscriptions[channel]
	return s != nil && s.users[h] > 0
}

// confirmed reports whether the channel's subscription is confirmed now.
func (x *exchange) confirmed(channel string) bool {
	c := x.connectionOf(channel)
	return c != nil && c.confirmed(channel)
}

// at reports whether the channel is subscribed at the server of that name.
func (x *exchange) at(channel, name string) bool {
	c := x.connectionOf(channel)
	return c != nil && c.name == name
}

// reconnect replaces the connection of the channel.
func (x *exchange) reconnect(channel string) bool {
	c := x.connectionOf(channel)
	return c == nil || c.renew()
}
