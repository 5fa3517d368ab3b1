package queue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A worker is live by the clock of the server that has the list, whatever the other servers' clocks say.
func TestWorkersAreLiveByTheClockOfTheirServer(t *testing.T) {
	t.Parallel()
	ctx, list := t.Context(), keys.NewFleet("app:")
	addrs, steps := make(map[string]string), make(map[string]func(time.Duration))
	for _, name := range []string{"one", "two"} {
		server := lab.Must(launch.StartEmbedded())
		t.Cleanup(server.Close)
		addrs[name], steps[server.Addr()] = server.Addr(), server.Step
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	home := lab.Must(ring.GetShardClientForKey(list.Workers)).Options().Addr
	for addr, step := range steps {
		if addr != home {
			step(1000 * time.Hour)
		}
	}
	now := time.Now()
	for id, till := range map[string]time.Time{"killed": now.Add(-time.Minute), "live": now.Add(time.Minute)} {
		member := redis.Z{Score: float64(till.UnixMilli()), Member: id}
		require.NoError(t, ring.ZAdd(ctx, list.Workers, member).Err())
		require.NoError(t, ring.HSet(ctx, list.About, id, "0 {}").Err())
	}
	for range 20 {
		workers := lab.Must(queue.Workers(ctx, ring, "app:"))
		require.Len(t, workers, 1)
		require.Equal(t, "live", workers[0].ID)
	}
}
