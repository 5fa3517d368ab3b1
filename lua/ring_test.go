package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A ring sends a command to the shard of its first key. So the rows of one command are of one shard.
func TestRowsOnARingAreWhereTheirKeysAre(t *testing.T) {
	t.Parallel()
	one, two := luatomictest.StartServer(t), luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr(), "two": two.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	s, b, ctx := claimMany(t, 2), lua.NewBatch(ring), within(t, 10*time.Second)
	preload(t, ring, s)
	keys, futures := make([]string, 40), make([]*lua.Future[row], 40)
	for i := range keys {
		keys[i] = fmt.Sprintf("{%d}:%d", i/4, i)
		futures[i] = lua.Queue(b, claim(s, keys[i], "token"), decodeRow)
	}
	require.NoError(t, b.Exec(ctx))
	for i, f := range futures {
		got, err := f.Get()
		require.NoError(t, err)
		require.EqualValues(t, 4, got.rows, "those of one tag are one command")
		shard, err := ring.GetShardClientForKey(keys[i])
		require.NoError(t, err)
		require.Equal(t, "token", shard.Get(ctx, keys[i]).Val(), keys[i])
	}
}
