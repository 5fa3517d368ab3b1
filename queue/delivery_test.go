package queue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The guard is the fence in ack, nack and extend.
func TestAStaleWorkerCannotTouchTheJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 20 * time.Millisecond})
	_, err := q.Push(ctx, queue.Job{ID: "j"})
	require.NoError(t, err)
	stale := lab.TakeOne(t, q)
	luatomictest.Eventually(t, 5*time.Second, "the lease ends", func() bool {
		r, err := q.Reclaim(ctx)
		require.NoError(t, err)
		return r.Returned == 1
	})

	// The job is ready again, not leased.
	require.ErrorIs(t, stale.Ack(ctx), queue.ErrLeaseLost)
	long, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	fresh := lab.TakeOne(t, long)
	require.Equal(t, 2, fresh.Attempt, "a lost lease counts as a failure")

	before := lab.Dump(ctx, t, c, q.Name())
	require.ErrorIs(t, stale.Ack(ctx), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Nack(ctx, 0, ""), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Bury(ctx, ""), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Extend(ctx, time.Hour), queue.ErrLeaseLost)
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "nothing changed")

	require.NoError(t, fresh.Ack(ctx))
	require.NoError(t, stale.Ack(ctx), "a deleted job counts as finished")
	require.ErrorIs(t, stale.Nack(ctx, 0, ""), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Extend(ctx, time.Hour), queue.ErrLeaseLost)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Ready+stats.Scheduled+stats.Leased+stats.Dead, "a finished job stays finished")
}

func TestAckNamesTheLostDeliveries(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, lab.Bodies(3)...)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	ds := taken.Deliveries
	require.NoError(t, c.ZIncrBy(ctx, lab.Key(q, "l"), 1, ds[1].ID).Err())
	err = q.Ack(ctx, ds...)
	var lost *queue.LeaseLostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, []string{ds[1].ID}, lost.IDs)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Leased, "the others are finished")
}

func TestExtendMovesTheDeadline(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Second})
	_, err := q.Push(ctx, lab.Bodies(1)...)
	require.NoError(t, err)
	d := lab.TakeOne(t, q)
	before := d.Deadline()
	require.NoError(t, d.Extend(ctx, time.Hour))
	require.Greater(t, d.Deadline().Sub(before), 50*time.Minute)
	require.NoError(t, d.Ack(ctx), "the new fence is the delivery's")
}

func TestNackDelaysAndCountsAndBuryKeeps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, queue.Job{ID: "j", Body: []byte("B")})
	require.NoError(t, err)
	require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "first"))
	d := lab.TakeOne(t, q)
	require.Equal(t, 2, d.Attempt)
	require.NoError(t, d.Nack(ctx, time.Hour, "second"))
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Scheduled)
	require.Greater(t, stats.NextDue.Or(time.Time{}).Sub(stats.Now), 59*time.Minute)

	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: 1, Member: "j"}).Err())
	d = lab.TakeOne(t, q)
	require.Equal(t, 3, d.Attempt)
	require.NoError(t, d.Bury(ctx, "third"))
	stats, err = q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Dead)
	require.Equal(t, "B", c.HGet(ctx, lab.Key(q, "b"), "j").Val(), "the body stays with a dead job")
}

func TestDeliveriesOfAnotherQueueAreRefused(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	other, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{})
	d := lab.TakeOne(t, q)
	require.ErrorContains(t, other.Ack(t.Context(), d), "is from queue")
	require.ErrorContains(t, other.Nack(t.Context(), 0, "", d), "is from queue")
	require.ErrorContains(t, other.Extend(t.Context(), time.Hour, d), "is from queue")
	require.NoError(t, q.Ack(t.Context(), d))
}
