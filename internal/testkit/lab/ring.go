package lab

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/luatomictest"
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
