package rpc_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// wrappedCluster is a client of the caller's own around a ClusterClient.
type wrappedCluster struct{ *redis.ClusterClient }

// A client of the caller's own around a ClusterClient has sharded channels, too: the server of the slot knows every
// subscriber, so no call finds "no subscriber" on another server.
func TestWrappedClientOfAClusterHasShardedChannels(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	for i := range 6 { // slots of all servers
		bus := fmt.Sprint("bus", i)
		lab.Serving(t, lab.Echo, &wrappedCluster{cluster.Client()}, bus, nil, lab.Upper)
		caller := lab.OpenBus(t, &wrappedCluster{cluster.Client()}, bus, nil)
		out, err := lab.Echo.Call(ctx, caller, "x", nil)
		require.NoError(t, err, bus)
		require.Equal(t, "X", out)
		_, owner := home(t, cluster, bus)
		require.Len(t, lab.Must(cluster.Nodes()[owner].Client().PubSubShardChannels(ctx, "rpc:{"+bus+"}:*").Result()),
			3)
	}
}
