package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func stats(t *testing.T, q *queue.Queue) queue.Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	return s
}

// A unique name is held from the push until the job is done, cancelled or dead.
func TestUniqueNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	job := func(id string) queue.Job { return queue.Job{ID: id, Unique: "user:7"} }
	first := lab.Push(t, q, job("a"), job("b"), queue.Job{ID: "c"})
	require.Equal(t, 2, first.Ready)
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "a"}}, first.Duplicates, "within one batch")
	require.Equal(t, "a", lab.Push(t, q, job("d")).Duplicates[0].ID)

	a := lab.TakeOne(t, q)
	require.Equal(t, "a", lab.Push(t, q, job("d")).Duplicates[0].ID, "a leased job holds it")
	require.NoError(t, a.Nack(ctx, time.Hour, "later"))
	require.Equal(t, "a", lab.Push(t, q, job("d")).Duplicates[0].ID, "a job to be retried holds it")
	moved, err := q.Reschedule(ctx, "a", time.Unix(1, 0))
	require.NoError(t, err)
	require.True(t, moved.Moved)
	require.NoError(t, takeID(t, q, "a").Ack(ctx))
	require.Empty(t, lab.Push(t, q, job("d")).Duplicates, "the ack releases it")

	require.NoError(t, takeID(t, q, "d").Bury(ctx, "no"))
	require.Empty(t, lab.Push(t, q, job("e")).Duplicates, "death releases it")
	_, err = q.Cancel(ctx, "e")
	require.NoError(t, err)
	require.Empty(t, lab.Push(t, q, job("f")).Duplicates, "a cancel releases it")
	require.NoError(t, takeID(t, q, "f").Ack(ctx))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux")).Val(), "nothing is left of it")
}

// takeID takes until it has that job; the others are given back.
func takeID(t *testing.T, q *queue.Queue, id string) *queue.Delivery {
	t.Helper()
	taken, err := q.Take(t.Context(), 100)
	require.NoError(t, err)
	var got *queue.Delivery
	for _, d := range taken.Deliveries {
		if d.ID == id {
			got = d
		} else {
			require.NoError(t, d.Return(t.Context(), 0))
		}
	}
	require.NotNil(t, got, "job %s", id)
	return got
}

// A hold that ended by itself is taken over, and the old holder's ack does not
// touch the new hold.
func TestUniqueHoldEndsByItself(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "old", Unique: "u", UniqueTTL: time.Millisecond})
	luatomictest.Eventually(t, 5*time.Second, "the hold ends", func() bool {
		return lab.Push(t, q, queue.Job{ID: "new", Unique: "u", UniqueTTL: time.Hour}).Ready == 1
	})
	require.NoError(t, takeID(t, q, "old").Ack(ctx))
	require.Equal(t, "new", lab.Push(t, q, queue.Job{ID: "third", Unique: "u"}).Duplicates[0].ID)
	require.NoError(t, takeID(t, q, "new").Ack(ctx))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux")).Val())
}

func TestPushOnceRepeatsDuplicatesOfUniqueNames(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	jobs := []queue.Job{{ID: "a 1:2", Unique: "u"}, {ID: "b", Unique: "u"}, {ID: "a 1:2"}}
	first, err := q.PushOnce(t.Context(), "t", jobs...)
	require.NoError(t, err)
	second, err := q.PushOnce(t.Context(), "t", jobs...)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "a 1:2"}, {Position: 2, ID: "a 1:2"}}, first.Duplicates)
}

// The limit is the queue's, so it binds every producer; none of a batch goes in.
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
	require.NoError(t, d.Ack(ctx), "work in hand goes on")
	lab.Push(t, q, queue.Job{})
	require.NoError(t, q.Resume(ctx))
	taken, err = q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
}

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

	require.Equal(t, "next", lab.TakeOne(t, q).ID, "the worker passes over the cancelled job")
	require.NoError(t, leased.Ack(ctx), "the worker of a leased job goes on")
	require.NoError(t, takeNone(t, q))
	require.Equal(t, int64(1), c.HLen(ctx, lab.Key(q, "b")).Val(), "only the job in hand has a body")
}

func takeNone(t *testing.T, q *queue.Queue) error {
	t.Helper()
	taken, err := q.Take(t.Context(), 10)
	if len(taken.Deliveries) > 0 {
		return fmt.Errorf("took %d jobs", len(taken.Deliveries))
	}
	return err
}

