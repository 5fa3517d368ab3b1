package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// fenceOf is the fence of a leased job, which Find and Peek show alike.
func fenceOf(t *testing.T, q *queue.Queue, id string) int64 {
	t.Helper()
	found := lab.Must(q.Find(t.Context(), id))[0]
	require.Equal(t, queue.Leased, found.State)
	for _, p := range lab.Must(q.Peek(t.Context(), queue.Leased, 0, 200)) {
		if p.ID == id {
			require.Equal(t, p.Fence, found.Fence)
		}
	}
	return found.Fence
}

// A released job is at the head of the ready list without a failure, and its old worker's ack is refused.
func TestReleaseTakesAJobFromItsWorker(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{ID: "held", Body: []byte("B")}, queue.Job{ID: "next"})
	old := lab.TakeOne(t, q)
	fence := fenceOf(t, q, "held")
	require.Equal(t, old.Deadline().UnixMicro(), fence)
	require.True(t, lab.Must(q.Release(ctx, "held", fence)))
	st := stats(t, q)
	require.Equal(t, []int{2, 0}, []int{st.Ready, st.Leased})
	require.WithinDuration(t, st.Now, st.Oldest.Or(time.Time{}), time.Minute, "it is ready as of now")
	again := lab.TakeOne(t, q)
	require.Equal(t, "held", again.ID)
	require.Equal(t, 1, again.Attempt)
	require.ErrorIs(t, old.Ack(ctx), queue.ErrLeaseLost)
	require.NoError(t, again.Ack(ctx))
	require.False(t, lab.Must(q.Release(ctx, "held", fence)), "it is done")
}

// A release is for the lease that was shown: one that was renewed, or that another worker has got, stays.
func TestReleaseLeavesALeaseThatWasNotShown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "held"})
	d := lab.TakeOne(t, q)
	shown := fenceOf(t, q, "held")
	require.NoError(t, d.Extend(ctx, time.Hour))
	require.False(t, lab.Must(q.Release(ctx, "held", shown)))
	require.NoError(t, d.Ack(ctx))
}

// The lease of a cancelled job ends as well, and the job is deleted.
func TestReleaseOfACancelledJobDeletesIt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "held", Unique: "name"})
	lab.TakeOne(t, q)
	lab.Must(q.Cancel(ctx, "held"))
	require.True(t, lab.Must(q.Release(ctx, "held", fenceOf(t, q, "held"))))
	require.Equal(t, queue.Absent, lab.Must(q.Find(ctx, "held"))[0].State)
	require.Zero(t, lab.Push(t, q, queue.Job{ID: "other", Unique: "name"}).Duplicates)
}
