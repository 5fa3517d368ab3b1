package notify

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
)

// The server of a single-server client can be replaced while the old one lives on: a Sentinel names another master, and
// demotes the old one seconds later, or cannot reach it; a name leads to another address. go-redis then sends commands
// to the new server, but leaves a subscription where it is. The old server answers its PINGs, and no message comes. So
// the connection asks, through the client, whether the server of the commands has its subscription.

// lastCompare is the longest time between two comparisons where new connections do not help: a proxy may count no
// subscriber.
const lastCompare = time.Minute

// compare replaces the connection when the client's server does not have its subscription. It ends with ctx, and where
// the user may not ask: then a waiter notices what it has missed when it checks.
func (c *connection) compare(ctx context.Context, ps *redis.PubSub) {
	for clock.Sleep(ctx, c.untilCompare()) {
		channel, t := c.anyUp()
		if t == nil {
			c.compared()
			continue
		}
		n, err := c.client.PubSubNumSub(ctx, channel).Result()
		switch {
		case isForbidden(err), errors.Is(err, redis.ErrClosed):
			return
		case err == nil && n[channel] == 0 && c.isUp(ps, channel, t):
			c.renew()
			return
		default: // a server that does not answer is the concern of PING
			c.compared()
		}
	}
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

// anyUp is a channel that is subscribed; nil for none. A sharded one is of a cluster, whose slots the hub follows.
func (c *connection) anyUp() (channel string, _ *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for channel, t := range c.topics {
		if t.up && !t.shard {
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
