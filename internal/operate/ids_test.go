package operate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// read reads all pages, with what happens between two of them, and returns each id once.
func read(t *testing.T, r *operate.Reader, between func(page int)) (all []string) {
	for page := 0; !r.Over(); page++ {
		jobs, err := r.Next(t.Context())
		require.NoError(t, err)
		for _, j := range jobs {
			all = append(all, j.ID)
		}
		between(page)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Jobs that stay are read, although others are taken from the head and pushed to the tail between two pages.
func TestAListIsReadBesideConsumers(t *testing.T) {
	t.Parallel()
	ctx, c, key := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var entries []any
	var stay []string
	for i := range 5000 {
		id := fmt.Sprintf("j%04d", i)
		entries = append(entries, "1:"+id)
		if i >= 2000 {
			stay = append(stay, id)
		}
	}
	require.NoError(t, c.RPush(ctx, key, append(entries, "foreign")...).Err())
	found := read(t, operate.ReadList(c, key), func(page int) {
		require.NoError(t, c.LPopCount(ctx, key, 500).Err())
		require.NoError(t, c.RPush(ctx, key, fmt.Sprintf("2:new%d", page)).Err())
	})
	require.Subset(t, found, stay)
	require.NotContains(t, found, "foreign")
}

// Jobs that stay are read, although others leave from the head between two pages, and more than a page has one score.
func TestASetIsReadBesideAPromoter(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, c, key := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var members []redis.Z
	for i := range 6000 {
		members = append(members, redis.Z{Score: float64(i / 2500), Member: fmt.Sprintf("j%04d", i)})
	}
	require.NoError(t, c.ZAdd(ctx, key, members...).Err())
	require.Len(t, read(t, operate.ReadSet(c, key), func(int) {}), 6000)
	found := read(t, operate.ReadSet(c, key), func(int) {
		require.NoError(t, c.ZPopMin(ctx, key, 500).Err())
	})
	stay := c.ZRange(ctx, key, 0, -1).Val()
	require.NotEmpty(t, stay)
	require.Subset(t, found, stay)
}

// A set is read on behind a job that has left it, among others of its score, while those before it stay.
func TestASetIsReadOnBehindAJob(t *testing.T) {
	t.Parallel()
	ctx, c, key := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var members []redis.Z
	for i := range 6000 {
		members = append(members, redis.Z{Score: float64(i / 2500), Member: fmt.Sprintf("j%04d", i)})
	}
	require.NoError(t, c.ZAdd(ctx, key, members...).Err())
	require.NoError(t, c.ZRem(ctx, key, "j3999").Err())
	r := operate.ReadSet(c, key)
	r.Behind(operate.Job{ID: "j3999", Score: 1})
	found := read(t, r, func(int) {})
	require.Len(t, found, 2000)
	require.Equal(t, "j4000", found[0])
}
