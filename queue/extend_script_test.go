package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// extension is an extend of "j" by an hour, which a test can repeat.
func extension(q *queue.Queue, d *queue.Delivery) queuescript.ExtendParams {
	return queuescript.ExtendParams{
		Leases: lab.Key(q, "l"), Receipt: lab.Key(q, "i:token"), Failures: lab.Key(q, "n"), Lease: time.Hour,
		Jobs: []queuescript.ExtendJob{{ID: d.ID, Fence: d.Deadline().UnixMicro()}},
	}
}

// The receipt of an extend ends with the lease. A repeat does not keep it for longer: its fence would be in the past.
func TestARepeatedExtendLeavesTheEndOfItsReceipt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	p := extension(q, lab.TakeOne(t, q))
	first, err := queuescript.Extend(ctx, c, p)
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, p.Receipt).Val(), 30*time.Minute)
	require.NoError(t, c.Expire(ctx, p.Receipt, 20*time.Minute).Err())
	again, err := queuescript.Extend(ctx, c, p)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.LessOrEqual(t, c.PTTL(ctx, p.Receipt).Val(), 20*time.Minute)
}

// A repeat that is refused keeps the receipt of the extend that was not: the next repeat has its fence.
func TestARefusedRepeatOfAnExtendKeepsTheReceipt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	q, err := queue.New(admin, "q", nil)
	require.NoError(t, err)
	lab.Push(t, q, queue.Job{ID: "j"})
	p := extension(q, lab.TakeOne(t, q))
	first, err := queuescript.Extend(ctx, admin, p)
	require.NoError(t, err)
	_, err = queuescript.Extend(ctx, limited(t, admin, "zadd"), p)
	require.Error(t, err)
	again, err := queuescript.Extend(ctx, admin, p)
	require.NoError(t, err)
	require.Equal(t, first, again)
}
