package notify

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// refusesOne reports whether err is the error reply to one request, after which the connection still works. A server
// that cannot save its data refuses PING with MISCONF.
func refusesOne(err error) bool {
	return isForbidden(err) || redis.HasErrorPrefix(err, "MOVED") ||
		redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "MISCONF")
}

// refused handles the refusal of a request. A missing permission is reported. If another server has the hash slot, the
// hub looks for it.
func (c *connection) refused(r request, err error) {
	switch {
	case r.kind == unsubscribing:
		c.unsubscribed(r.channel)
	case r.kind == subscribing && c.resolveRefused(r.channel, r.topic, err) && isForbidden(err):
		c.lost(r.channel, err)
	}
}

func isForbidden(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// resolveRefused resolves a subscription that was refused. The next Subscribe asks again. Without permission the
// connection asks again as well, after refusedWait: a hub that was subscribed before waits for messages. resolveRefused
// reports whether the topic still has a subscriber.
func (c *connection) resolveRefused(channel string, t *topic, err error) (wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[channel] != t || t.up {
		return false
	}
	t.asked = false
	if t.err == nil {
		t.err = err
		close(t.resolved)
	}
	if isForbidden(err) && !t.waits {
		t.waits = true
		time.AfterFunc(refusedWait, func() { c.askAgain(channel, t) })
	}
	return true
}

// askAgain requests a topic that was refused, unless it is up now or was dropped.
func (c *connection) askAgain(channel string, t *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.waits = false
	if c.topics[channel] == t && !t.up {
		c.ask(channel, t)
	}
}
