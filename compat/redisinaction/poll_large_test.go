package redisinaction_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// Due reads little more than it returns, whatever the sizes: what it reads beyond is read again by the next step.
func TestDueReadsWhatItReturns(t *testing.T) {
	t.Parallel()
	const items, size, budget = 60, 10_000, 9_000
	c, ctx := luatomictest.Client(t), t.Context()
	delayed := luatomictest.Namespace(t) + "delayed:"
	for i := range items {
		z := redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("%04d", i) + strings.Repeat("x", size)}
		require.NoError(t, c.ZAdd(ctx, delayed, z).Err())
	}
	later := redis.Z{Score: 4e9, Member: strings.Repeat("later", size)}
	require.NoError(t, c.ZAdd(ctx, delayed, later).Err())
	var read int64
	for skip := range items {
		due, err := script.Due(ctx, c, script.DueParams{Delayed: delayed, Skip: int64(skip), Max: 500, Bytes: budget})
		require.NoError(t, err)
		require.Len(t, due.Items, 1)
		_, there := due.Next.Get()
		require.False(t, there, "the item that is next may be large: it is not read while others are due")
		n, err := lab.BytesRead(ctx, c, &script.DueScript, []string{delayed}, skip, 500, budget)
		require.NoError(t, err)
		read += n
	}
	require.Less(t, read, int64(items*(size+500)), "bytes that the scripts read")
	for _, most := range []int{1, 2, 7, items, 500} {
		due, err := script.Due(ctx, c, script.DueParams{Delayed: delayed, Max: int64(most), Bytes: 1 << 30})
		require.NoError(t, err)
		require.Len(t, due.Items, min(most, items), "one call reads all that it may")
	}
	due, err := script.Due(ctx, c, script.DueParams{Delayed: delayed, Skip: items, Max: 500, Bytes: budget})
	require.NoError(t, err)
	next, there := due.Next.Get()
	require.True(t, there)
	require.EqualValues(t, 4e9, next)
}

// Small items let a step ask for several more: of these it returns none beyond its bytes.
func TestDueStopsAtItsBytes(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	delayed := luatomictest.Namespace(t) + "delayed:"
	for i, size := range []int{10, 600, 600, 600} {
		z := redis.Z{Score: float64(i + 1), Member: fmt.Sprint(i) + strings.Repeat("x", size)}
		require.NoError(t, c.ZAdd(ctx, delayed, z).Err())
	}
	due, err := script.Due(ctx, c, script.DueParams{Delayed: delayed, Max: 500, Bytes: 1000})
	require.NoError(t, err)
	require.Len(t, due.Items, 3, "the third one reaches 1000 bytes")
}
