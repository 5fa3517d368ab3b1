package notify

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// refusesOne reports an error reply to one request, after which the connection works. With MISCONF a server refuses
// PING that cannot save its data.
func refusesOne(err error) bool {
	return isForbidden(err) || redis.HasErrorPrefix(err, "MOVED") ||
		redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "MISCONF")
}

// refused takes the refusal of a subscription that the user has no permission for, or whose slot another server has:
// the one is reported, and the hub looks for the other.
func (c *connection) refused(r request, err error) {
	switch {
	case r.kind == unsubscribing:
		c.unsubscribed(r.channel)
	case r.kind == subscribing && c.resolveRefused(r.channel, r.topic, err) && isForbidden(err):
		c.lost(r.channel, err)
	}
}

func isForbidden(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// resolveRefused resolves a subscription that was refused. The next caller asks again. Where the user has no permission
// the connection asks again, too, after refusedWait: a hub that was subscribed before waits for messages. It reports
// whether the topic is wanted.
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

// askAgain asks for a topic that was refused, unless it is up by now or was dropped.
func (c *connection) askAgain(channel string, t *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.waits = false
	if c.topics[channel] == t && !t.up {
		c.ask(channel, t)
	}
}
