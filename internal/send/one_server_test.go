package send_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
)

// No server is there, and none is asked.
func TestServer(t *testing.T) {
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	for _, c := range []redis.UniversalClient{one, cluster, ring} {
		t.Cleanup(func() { _ = c.Close() })
	}
	piped := func(c redis.UniversalClient) redis.UniversalClient {
		p, err := c.AutoPipeline()
		require.NoError(t, err)
		return p
	}
	require.True(t, send.OneServer(one))
	require.True(t, send.OneServer(piped(one)))
	require.Zero(t, one.PoolStats().Misses, "no connection was asked for")
	require.Zero(t, testing.AllocsPerRun(100, func() { send.OneServer(one) }), "it is asked for each lease")
	require.False(t, send.OneServer(cluster))
	require.False(t, send.OneServer(piped(cluster)))
	require.False(t, send.OneServer(ring))
	require.True(t, send.OneServer(struct{ *redis.Client }{one}), "as programs make for traces")
	require.False(t, send.OneServer(struct{ redis.UniversalClient }{one}), "what is in it is not known")
	require.False(t, send.OneServer(struct{ *redis.ClusterClient }{cluster}))

	// A Ring has no AutoPipeliner. One that had would run a command where its first key is.
	_, err := ring.AutoPipeline()
	require.Error(t, err)
	ran := func(*redis.Tx) error { t.Error("a transaction of no key"); return nil }
	require.Error(t, ring.Watch(t.Context(), ran))
}
