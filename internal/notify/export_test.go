package notify

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Overdue is a watch on the subscription whose PING was to be answered before now, as after a time in which the process
// stood still.
func Overdue(ps *redis.PubSub) (next func(context.Context) (any, error)) {
	w := newWatch(ps, func() {})
	w.asked = time.Now().Add(-2 * pingTimeout)
	return w.next
}
