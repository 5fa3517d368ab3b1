package queue_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// No script may change a byte of a payload.
func TestBodiesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	want := [][]byte{
		[]byte(`{"a":[],"b":{},"n":9223372036854775807,"f":1e300,"z":-0.0,"enqueued_at":1}`),
		{}, {0}, []byte("a\x00b\r\n:\xff\xfe"), []byte("\u2028"), bytes.Repeat([]byte{0x80}, 100_000),
	}
	var jobs []queue.Job
	for i, b := range want {
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("%d:%d", i, i), Body: b})
	}
	_, err := q.Push(ctx, jobs...)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 100)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, len(want))
	for i, d := range taken.Deliveries {
		require.Equal(t, jobs[i].ID, d.ID)
		require.True(t, bytes.Equal(want[i], d.Body), "body %d", i)
	}
}

// The longest duration is a delay. It does not overflow into the delay that means the dead set.
func TestLongestDurations(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	ctx := t.Context()
	const ever = time.Duration(math.MaxInt64)
	lab.Push(t, q, queue.Job{ID: "nacked"}, queue.Job{ID: "returned"},
		queue.Job{ID: "held", Unique: "u", UniqueTTL: ever})
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, taken.Deliveries[0].Nack(ctx, ever, "later"))
	require.NoError(t, taken.Deliveries[1].Return(ctx, ever))
	_, err = q.Push(ctx, queue.Job{ID: "delayed", Delay: ever})
	require.NoError(t, err)
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3, 0}, []int{s.Ready, s.Scheduled, s.Dead})
	due, ok := s.NextDue.Get()
	require.True(t, ok)
	require.Greater(t, due.Sub(s.Now), 290*365*24*time.Hour)

	out, err := q.Push(ctx, queue.Job{ID: "second", Unique: "u"})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{Position: 0, ID: "held"}}, out.Duplicates)
}

// A time that no clock reaches does not overflow into one that has passed.
func TestTimesThatNoClockReaches(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	ctx := t.Context()
	never := []time.Time{time.Unix(1<<62, 0), time.Unix(1<<63-62135596801, 999999999), time.UnixMilli(math.MaxInt64)}
	for _, at := range never {
		out, err := q.Push(ctx, queue.Job{At: at})
		require.NoError(t, err)
		require.Equal(t, 1, out.Scheduled, at)
		_, err = q.Push(ctx, queue.Job{ID: "moved", Delay: time.Minute})
		require.NoError(t, err)
		moved, err := q.Reschedule(ctx, "moved", at)
		require.NoError(t, err)
		require.True(t, moved.Due.Year() > 9999, moved.Due)
	}
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, taken.Deliveries)
	due, ok := taken.NextDue.Get()
	require.True(t, ok && due.Year() > 9999, due)
}

// A time before the range of milliseconds has passed: it does not overflow into one that is far away.
func TestTimesThatAllClocksHavePassed(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	for _, at := range []time.Time{time.Unix(-1e16, 0), time.Unix(math.MinInt64, 0), time.UnixMilli(math.MinInt64)} {
		out, err := q.Push(t.Context(), queue.Job{At: at}, queue.Job{ExpiresAt: at})
		require.NoError(t, err)
		require.Equal(t, 2, out.Ready, at)
		taken, err := q.Take(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, out.IDs[:1], idsOf(taken.Deliveries), at)
		require.Equal(t, 1, taken.Dropped, at)
	}
}

