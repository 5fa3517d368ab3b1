package notify

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// The server of a channel can be replaced while the old one is still up. A Sentinel names another master, and demotes
// the old one seconds later or cannot reach it; a host name resolves to another address; a hash slot moves; a shard of
// a Ring is back. Then go-redis sends commands to the new server, but leaves a subscription at the old one, which
// answers PINGs and receives no messages. So the connection compares the two servers.

// lastCompare is the longest delay between two comparisons. It is reached when a new connection does not help: behind a
// proxy, the server may count no subscriber.
const lastCompare = time.Minute

// compare moves subscriptions to the server that receives the commands of the client. It returns when ctx ends, or when
// the user has no permission to ask that server: then a waiter notices a missed message at its next check.
func (c *connection) compare(ctx context.Context, ps *redis.PubSub) {
	for more := true; more && clock.Sleep(ctx, c.untilCompare()); {
		if c.name == "" {
			more = c.compareByCount(ctx, ps)
		} else {
			c.compareByName(ctx)
		}
	}
}

// compareByName compares the servers by name, for a client that knows the server of each channel.
func (c *connection) compareByName(ctx context.Context) {
	for _, channel := range c.channels() {
		for _, h := range c.exchange.users(channel) {
			if !h.Current(ctx, channel) {
				h.Relocate(channel)
			}
		}
	}
	c.compared()
}

// compareByCount is for a client of one server. It asks, through the client, whether the server of the commands has one
// of the subscriptions. If not, it replaces the connection. It returns false if it need not ask again.
func (c *connection) compareByCount(ctx context.Context, ps *redis.PubSub) (more bool) {
	channel, t := c.anyUp()
	if t == nil {
		c.compared()
		return true
	}
	n, err := c.client.PubSubNumSub(ctx, channel).Result()
	switch {
	case isForbidden(err), errors.Is(err, redis.ErrClosed):
		return false
	case err == nil && n[channel] == 0 && c.isUp(ps, channel, t):
		c.renew()
		return false
	}
	c.compared() // PING detects a server that does not answer
	return true
}

// channels returns the channels of the connection.
func (c *connection) channels() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.topics))
}

// untilCompare returns the time until the next comparison.
func (c *connection) untilCompare() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.comparing.Next()
}

// compared records a comparison that found nothing to do.
func (c *connection) compared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comparing.Reset()
}

// anyUp returns a channel whose subscription is confirmed, with its topic; nil for none.
func (c *connection) anyUp() (channel string, _ *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for channel, t := range c.topics {
		if t.up {
			return channel, t
		}
	}
	return "", nil
}

// isUp reports whether the topic has been subscribed on this connection all the time.
func (c *connection) isUp(ps *redis.PubSub, channel string, t *topic) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ps == ps && c.topics[channel] == t && t.up
}
