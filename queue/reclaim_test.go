package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestReclaimBuriesWhatFailedTooOften(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Millisecond, MaxFailures: 2})
	_, err := q.Push(ctx, queue.Job{ID: "poison"})
	require.NoError(t, err)
	reclaim := func() (r queue.Reclaimed) {
		lab.TakeOne(t, q)
		luatomictest.Eventually(t, 5*time.Second, "the lease ends", func() bool {
			var err error
			r, err = q.Reclaim(ctx)
			require.NoError(t, err)
			return r.Returned+r.Buried > 0
		})
		return r
	}
	require.Equal(t, 1, reclaim().Returned)
	require.Equal(t, 1, reclaim().Buried)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Dead)
}

// A reclaim drops a lease whose job was deleted, and does not make it a job without a body.
func TestReclaimDropsLeasesWithoutAJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: "ghost"}).Err())
	r, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Zero(t, r.Returned+r.Buried)
	require.Empty(t, lab.Dump(ctx, t, c, q.Name()))
}

// A reclaim returns a bounded number of jobs, so that the script stays short, and reports that there are more.
func TestReclaimIsBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	const over = 250
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, j := range lab.Numbered(over, 0) {
			p.HSet(ctx, lab.Key(q, "b"), j.ID, "body")
			p.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: j.ID})
		}
		return nil
	})
	require.NoError(t, err)
	first, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, first.Returned)
	require.Less(t, first.NextLapse.Or(first.Now), first.Now, "more leases have ended")
	second, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, over-200, second.Returned)
}

// Reclaimed jobs are at the head of the ready list, the one whose lease ended first before the others.
func TestReclaimKeepsTheOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Numbered(5, 0)...)
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	for i, d := range taken.Deliveries {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: float64(i + 1), Member: d.ID}).Err())
	}
	_, err = q.Reclaim(ctx)
	require.NoError(t, err)
	again, err := q.Take(ctx, 5)
	require.NoError(t, err)
	for i, d := range again.Deliveries {
		require.Equal(t, lab.Numbered(5, 0)[i].ID, d.ID)
	}
}

// A job whose worker has died twice in a row waits, each time longer; others come first. A job that failed in between
// does not.
func TestJobThatKillsItsWorkersWaits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	die := func() (now time.Time) {
		t.Helper()
		for _, id := range c.ZRange(ctx, lab.Key(q, "l"), 0, -1).Val() {
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: id}).Err())
		}
		r, err := q.Reclaim(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, r.Returned)
		return r.Now
	}
	lab.Push(t, q, queue.Job{ID: "poison"})
	lab.TakeOne(t, q)
	die()
	require.Equal(t, "poison", lab.TakeOne(t, q).ID, "once can happen to any job")
	lab.Push(t, q, queue.Job{ID: "next"})
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		now := die()
		require.Equal(t, "next", c.LIndex(ctx, lab.Key(q, "r"), 0).Val()[14:])
		due := time.UnixMilli(int64(c.ZScore(ctx, lab.Key(q, "s"), "poison").Val()))
		require.InDelta(t, want, due.Sub(now), float64(2*time.Millisecond))
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: lab.Past, Member: "poison"}).Err())
		_, err := q.Promote(ctx)
		require.NoError(t, err)
		next := lab.TakeOne(t, q)
		require.Equal(t, "next", next.ID)
		require.NoError(t, next.Return(ctx, 0))
		taken, err := q.Take(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, []string{"next", "poison"}, idsOf(taken.Deliveries))
		require.NoError(t, taken.Deliveries[0].Return(ctx, 0))
	}
	require.NoError(t, c.HSet(ctx, lab.Key(q, "n"), "poison\n", "a failure of the handler").Err())
	die()
	require.Equal(t, int64(0), c.ZCard(ctx, lab.Key(q, "s")).Val())
}

// A consumer that sleeps takes back the job of a dead worker when its lease ends, although no notification says that
// another worker has taken a job, or that it has died.
func TestAnIdleConsumerReclaimsWhenALeaseEnds(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: 5 * time.Second})
	got := make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(ctx, &queue.ConsumeOptions{Idle: asleep}, func(_ context.Context, d *queue.Delivery) error {
			got <- d.Attempt
			return nil
		})
		ended <- err
	}()
	luatomictest.Eventually(t, 30*time.Second, "the consumer waits", waitersAre(t, c, q, 1))
	require.NoError(t, c.Del(t.Context(), lab.Key(q, "w")).Err(), "as if the push notified another worker")
	lab.Push(t, q, queue.Job{ID: "orphan"})
	lab.TakeOne(t, q) // and then the worker dies
	require.Equal(t, 2, lab.Soon(t, 20*time.Second, "the next delivery", got))
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A lease that has ended and was not taken back counts as lapsed, beside those that run, until a reclaim.
func TestStatsCountLapsedLeases(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Numbered(3, 0)...)
	taken, err := q.Take(ctx, 3)
	require.NoError(t, err)
	require.Zero(t, stats(t, q).Lapsed)
	for _, d := range taken.Deliveries[:2] {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
	}
	st := stats(t, q)
	require.Equal(t, []int{3, 2}, []int{st.Leased, st.Lapsed})
	require.Equal(t, 2, lab.Must(q.Reclaim(ctx)).Returned)
	st = stats(t, q)
	require.Equal(t, []int{1, 0, 2}, []int{st.Leased, st.Lapsed, st.Ready})
}
