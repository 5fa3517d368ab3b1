package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "leased"}, queue.Job{ID: "dead"})
	leased := lab.TakeOne(t, q)
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "no"))
	lab.Push(t, q, queue.Job{ID: "ready"}, queue.Job{ID: "scheduled", Delay: time.Hour}, queue.Job{ID: "next"})

	states, err := q.Cancel(ctx, "scheduled", "ready", "leased", "dead", "absent")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Scheduled, queue.Ready, queue.Leased, queue.Dead, queue.Absent}, states)
	again, err := q.Cancel(ctx, "scheduled", "ready", "dead")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Absent, queue.Absent, queue.Absent}, again)
	require.Zero(t, stats(t, q).DeadBytes)

	require.Equal(t, "next", lab.TakeOne(t, q).ID, "the take drops the cancelled job")
	require.NoError(t, leased.Ack(ctx), "the worker of a leased job continues")
	require.NoError(t, takeNone(t, q))
	require.Equal(t, int64(1), c.HLen(ctx, lab.Key(q, "b")).Val(), "only the leased job has a body")
}

func takeNone(t *testing.T, q *queue.Queue) error {
	t.Helper()
	taken, err := q.Take(t.Context(), 10)
	if len(taken.Deliveries) > 0 {
		return fmt.Errorf("took %d jobs", len(taken.Deliveries))
	}
	return err
}

// A cancelled ready job keeps its id until a take drops its entry. Otherwise the old entry would deliver a new job
// with that id, early or twice.
func TestCancelledReadyJobKeepsItsIDUntilDropped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	_, err := q.Cancel(ctx, "j")
	require.NoError(t, err)
	require.NoError(t, c.Del(ctx, lab.Key(q, "f")).Err(), "as if the receipt were over")
	require.Len(t, lab.Push(t, q, queue.Job{ID: "j", Delay: time.Hour}).Duplicates, 1)
	require.NoError(t, takeNone(t, q))
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "j", Delay: time.Hour}).Duplicates)
	require.NoError(t, takeNone(t, q), "not before its time")
}

// A call that found nothing is known for a minute as well: its copy that arrives later does not touch the jobs that
// have come since.
func TestLateCopiesOfCancelAndBuryTouchNoLaterJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	k := func(suffix string) string { return lab.Key(q, suffix) }
	cancel := func() []int64 {
		return lab.Must(queuescript.Cancel(ctx, c, queuescript.CancelParams{Known: time.Minute,
			Scheduled: k("s"), Bodies: k("b"), Leases: k("l"), Failures: k("n"), Dead: k("d"), Unique: k("u"),
			Expiry: k("ux"), Control: k("c"), Options: k("o"), Finished: k("f"), Receipt: k("i:1"), Only: "1234",
			IDs: []string{"j"},
		}))
	}
	bury := func() []int64 {
		return lab.Must(queuescript.Bury(ctx, c, queuescript.BuryParams{
			Scheduled: k("s"), Bodies: k("b"), Leases: k("l"), Failures: k("n"), Dead: k("d"), Unique: k("u"),
			Expiry: k("ux"), Control: k("c"), Receipt: k("i:2"), Only: "12", IDs: []string{"j"},
		}))
	}
	require.Equal(t, []int64{0}, cancel())
	lab.Push(t, q, queue.Job{ID: "j"})
	require.Equal(t, []int64{0}, cancel())
	d := lab.TakeOne(t, q)
	require.Equal(t, []int64{3}, bury())
	require.NoError(t, d.Nack(ctx, 0, "again"))
	require.Equal(t, []int64{3}, bury())
	require.Equal(t, "j", lab.TakeOne(t, q).ID)
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	lab.Push(t, q, queue.Job{ID: "j", At: at}, queue.Job{ID: "ready"})
	for _, test := range []struct {
		name  string
		id    string
		at    time.Time
		found bool
		due   time.Time
	}{
		{"not there", "none", at, false, time.Time{}},
		{"not scheduled", "ready", at, false, time.Time{}},
		{"later", "j", at.Add(time.Hour), true, at.Add(time.Hour)},
		{"earlier", "j", at.Add(-time.Minute), true, at.Add(-time.Minute)},
		{"the same time", "j", at.Add(-time.Minute), true, at.Add(-time.Minute)},
		{"back", "j", at, true, at},
	} {
		out, err := q.Reschedule(ctx, test.id, test.at)
		require.NoError(t, err, test.name)
		require.Equal(t, test.found, out.Found, test.name)
		require.True(t, test.due.Equal(out.Due), "%s: %v", test.name, out.Due)
	}
	params := queuescript.RescheduleParams{
		Scheduled: lab.Key(q, "s"), Wake: lab.Key(q, "w"), Receipt: lab.Key(q, "i:t"), ID: "j", Due: -60_000,
	}
	inAMinute, err := queuescript.Reschedule(ctx, c, params)
	require.NoError(t, err)
	require.InDelta(t, c.Time(ctx).Val().Add(time.Minute).UnixMilli(), inAMinute.Due.Or(time.Time{}).UnixMilli(),
		30_000)
	now, err := q.Reschedule(ctx, "j", time.Time{})
	require.NoError(t, err)
	require.InDelta(t, c.Time(ctx).Val().UnixMilli(), now.Due.UnixMilli(), 30_000, "the zero time is now")
	_, err = q.Reschedule(ctx, "j", time.Unix(1, 0))
	require.NoError(t, err)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2, "a time that has passed makes it due")
	out, err := q.Reschedule(ctx, "j", at)
	require.NoError(t, err)
	require.False(t, out.Found, "it cannot be both moved and ready")
}

