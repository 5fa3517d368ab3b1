package luatomic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
)

// Taken, given back and taken again as fast as that goes, with leases of one length:
// the second lease has another fence, and the first worker is refused.
func TestARetakenJobHasAnotherFence(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := newQueue(t, nil)
	push(t, q, luatomic.Job{ID: "j"})
	first := takeOne(t, q)
	for range 50 {
		require.NoError(t, first.Return(ctx, 0))
		second := takeOne(t, q)
		require.Greater(t, second.Deadline(), first.Deadline(), "a later lease has a later fence")
		before := dump(ctx, t, c, q.Name())
		require.ErrorIs(t, first.Ack(ctx), luatomic.ErrLeaseLost)
		require.ErrorIs(t, first.Return(ctx, 0), luatomic.ErrLeaseLost)
		require.ErrorIs(t, first.Nack(ctx, 0, "late"), luatomic.ErrLeaseLost)
		require.ErrorIs(t, first.Bury(ctx, "late"), luatomic.ErrLeaseLost)
		require.ErrorIs(t, first.Extend(ctx, time.Hour), luatomic.ErrLeaseLost)
		require.Equal(t, before, dump(ctx, t, c, q.Name()), "the second lease is as it was")
		first = second
	}
}
