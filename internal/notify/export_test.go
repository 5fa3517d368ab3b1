package notify

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// NoticedWithin is the longest time without an answer after which a connection is closed.
const NoticedWithin = pingEvery + pingTimeout + finalRead

// MaxSearchWait is the longest delay before a hub looks for a server again.
const MaxSearchWait = maxSearchWait

// LoseElsewhere makes a connection report the end of a subscription that another connection has now.
func (h *Hub) LoseElsewhere(channel string) {
	c := &connection{exchange: h.attached()}
	c.lost(channel, errMoved)
}

// Overdue returns the receive of a watch. At each call the time for the answer to its PING is over, as after a pause
// of the process.
func Overdue(ps *redis.PubSub) (next func(context.Context) (any, error)) {
	w := newWatch(ps, func() {})
	return func(ctx context.Context) (any, error) {
		w.asked = time.Now().Add(-2 * pingTimeout)
		return w.next(ctx)
	}
}

// Connections is how many connections the hubs of the client have, including those to servers that are down.
func (h *Hub) Connections() int {
	x := h.attached()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.connections)
}
