package notify

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// NoticedWithin is after how much silence a connection is given up, at most.
const NoticedWithin = pingEvery + pingTimeout + lastLook

// LastPlace is the longest delay before a hub looks for a server again.
const LastPlace = lastPlace

// LoseElsewhere has a connection report the end of a subscription that is on another connection by now.
func (h *Hub) LoseElsewhere(channel string) {
	c := &connection{exchange: h.attached()}
	c.lost(channel, errMoved)
}

// Overdue returns the receive of a watch whose time for the answer to its PING is over at each call, as after a pause
// of the process.
func Overdue(ps *redis.PubSub) (next func(context.Context) (any, error)) {
	w := newWatch(ps, func() {})
	return func(ctx context.Context) (any, error) {
		w.asked = time.Now().Add(-2 * pingTimeout)
		return w.next(ctx)
	}
}

// Connections is how many connections the hubs of the client have, also to servers that are away.
func (h *Hub) Connections() int {
	x := h.attached()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.connections)
}