// A cancelled ready job keeps its id until its entry is passed over: else a new job
// with that id would be delivered by the old entry, before its time, or twice.
func TestCancelledReadyJobKeepsItsIDUntilPassedOver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	_, err := q.Cancel(ctx, "j")
	require.NoError(t, err)
	require.Len(t, lab.Push(t, q, queue.Job{ID: "j", Delay: time.Hour}).Duplicates, 1)
	require.NoError(t, takeNone(t, q))
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "j", Delay: time.Hour}).Duplicates)
	require.NoError(t, takeNone(t, q), "not before its time")
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	lab.Push(t, q, queue.Job{ID: "j", At: at}, queue.Job{ID: "ready"})
	for _, test := range []struct {
		name  string
		set   func(context.Context, string, time.Time) (queue.Rescheduled, error)
		id    string
		at    time.Time
		found bool
		due   time.Time
	}{
		{"not there", q.Reschedule, "none", at, false, time.Time{}},
		{"not scheduled", q.Reschedule, "ready", at, false, time.Time{}},
		{"earlier, refused", q.RescheduleEarlier, "j", at.Add(time.Hour), true, at},
		{"later, refused", q.RescheduleLater, "j", at.Add(-time.Minute), true, at},
		{"later", q.RescheduleLater, "j", at.Add(time.Hour), true, at.Add(time.Hour)},
		{"earlier", q.RescheduleEarlier, "j", at.Add(-time.Minute), true, at.Add(-time.Minute)},
		{"any", q.Reschedule, "j", at, true, at},
	} {
		out, err := test.set(ctx, test.id, test.at)
		require.NoError(t, err, test.name)
		require.Equal(t, test.found, out.Found, test.name)
		require.True(t, test.due.Equal(out.Due), "%s: %v", test.name, out.Due)
		require.Equal(t, out.Found && test.due.Equal(test.at), out.Moved, test.name)
	}
	for _, set := range []func(context.Context, string, time.Time) (queue.Rescheduled, error){q.RescheduleEarlier, q.RescheduleLater} {
		same, err := set(ctx, "j", at)
		require.NoError(t, err)
		require.Equal(t, queue.Rescheduled{Found: true, Due: same.Due}, same, "the same time is neither earlier nor later")
	}
	params := gen.QueueRescheduleParams{Scheduled: lab.Key(q, "s"), Wake: lab.Key(q, "w"), ID: "j", Due: -60_000}
	inAMinute, err := gen.QueueReschedule(ctx, c, params)
	require.NoError(t, err)
	require.InDelta(t, c.Time(ctx).Val().Add(time.Minute).UnixMilli(), inAMinute.Due.Or(time.Time{}).UnixMilli(), 30_000)
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

func TestPeekSeesEveryStateAndTouchesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "leased", Body: []byte("L")}, queue.Job{ID: "dead", Body: []byte("D")})
	leased := lab.TakeOne(t, q)
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, strings.Repeat("x", 2000)))
	pushed := lab.Push(t, q, queue.Job{ID: "r1", Body: []byte("1")}, queue.Job{ID: "r2"}, queue.Job{ID: "s", Delay: time.Hour})
	before := lab.Dump(ctx, t, c, q.Name())

	peek := func(state queue.State) queue.Peeked {
		found, err := q.Peek(ctx, state, 0, 1)
		require.NoError(t, err)
		require.Len(t, found, 1, state)
		return found[0]
	}
	ready := peek(queue.Ready)
	require.Equal(t, "r1", ready.ID)
	require.Equal(t, []byte("1"), ready.Body)
	require.Equal(t, pushed.Now, ready.At)
	require.Equal(t, pushed.Now.Add(time.Hour), peek(queue.Scheduled).At)
	require.Equal(t, leased.Deadline().Truncate(time.Millisecond), peek(queue.Leased).At)
	dead := peek(queue.Dead)
	require.Equal(t, 1, dead.Failures)
	require.Len(t, dead.Reason, 1024)
	second, err := q.Peek(ctx, queue.Ready, 1, 1000)
	require.NoError(t, err)
	require.Equal(t, "r2", second[0].ID)
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
	_, err = q.Peek(ctx, queue.Absent, 0, 1)
	require.ErrorContains(t, err, "absent")
}

// A cancelled job whose hold is over leaves the name to the job that took it since, and
// a dead one takes its bytes along.
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

// The two settings are apart from each other, and one that is lifted leaves nothing.
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