// A cancelled job whose hold has ended leaves the name to the job that holds it now. A dead job subtracts its
// bytes.
func TestCancelLeavesWhatIsNotTheJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "first", Unique: "u", UniqueTTL: time.Hour, Delay: time.Hour})
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "ux"), redis.Z{Score: lab.Past, Member: "u"}).Err())
	lab.Push(t, q, queue.Job{ID: "second", Unique: "u", Delay: time.Hour})
	_, err := q.Cancel(ctx, "first")
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{ID: "second"}}, lab.Push(t, q, queue.Job{Unique: "u"}).Duplicates)

	lab.Push(t, q, queue.Job{ID: "dead", Body: []byte("1234")})
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	require.Equal(t, 4, stats(t, q).DeadBytes)
	_, err = q.Cancel(ctx, "dead")
	require.NoError(t, err)
	require.Zero(t, stats(t, q).DeadBytes)
}

// A job is cancelled or rescheduled while pollers move it: it is never both moved and changed, and never lost.
func TestCancelAndRescheduleWhileMoving(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	const n = 300
	jobs := lab.Bodies(n)
	for i := range jobs {
		jobs[i].ID, jobs[i].Delay = fmt.Sprint("j", i), time.Duration(1+i%20)*time.Millisecond
	}
	lab.Push(t, q, jobs...)
	stop, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	for range 2 {
		background.Go(func() { _ = queue.NewPoller(nil, q).Run(stop) })
	}
	cancelled, put := make(map[string]bool), make(map[string]bool)
	far := time.Now().Add(time.Hour)
	for i, j := range jobs {
		if i%2 == 0 {
			state, err := q.Cancel(ctx, j.ID)
			require.NoError(t, err)
			require.Contains(t, []queue.State{queue.Scheduled, queue.Ready}, state[0])
			cancelled[j.ID] = true
			continue
		}
		out, err := q.Reschedule(ctx, j.ID, far)
		require.NoError(t, err)
		put[j.ID] = out.Found
	}
	luatomictest.Eventually(t, 30*time.Second, "all due jobs are ready", func() bool {
		s := stats(t, q)
		next, ok := s.NextDue.Get()
		return !ok || next.After(s.Now.Add(time.Minute))
	})
	cancel()
	background.Wait()
	got := make(map[string]bool)
	for {
		taken, err := q.Take(ctx, 100)
		require.NoError(t, err)
		if len(taken.Deliveries)+taken.Dropped == 0 {
			break
		}
		for _, d := range taken.Deliveries {
			require.False(t, got[d.ID], "delivered twice")
			got[d.ID] = true
		}
	}
	for _, j := range jobs {
		require.Equal(t, !cancelled[j.ID] && !put[j.ID], got[j.ID], j.ID)
	}
	scheduled := 0
	for _, moved := range put {
		if moved {
			scheduled++
		}
	}
	require.Equal(t, scheduled, stats(t, q).Scheduled)
}

// Each script of a Cancel, BuryJobs or Requeue has a receipt of its own, so each one has its 50 s: a caller who gives a
// long list an hour has it.
func TestEachScriptOfALongListHasItsTime(t *testing.T) {
	t.Parallel()
	ids := make([]string, 201)
	for i := range ids {
		ids[i] = fmt.Sprint("j", i)
	}
	for name, call := range map[string]func(context.Context, *queue.Queue, []string) error{
		"cancel": func(ctx context.Context, q *queue.Queue, ids []string) error {
			_, err := q.Cancel(ctx, ids...)
			return err
		},
		"requeue": func(ctx context.Context, q *queue.Queue, ids []string) error {
			_, err := q.Requeue(ctx, ids...)
			return err
		},
		"bury": func(ctx context.Context, q *queue.Queue, ids []string) error {
			_, err := q.BuryJobs(ctx, "", ids...)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := lab.NewQueue(t, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			one, two := &asked{Context: ctx}, &asked{Context: ctx}
			require.NoError(t, call(one, q, ids[:1]))
			require.NoError(t, call(two, q, ids))
			require.Equal(t, 2*one.times, two.times)
		})
	}
}

// asked counts how often its deadline is asked for, which each bound of a part of its time does.
type asked struct {
	context.Context
	times int
}

func (a *asked) Deadline() (time.Time, bool) {
	a.times++
	return a.Context.Deadline()
}