// The guard is the look-up of ids that the caller chose.
func TestPushReportsKnownIDsAsDuplicates(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	_, err := q.Push(ctx, queue.Job{ID: "ready", Body: []byte("1")}, queue.Job{ID: "scheduled", Delay: time.Hour})
	require.NoError(t, err)
	pushed, err := q.Push(ctx,
		queue.Job{ID: "ready", Body: []byte("2")}, queue.Job{ID: "new"},
		queue.Job{ID: "scheduled"}, queue.Job{ID: "new"})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{Position: 0, ID: "ready"}, {Position: 2, ID: "scheduled"},
		{Position: 3, ID: "new"}}, pushed.Duplicates)
	require.Equal(t, 1, pushed.Ready)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	require.Equal(t, []byte("1"), taken.Deliveries[0].Body, "a duplicate leaves the first body")

	leased, err := q.Push(ctx, queue.Job{ID: "ready"})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{ID: "ready"}}, leased.Duplicates, "a leased job is known")
	require.NoError(t, q.Bury(ctx, "no", taken.Deliveries[0]))
	dead, err := q.Push(ctx, queue.Job{ID: "ready"})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{ID: "ready"}}, dead.Duplicates, "a dead job is known")
	require.NoError(t, q.Ack(ctx, taken.Deliveries[1]))
	again, err := q.Push(ctx, queue.Job{ID: "new"})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{ID: "new"}}, again.Duplicates, "a finished job is known")
}

// A job holds its unique name from the push until it is acked, cancelled or dead.
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
	require.True(t, moved.Found)
	require.NoError(t, takeID(t, q, "a").Ack(ctx))
	require.Empty(t, lab.Push(t, q, job("d")).Duplicates, "the ack releases it")

	require.NoError(t, takeID(t, q, "d").Bury(ctx, "no"))
	require.Empty(t, lab.Push(t, q, job("e")).Duplicates, "death releases it")
	_, err = q.Cancel(ctx, "e")
	require.NoError(t, err)
	require.Empty(t, lab.Push(t, q, job("f")).Duplicates, "a cancel releases it")
	require.NoError(t, takeID(t, q, "f").Ack(ctx))
	_, err = q.Cancel(ctx, "d") // the dead job remembers its name
	require.NoError(t, err)
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux")).Val(), "nothing is left of it")
}

// Another job gets a name whose hold has ended, and the former holder's ack does not touch the new hold.
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

// A unique name whose hold has ended belongs to its new holder, whatever becomes of the former one.
func TestANameTakenOverStaysWithItsNewHolder(t *testing.T) {
	t.Parallel()
	cases := map[string]func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error{
		"ack":  func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error { return d.Ack(ctx) },
		"bury": func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error { return d.Bury(ctx, "no") },
		"reclaim": func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error {
			if err := d.Extend(ctx, time.Millisecond); err != nil {
				return err
			}
			for {
				if r, err := q.Reclaim(ctx); err != nil || r.Buried > 0 {
					return err
				}
			}
		},
		"cancel": func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error {
			if err := d.Return(ctx, 0); err != nil {
				return err
			}
			return scriptcase.Cancels("first")(ctx, q, nil)
		},
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
			lab.Push(t, q, queue.Job{ID: "first", Unique: "x", UniqueTTL: time.Millisecond})
			d := lab.TakeOne(t, q)
			luatomictest.Eventually(t, 20*time.Second, "the hold has ended", func() bool {
				return len(lab.Push(t, q, queue.Job{ID: "second", Unique: "x", Delay: time.Hour}).Duplicates) == 0
			})
			require.NoError(t, call(ctx, q, d))
			want := map[string]string{"k:x": "second", "j:second": "x"}
			if name == "bury" || name == "reclaim" {
				want["j:first"] = "x" // a requeue finds the name held
			}
			require.Equal(t, want, c.HGetAll(ctx, lab.Key(q, "u")).Val())
			require.EqualValues(t, 1, c.ZCard(ctx, lab.Key(q, "ux")).Val())
		})
	}
}

// A job that is left out as a duplicate does not get its unique name.
func TestDuplicateLeavesNoUniqueHold(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a"})
	require.Len(t, lab.Push(t, q, queue.Job{ID: "a", Unique: "u"}).Duplicates, 1)
	require.Zero(t, c.Exists(t.Context(), lab.Key(q, "u"), lab.Key(q, "ux")).Val())
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "b", Unique: "u"}).Duplicates)
}

// Jobs with equal bodies are different jobs.
func TestIdenticalJobsStayApart(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	same := queue.Job{Body: []byte("same"), Delay: time.Millisecond}
	require.Equal(t, 3, lab.Push(t, q, same, same, same).Scheduled)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(context.Context, *queue.Delivery) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 3, out.Acked)
}

// takeID takes until it has that job, and returns the others to the queue.
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
