package lab

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// EachHangs makes a ring of two servers, prepares it, and calls f once for each of them while the other one hangs. The
// ring does not find that out by itself.
func EachHangs(t testing.TB, prepare func(*redis.Ring), f func(ring *redis.Ring, live string)) {
	t.Helper()
	one, two := luatomictest.StartServer(t), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": one.Addr(), "two": two.Addr()},
		// Long enough for a live server on a busy machine: one late answer is that of a server that hangs.
		ReadTimeout: 2 * time.Second, MaxRetries: -1, HeartbeatFrequency: time.Hour,
	})
	t.Cleanup(func() { _ = ring.Close() })
	prepare(ring)
	for live, hung := range map[*luatomictest.Server]*luatomictest.Server{one: two, two: one} {
		hung.Pause()
		f(ring, live.Addr())
		hung.Resume()
	}
}

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
