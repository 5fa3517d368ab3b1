package lab

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/queue"
)

// RingQueues are queues of one job each on the servers of a ring.
type RingQueues struct {
	ring *redis.Ring
	n    int
}

// NewRingQueues makes so many queues, more than are read abreast at each server.
func NewRingQueues(t testing.TB, ring *redis.Ring, n int) *RingQueues {
	for i := range n {
		Must(Must(queue.New(ring, fmt.Sprint("q", i), nil)).Push(t.Context(), queue.Job{}))
	}
	return &RingQueues{ring, n}
}

// At names the queues of the server.
func (r *RingQueues) At(server string) (names []string) {
	for i := range r.n {
		if name := fmt.Sprint("q", i); r.of("{"+name+"}") == server {
			names = append(names, name)
		}
	}
	return names
}

// ListedAt reports whether the server has the list of queues.
func (r *RingQueues) ListedAt(server string) bool {
	fleet := keys.NewFleet("")
	return r.of(fleet.Queues) == server
}

func (r *RingQueues) of(key string) string {
	return Must(r.ring.GetShardClientForKey(key)).Options().Addr
}
