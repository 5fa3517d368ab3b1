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

// The server of a channel can be replaced while the old one lives on. A Sentinel names another master, and demotes the
// old one seconds later, or cannot reach it; a name leads to another address; a slot moves; a shard of a Ring is back.
// go-redis then sends commands to the new server, but leaves a subscription where it is. The old server answers its
// PINGs, and no message comes. So the connection compares the two servers.

// lastCompare is the longest time between two comparisons where new connections do not help: a proxy may count no
// subscriber.
const lastCompare = time.Minute

// compare moves subscriptions to the server to which the commands of the client go. It ends with ctx, and where the
// user may not ask that server: then a waiter notices what it has missed when it checks.
func (c *connection) compare(ctx context.Context, ps *redis.PubSub) {
	for more := true; more && clock.Sleep(ctx, c.untilCompare()); {
		if c.name == "" {
			more = c.compareByCount(ctx, ps)
		} else {
			c.compareByName(ctx)
		}
	}
}

// compareByName is for a client that knows the server of each channel.
func (c *connection) compareByName(ctx context.Context) {
	for _, channel := range c.channels() {
		for _, h := range c.exchange.users(channel) {
			if !h.InPlace(ctx, channel) {
				h.Place(channel)
			}
		}
	}
	c.compared()
}

// compareByCount is for a client of one server: it asks, through the client, whether the server of the commands has one
// of the subscriptions, and else replaces the connection. It returns false where it need not ask again.
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
	c.compared() // a server that does not answer is the concern of PING
	return true
}

// channels are those of the connection.
func (c *connection) channels() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.topics))
}

// untilCompare is the time until the next comparison.
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

// anyUp is a channel that is subscribed; nil for none.
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
