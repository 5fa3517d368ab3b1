package inventory_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/examples/inventory"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

func stocked(t *testing.T, pieces ...any) (*redis.Client, string) {
	t.Helper()
	client, shop := luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, client.HSet(t.Context(), "shop:{"+shop+"}", pieces...).Err())
	return client, shop
}

func reserve(ctx context.Context, c *redis.Client, shop, id string,
	items ...inventory.ReserveItem) (inventory.ReserveResult, error) {
	return inventory.Reserve(ctx, c, inventory.ReserveParams{Shop: shop, ID: id, Items: items})
}

// What luagen prove does not try, as no script of the folder fills the stock.
func TestPromisesOfSettle(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("settle.lua")
	require.NoError(t, err)
	script, found := luagen.Parse("settle.lua", string(text))
	require.Empty(t, found)
	client := luatomictest.StartServer(t).Client() // its database is emptied
	for _, how := range []string{"0", "1"} {
		require.NoError(t, client.HSet(t.Context(), "shop:{s}", "s:apple", 5, "r:1", "apple=2\n").Err())
		call := luaprove.Input{Keys: []string{"shop:{s}", "shop:{s}:1"}, Args: []string{"1", how}}
		result, err := luaprove.Check(t.Context(), client, script, call, time.Now().Unix())
		require.NoError(t, err)
		require.Empty(t, result.Broken)
		require.Empty(t, result.NotTried(script))
	}
}

func TestAllArticlesOrNone(t *testing.T) {
	t.Parallel()
	client, shop := stocked(t, "s:apple", 5, "s:pear", 1)
	left := func(article string) string { return client.HGet(t.Context(), "shop:{"+shop+"}", "s:"+article).Val() }
	apples, pears := inventory.ReserveItem{Article: "apple", N: 2}, inventory.ReserveItem{Article: "pear", N: 2}

	out, err := reserve(t.Context(), client, shop, "first", apples, pears)
	require.NoError(t, err)
	require.False(t, out.Reserved)
	require.Equal(t, []inventory.ReserveShort{{Article: "pear", Left: 1}}, out.Short)
	require.Equal(t, "5", left("apple"))

	pears.N = 1
	for range 2 { // a repeat takes nothing more
		out, err = reserve(t.Context(), client, shop, "first", apples, pears)
		require.NoError(t, err)
		require.True(t, out.Reserved)
		require.Equal(t, "3", left("apple"))
		require.Equal(t, "0", left("pear"))
	}
	for _, bad := range [][]inventory.ReserveItem{{apples, apples}, {{Article: "a=b", N: 1}}, {{Article: "apple"}}} {
		_, err = reserve(t.Context(), client, shop, "bad", bad...)
		require.ErrorIs(t, err, inventory.ErrReserveBadItem)
	}
	for _, want := range []int64{3, 0} {
		n, err := inventory.Settle(t.Context(), client,
			inventory.SettleParams{Shop: shop, ID: "first", How: inventory.SettleHowReturned})
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.Equal(t, "5", left("apple"))
	}
	// What was given back stays given back; what was never reserved is nothing.
	for _, id := range []string{"first", "never"} {
		n, err := inventory.Settle(t.Context(), client,
			inventory.SettleParams{Shop: shop, ID: id, How: inventory.SettleHowSold})
		require.NoError(t, err)
		require.Zero(t, n)
	}
	_, err = reserve(t.Context(), client, shop, "first", apples)
	require.NoError(t, err)
	require.Equal(t, "5", left("apple"), "a late repeat of the reservation")
	_, err = reserve(t.Context(), client, shop, "second", apples)
	require.NoError(t, err)
	n, err := inventory.Settle(t.Context(), client,
		inventory.SettleParams{Shop: shop, ID: "second", How: inventory.SettleHowSold})
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, "3", left("apple"))
}

// Many callers want more than there is: what is reserved and what is left add up.
func TestNothingIsSoldTwice(t *testing.T) {
	t.Parallel()
	client, shop := stocked(t, "s:apple", 50, "s:pear", 50)
	var reserved atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			out, err := reserve(t.Context(), client, shop, fmt.Sprint(i), inventory.ReserveItem{Article: "apple", N: 2},
				inventory.ReserveItem{Article: "pear", N: 3})
			if err == nil && out.Reserved {
				reserved.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 16, reserved.Load())
	require.Equal(t, []any{"18", "2"}, client.HMGet(t.Context(), "shop:{"+shop+"}", "s:apple", "s:pear").Val())
}
