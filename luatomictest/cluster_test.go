package luatomictest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// move reads two keys: with one of them moved to the target, the source can only return TRYAGAIN.
const move = `return redis.call('GET', KEYS[1]) or redis.call('GET', KEYS[2])`

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	require.Len(t, cluster.Addrs(), 3)
	used := map[int]bool{}
	for i := range 60 {
		key := fmt.Sprintf("k%d", i)
		require.NoError(t, client.Set(ctx, key, i, 0).Err())
		slot, err := cluster.Slot(ctx, key)
		require.NoError(t, err)
		owner, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		used[owner] = true
		require.NoError(t, cluster.Nodes()[owner].Client().Get(ctx, key).Err(), "the owner holds the key")
		err = cluster.Nodes()[(owner+1)%3].Client().Get(ctx, key).Err()
		require.True(t, redis.HasErrorPrefix(err, "MOVED"), "%v", err)
	}
	require.Len(t, used, 3)
	require.True(t, redis.HasErrorPrefix(client.Eval(ctx, move, []string{"k1", "k2"}).Err(), "CROSSSLOT"))
}

func TestClusterMigration(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	a, b := "{tag}a", "{tag}b"
	require.NoError(t, client.Set(ctx, a, "1", 0).Err())
	require.NoError(t, client.Set(ctx, b, "2", 0).Err())
	slot, err := cluster.Slot(ctx, a)
	require.NoError(t, err)
	from, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	to := (from + 1) % 3
	source := cluster.Nodes()[from].Client(noRetry)

	migration, err := cluster.MigrateSlot(ctx, slot, from, to)
	require.NoError(t, err)
	require.Equal(t, "1", source.Get(ctx, a).Val(), "nothing has moved yet")
	require.NoError(t, migration.MoveKeys(ctx, a, "{tag}absent"))
	require.True(t, redis.HasErrorPrefix(source.Get(ctx, a).Err(), "ASK"), "a moved key")
	require.Equal(t, "2", source.Get(ctx, b).Val(), "a key still here")
	require.True(t, redis.HasErrorPrefix(source.Eval(ctx, move, []string{a, b}).Err(), "TRYAGAIN"),
		"one here, one there")
	require.Equal(t, "1", client.Get(ctx, a).Val(), "the cluster client follows ASK")

	require.NoError(t, migration.Finish(ctx))
	require.True(t, redis.HasErrorPrefix(source.Get(ctx, a).Err(), "MOVED"))
	owner, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	require.Equal(t, to, owner)
	require.Equal(t, "1", client.Eval(ctx, move, []string{a, b}).Val())
}

func TestClusterMigrationByCountAndCancel(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	client, ctx := cluster.Client(), t.Context()
	for i := range 5 {
		require.NoError(t, client.Set(ctx, fmt.Sprintf("{tag}%d", i), i, 0).Err())
	}
	slot, err := cluster.Slot(ctx, "{tag}0")
	require.NoError(t, err)
	from, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	to := (from + 2) % 3

	idle, err := cluster.MigrateSlot(ctx, slot, from, to)
	require.NoError(t, err)
	require.NoError(t, idle.Cancel(ctx))
	require.NoError(t, cluster.Nodes()[from].Client().Get(ctx, "{tag}0").Err())

	migration, err := cluster.MigrateSlot(ctx, slot, from, to)
	require.NoError(t, err)
	moved, err := migration.Move(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, 2, moved)
	left, err := cluster.Nodes()[from].Client().ClusterCountKeysInSlot(ctx, slot).Result()
	require.NoError(t, err)
	require.EqualValues(t, 3, left)
	require.NoError(t, migration.Finish(ctx))
	arrived, err := cluster.Nodes()[to].Client().ClusterCountKeysInSlot(ctx, slot).Result()
	require.NoError(t, err)
	require.EqualValues(t, 5, arrived)

	_, err = cluster.MigrateSlot(ctx, slot, to, to)
	require.Error(t, err)
	_, err = cluster.MigrateSlot(ctx, slot, to, 3)
	require.Error(t, err)
}

func TestClusterNodeThatIsKilledComesBack(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	client := cluster.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	slot, err := cluster.Slot(ctx, "k")
	require.NoError(t, err)
	owner, err := cluster.Owner(ctx, slot)
	require.NoError(t, err)
	cluster.Nodes()[owner].Kill()
	require.Error(t, client.Set(ctx, "k", "v", 0).Err())
	cluster.Nodes()[owner].Restart()
	luatomictest.Eventually(t, time.Minute, "the slot is served again", func() bool {
		return client.Set(ctx, "k", "v", 0).Err() == nil
	})
}
