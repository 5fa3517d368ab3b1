package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// With a tag the limits of a cluster share a slot, so that several work in one call. Without one they are spread.
func TestLimitsOnACluster(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartCluster(t).Client()
	l := limit.New(c, &limit.Options{Tag: "org-9"})
	var of []*limit.Limit
	for i := range 64 {
		of = append(of, l.Rate(fmt.Sprint("user:", i), limit.Per(10, time.Hour)))
	}
	d, err := l.Allow(ctx, 10, of...)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	d, err = l.Allow(ctx, 1, of[7:9]...)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.NoError(t, l.Reset(ctx, of[7]))
	r, err := l.Reserve(ctx, 2, of[7])
	require.NoError(t, err)
	require.NoError(t, r.Cancel(ctx))

	spread := limit.New(c, nil)
	a, b := spread.Rate("a", limit.Per(1, time.Hour)), spread.Rate("b", limit.Per(1, time.Hour))
	for _, each := range []*limit.Limit{a, b} {
		d, err := spread.Allow(ctx, 1, each)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	_, err = spread.Allow(ctx, 1, a, b)
	require.ErrorIs(t, err, lua.ErrCrossSlot)
}
