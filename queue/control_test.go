package queue_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// The limit belongs to the queue, so it binds every producer. No job of a refused batch is added.
func TestLimitRefusesTheWholeBatch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, q.SetLimit(ctx, 5))
	lab.Push(t, q, lab.Bodies(3)...)
	lab.Push(t, q, queue.Job{Delay: time.Hour})
	before := lab.Dump(ctx, t, c, q.Name())
	_, err := q.Push(ctx, queue.Job{}, queue.Job{Delay: time.Hour, Unique: "u"})
	require.ErrorIs(t, err, queue.ErrFull)
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
	lab.Push(t, q, queue.Job{})
	d := lab.TakeOne(t, q)
	_, err = q.Push(ctx, queue.Job{})
	require.ErrorIs(t, err, queue.ErrFull, "a leased job counts")
	require.NoError(t, d.Ack(ctx))
	lab.Push(t, q, queue.Job{})
	require.Equal(t, 5, stats(t, q).Limit)
	require.NoError(t, q.SetLimit(ctx, 0))
	lab.Push(t, q, lab.Bodies(10)...)
	require.Error(t, q.SetLimit(ctx, -1))
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Bodies(2)...)
	d := lab.TakeOne(t, q)
	require.NoError(t, q.Pause(ctx))
	require.True(t, stats(t, q).Paused)
	taken, err := q.Take(ctx, 1)
	require.NoError(t, err)
	require.True(t, taken.Paused)
	require.Empty(t, taken.Deliveries)
	require.NoError(t, d.Ack(ctx), "work on leased jobs continues")
	lab.Push(t, q, queue.Job{})
	require.NoError(t, q.Resume(ctx))
	taken, err = q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
}

// The two settings do not affect each other, and removing one leaves no field behind.
func TestSettingsStayApart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, q.SetLimit(ctx, 3))
	require.NoError(t, q.Pause(ctx))
	require.Equal(t, 3, stats(t, q).Limit)
	require.NoError(t, q.Resume(ctx))
	require.Equal(t, 3, stats(t, q).Limit)
	require.NoError(t, q.Pause(ctx))
	require.NoError(t, q.SetLimit(ctx, 0))
	require.True(t, stats(t, q).Paused)
	require.NoError(t, q.Resume(ctx))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "c")).Val())
}

// A limit that a reply could not hold is refused, and nothing is sent: it would be read back as another number.
func TestALimitThatCannotBeReadBackIsRefused(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	greatest := int64(1<<53 - 1)
	for _, jobs := range []int64{-1, greatest + 1, math.MaxInt64} {
		require.ErrorIs(t, q.SetLimit(t.Context(), int(jobs)), lua.ErrOutOfRange, jobs)
	}
	require.Zero(t, stats(t, q).Limit)
	require.NoError(t, q.SetLimit(t.Context(), int(greatest)))
	require.EqualValues(t, greatest, stats(t, q).Limit)
}
