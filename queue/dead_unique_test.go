package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A dead job has released its unique name. A requeue takes the name again, so that no second job of that name is in the
// queue.
func TestRequeueTakesTheUniqueNameAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "first", Unique: "u"})
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	n, err := q.Requeue(ctx, "first")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []queue.Duplicate{{ID: "first"}}, lab.Push(t, q, queue.Job{Unique: "u"}).Duplicates)
	require.NoError(t, lab.TakeOne(t, q).Ack(ctx))
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "next", Unique: "u"}).Duplicates, "the ack releases it")
	require.NoError(t, lab.TakeOne(t, q).Ack(ctx))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux")).Val())
}

// A job that dies because its leases ended releases its unique name, and remembers it.
func TestDeathByTheEndOfALeaseReleasesTheName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
	lab.Push(t, q, queue.Job{ID: "dead", Unique: "u"})
	lab.TakeOne(t, q)
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: "dead"}).Err())
	r, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, r.Buried)
	require.Equal(t, map[string]string{"j:dead": "u"}, c.HGetAll(ctx, lab.Key(q, "u")).Val())
	require.Zero(t, c.Exists(ctx, lab.Key(q, "ux")).Val())
}

// While another job holds the name, a dead job stays dead, and the error names both. Others are requeued.
func TestRequeueWaitsForTheUniqueName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "first", Unique: "u"}, queue.Job{ID: "other"})
	for range 2 {
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	}
	lab.Push(t, q, queue.Job{ID: "second", Unique: "u"})
	for _, ids := range [][]string{{"first", "other"}, nil} {
		n, err := q.Requeue(ctx, ids...)
		var held *queue.NameHeldError
		require.ErrorAs(t, err, &held)
		require.ErrorIs(t, err, queue.ErrNameHeld)
		require.Equal(t, []queue.NameHeld{{ID: "first", Holder: "second"}}, held.Jobs)
		require.Equal(t, len(ids)/2, n, "the other job once")
	}
	s := stats(t, q)
	require.Equal(t, []int{2, 1}, []int{s.Ready, s.Dead})
	states, err := q.Cancel(ctx, "second")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Ready}, states)
	n, err := q.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// A Requeue of the oldest goes on past a page of jobs that all stay dead.
func TestRequeueOfTheOldestPassesHeldNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "other"})
	for i := range 201 {
		id := fmt.Sprintf("u%03d", i)
		lab.Push(t, q, queue.Job{ID: id, Unique: "sync"})
		_, err := q.BuryJobs(ctx, "why", id)
		require.NoError(t, err)
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: float64(i + 1), Member: id}).Err())
	}
	_, err := q.BuryJobs(ctx, "why", "other")
	require.NoError(t, err)
	var held *queue.NameHeldError
	for i, want := range []struct{ moved, held int }{{1, 199}, {1, 200}, {0, 200}} {
		n, err := q.Requeue(ctx)
		require.Equal(t, want.moved, n, i)
		require.ErrorAs(t, err, &held)
		require.Len(t, held.Jobs, want.held, i)
	}
	require.Equal(t, "u000", held.Jobs[0].Holder)
	found, err := q.Find(ctx, "other")
	require.NoError(t, err)
	require.Equal(t, queue.Ready, found[0].State)
}

// Two dead jobs of one name: the requeue of both takes the first alone.
func TestRequeueOfTwoDeadJobsOfOneName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	for _, id := range []string{"first", "second"} {
		lab.Push(t, q, queue.Job{ID: id, Unique: "u"})
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	}
	n, err := q.Requeue(ctx, "first", "second")
	require.Equal(t, 1, n)
	var held *queue.NameHeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, []queue.NameHeld{{ID: "second", Holder: "first"}}, held.Jobs)
}

// A hold whose end has passed does not keep a dead job dead. The name is held without an end then.
func TestRequeueTakesANameWhoseHoldHasEnded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "dead", Unique: "u", UniqueTTL: time.Hour})
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	lab.Push(t, q, queue.Job{ID: "over", Unique: "u", UniqueTTL: time.Hour})
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "ux"), redis.Z{Score: lab.Past, Member: "u"}).Err())
	n, err := q.Requeue(ctx, "dead")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []queue.Duplicate{{ID: "dead"}}, lab.Push(t, q, queue.Job{Unique: "u"}).Duplicates)
	require.Equal(t, map[string]string{"k:u": "dead", "j:dead": "u", "j:over": "u"},
		c.HGetAll(ctx, lab.Key(q, "u")).Val())
}

// What leaves the dead set for good takes the memory of its name with it.
func TestDeadJobsLeaveNoNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for _, id := range []string{"a", "b", "c"} {
		lab.Push(t, q, queue.Job{ID: id, Unique: id})
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	}
	_, err := q.Cancel(ctx, "a")
	require.NoError(t, err)
	n, err := q.Trim(ctx, queue.DeadLimits{Jobs: 1})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, map[string]string{"j:c": "c"}, c.HGetAll(ctx, lab.Key(q, "u")).Val())
	_, err = q.Cancel(ctx, "c")
	require.NoError(t, err)
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux")).Val())
}
