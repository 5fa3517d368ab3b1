package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A server over its memory limit still allows the repair of what it evicted.
func TestAuditRepairsOverTheMemoryLimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.StartServer(t).Client()
	q, err := queue.New(c, "full", nil)
	require.NoError(t, err)
	lab.Push(t, q, lab.Bodies(10)...)
	require.NoError(t, c.Del(ctx, lab.Key(q, "r")).Err())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	require.Equal(t, 10, audit(t, q, true).LostTotal)
	require.Equal(t, 10, stats(t, q).Ready)
}

// A repair of a cancelled job that is refused half-way is found by the next audit. An entry of ready that a repair adds
// too early would hide it, and its name would be held.
func TestRepairOfACancelledJobRefusedHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	full, err := queue.New(admin, "q", nil)
	require.NoError(t, err)
	lab.Push(t, full, queue.Job{ID: "running", Unique: "name"})
	lab.TakeOne(t, full)
	lab.Must(full.Cancel(ctx, "running"))
	require.NoError(t, admin.Del(ctx, lab.Key(full, "l")).Err())
	q, err := queue.New(limited(t, admin, "hdel"), "q", nil)
	require.NoError(t, err)
	_, err = q.Audit(ctx, true)
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.Equal(t, queue.Audited{Checked: 1, StaleCounts: 1, Repaired: 1}, audit(t, full, true))
	require.Empty(t, empty(t, full))
	require.Empty(t, lab.Push(t, full, queue.Job{ID: "next", Unique: "name"}).Duplicates, "the name is free")
}

func TestAuditErrors(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, suffix := range strings.Fields("r s b l n d u ux c o f") {
		q, c := lab.NewQueue(t, nil)
		lab.Push(t, q, queue.Job{ID: "j"})
		require.NoError(t, c.Del(ctx, lab.Key(q, suffix)).Err())
		require.NoError(t, c.Set(ctx, lab.Key(q, suffix), "x", 0).Err())
		luatomictest.Eventually(t, 20*time.Second, "the key is named, which is searched for a second", func() bool {
			_, err := q.Audit(ctx, false)
			require.ErrorIs(t, err, lua.ErrWrongType, suffix)
			require.ErrorContains(t, err, fmt.Sprintf("luatomic: audit of %q: ", q.Name()))
			return strings.Contains(err.Error(), fmt.Sprintf("key %q", lab.Key(q, suffix)))
		})
	}
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	require.NoError(t, c.Del(ctx, lab.Key(q, "r")).Err())
	require.NoError(t, c.Set(ctx, lab.Key(q, "w"), "x", 0).Err())
	_, err := q.Audit(ctx, true)
	require.ErrorIs(t, err, lua.ErrWrongType)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = q.Audit(ended, true)
	require.ErrorIs(t, err, context.Canceled)
}
