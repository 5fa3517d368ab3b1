package inventory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/examples/inventory"
)

var apples = inventory.ReserveItem{Article: "apple", N: 3}

// A copy of Reserve was stuck on a cut connection, its repeat was answered, and the reservation ended before the copy
// reached the server.
func TestALateCopyOfAReservationTakesNothing(t *testing.T) {
	t.Parallel()
	for how, left := range map[inventory.SettleHow]string{inventory.SettleHowSold: "7",
		inventory.SettleHowReturned: "10"} {
		client, shop := stocked(t, "s:apple", 10)
		_, err := reserve(t.Context(), client, shop, "1", apples)
		require.NoError(t, err)
		for _, want := range []int64{3, 0} {
			pieces, err := inventory.Settle(t.Context(), client, inventory.SettleParams{Shop: shop, ID: "1", How: how})
			require.NoError(t, err)
			require.Equal(t, want, pieces)
			_, err = reserve(t.Context(), client, shop, "1", apples) // the late copy
			require.NoError(t, err)
			require.Equal(t, left, client.HGet(t.Context(), "shop:{"+shop+"}", "s:apple").Val())
		}
	}
}

// The caller of a reservation that was short, or of an unknown outcome, settles it: a copy that comes later takes
// nothing, however much there is by then.
func TestALateCopyOfAReservationThatWasGivenUpTakesNothing(t *testing.T) {
	t.Parallel()
	client, shop := stocked(t, "s:apple", 2)
	out, err := reserve(t.Context(), client, shop, "1", apples)
	require.NoError(t, err)
	require.False(t, out.Reserved)
	given := inventory.SettleParams{Shop: shop, ID: "1", How: inventory.SettleHowReturned}
	pieces, err := inventory.Settle(t.Context(), client, given)
	require.NoError(t, err)
	require.Zero(t, pieces)
	require.NoError(t, client.HSet(t.Context(), "shop:{"+shop+"}", "s:apple", 10).Err())
	_, err = reserve(t.Context(), client, shop, "1", apples)
	require.NoError(t, err)
	require.Equal(t, "10", client.HGet(t.Context(), "shop:{"+shop+"}", "s:apple").Val())
}

// The hash of a shop has the articles, and what is reserved at the moment; the marks of the rest end by themselves.
func TestReservationsThatEndedLeaveNothing(t *testing.T) {
	t.Parallel()
	client, shop := stocked(t, "s:apple", 100)
	for i := range 20 {
		id, how := fmt.Sprint(i), []inventory.SettleHow{inventory.SettleHowSold, inventory.SettleHowReturned}[i%2]
		_, err := reserve(t.Context(), client, shop, id, apples)
		require.NoError(t, err)
		_, err = inventory.Settle(t.Context(), client, inventory.SettleParams{Shop: shop, ID: id, How: how})
		require.NoError(t, err)
		left := client.PTTL(t.Context(), "shop:{"+shop+"}:"+id).Val()
		require.True(t, left > 0 && left <= time.Hour, left)
	}
	require.EqualValues(t, 1, client.HLen(t.Context(), "shop:{"+shop+"}").Val())
}
