package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Jobs that wait are buried with the reason, and no failure is counted. A job of a worker, a dead job and one that was
// cancelled stay as they are.
func TestBuryJobsInEveryState(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "leased"}, queue.Job{ID: "dead"})
	leased := lab.TakeOne(t, q)
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "first"))
	lab.Push(t, q, queue.Job{ID: "failed"})
	require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "boom"))
	lab.Push(t, q, queue.Job{ID: "ready", Body: []byte("1234")},
		queue.Job{ID: "scheduled", Body: []byte("12"), Delay: time.Hour},
		queue.Job{ID: "cancelled"})
	_, err := q.Cancel(ctx, "cancelled")
	require.NoError(t, err)

	states, err := q.BuryJobs(ctx, "why"+strings.Repeat("y", 2000), "scheduled", "ready", "failed", "leased", "dead",
		"cancelled",
		"absent", "ready")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Scheduled, queue.Ready, queue.Ready, queue.Leased, queue.Dead, queue.Absent,
		queue.Absent, queue.Dead}, states)
	found, err := q.Find(ctx, "scheduled", "ready", "failed", "leased", "dead")
	require.NoError(t, err)
	for i, failures := range []int{0, 0, 1} {
		require.Equal(t, queue.Dead, found[i].State)
		require.Equal(t, failures, found[i].Failures, found[i].ID)
		require.Len(t, found[i].Reason, 1024)
	}
	require.Equal(t, queue.Leased, found[3].State)
	require.Equal(t, "first", found[4].Reason)
	require.NoError(t, leased.Ack(ctx))
	peeked, err := q.Peek(ctx, queue.Dead, 0, 10)
	require.NoError(t, err)
	require.Len(t, peeked, 4)
	for _, p := range peeked {
		require.Equal(t, p.ID == "failed" || p.ID == "dead", p.Failures == 1, p.ID)
	}
	st := stats(t, q)
	require.Equal(t, []int{0, 4, 6}, []int{st.Scheduled, st.Dead, st.DeadBytes})
	audited, err := q.Audit(ctx, false)
	require.NoError(t, err)
	require.True(t, audited.OK(), "%+v", audited)
}

// The entry that a buried job leaves in ready delivers neither that job, nor a later one of its id.
func TestBuriedReadyJobIsNotDelivered(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, end := range map[string]func(q *queue.Queue) error{
		"taken": func(q *queue.Queue) error { return takeNone(t, q) },
		"cancelled": func(q *queue.Queue) error {
			_, err := q.Cancel(ctx, "j")
			return err
		},
		"trimmed": func(q *queue.Queue) error {
			time.Sleep(5 * time.Millisecond) // the age of the job, by the server's clock
			_, err := q.Trim(ctx, queue.DeadLimits{Age: time.Millisecond})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, c := lab.NewQueue(t, nil)
			lab.Push(t, q, queue.Job{ID: "j", Body: []byte("old"), Kind: "k"})
			require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "boom"))
			_, err := q.BuryJobs(ctx, "why", "j")
			require.NoError(t, err)
			peeked, err := q.Peek(ctx, queue.Ready, 0, 10)
			require.NoError(t, err)
			require.Empty(t, peeked)
			require.NoError(t, end(q))
			require.NoError(t, c.Del(ctx, lab.Key(q, "f")).Err(), "as if the receipt were over")
			pushed := lab.Push(t, q, queue.Job{ID: "j", Body: []byte("new"), Delay: time.Hour})
			require.Len(t, pushed.Duplicates, 1, "the queue knows the id")
			require.NoError(t, takeNone(t, q))
			if name == "taken" {
				require.Equal(t, "1", c.HGet(ctx, lab.Key(q, "n"), "j").Val(), "the count without the mark")
				n, err := q.Requeue(ctx, "j")
				require.NoError(t, err)
				require.Equal(t, 1, n)
				require.Equal(t, "old", string(lab.TakeOne(t, q).Body))
				return
			}
			require.Empty(t, lab.Push(t, q, queue.Job{ID: "j", Body: []byte("new"), Delay: time.Hour}).Duplicates)
			require.NoError(t, takeNone(t, q), "not before its time")
			require.Zero(t, c.Exists(ctx, lab.Key(q, "n"), lab.Key(q, "o"), lab.Key(q, "d"), lab.Key(q, "c")).Val())
		})
	}
}

// A requeue before a take has met the entry gives the job its place again, once.
func TestRequeueOfABuriedReadyJobKeepsItsPlace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a"}, queue.Job{ID: "b"}, queue.Job{ID: "c"})
	for range 2 {
		_, err := q.BuryJobs(ctx, "why", "a", "b")
		require.NoError(t, err)
		n, err := q.Requeue(ctx, "b")
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	require.Equal(t, []string{"b", "c"}, []string{taken.Deliveries[0].ID, taken.Deliveries[1].ID})
	require.Equal(t, 1, taken.Dropped)
	require.Equal(t, 1, taken.Deliveries[0].Attempt)
}

// A scheduled job has no entry in ready, so a requeue gives it one.
func TestRequeueOfABuriedScheduledJobIsTaken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a", Delay: time.Hour})
	_, err := q.BuryJobs(ctx, "why", "a")
	require.NoError(t, err)
	n, err := q.Requeue(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "a", lab.TakeOne(t, q).ID)
}

// A buried job gives its unique name up, and a requeue takes it again.
func TestBuryJobsReleasesTheUniqueName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a", Unique: "u"}, queue.Job{ID: "later", Unique: "v", Delay: time.Hour})
	_, err := q.BuryJobs(ctx, "why", "a", "later")
	require.NoError(t, err)
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "b", Unique: "u"}, queue.Job{ID: "c", Unique: "v"}).Duplicates)
	_, err = q.Requeue(ctx, "a", "later")
	require.ErrorIs(t, err, queue.ErrNameHeld)
	_, err = q.Cancel(ctx, "b")
	require.NoError(t, err)
	n, err := q.Requeue(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []queue.Duplicate{{ID: "a"}}, lab.Push(t, q, queue.Job{Unique: "u"}).Duplicates)
}

// Options.Dead bounds the dead set after a bury from outside, too.
func TestBuryJobsKeepsTheDeadWithinLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Dead: queue.DeadLimits{Jobs: 3}})
	lab.Push(t, q, lab.Numbered(300, 0)...)
	ids := make([]string, 300)
	for i := range ids {
		ids[i] = fmt.Sprint("j", i)
	}
	states, err := q.BuryJobs(ctx, "why", ids...)
	require.NoError(t, err)
	require.Len(t, states, 300)
	require.Equal(t, 3, stats(t, q).Dead)
	for range 100 {
		if c.LLen(ctx, lab.Key(q, "r")).Val() == 0 {
			break
		}
		require.NoError(t, takeNone(t, q))
	}
	require.EqualValues(t, 3, c.HLen(ctx, lab.Key(q, "b")).Val())
}

// A bury whose reply is lost repeats itself and answers the same.
func TestBuryJobsRepeatsWithTheSameAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "ready"}, queue.Job{ID: "scheduled", Delay: time.Hour})
	_, err := q.BuryJobs(ctx, "why", "none") // the server has the script now
	require.NoError(t, err)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	lossy, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	sent := lab.Sent(&queuescript.BuryScript)
	proxy.Drop(2, sent)
	states, err := lossy.BuryJobs(ctx, "why", "scheduled", "ready", "absent")
	require.NoError(t, err)
	require.Equal(t, 3, proxy.Executed(sent))
	require.Equal(t, []queue.State{queue.Scheduled, queue.Ready, queue.Absent}, states)
}

// An audit repairs a queue whose dead set was deleted: the job is delivered, though it has the mark of a buried one.
func TestAuditRevivesABuriedReadyJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	_, err := q.BuryJobs(ctx, "why", "j")
	require.NoError(t, err)
	require.NoError(t, c.Del(ctx, lab.Key(q, "d"), lab.Key(q, "r")).Err())
	audited, err := q.Audit(ctx, true)
	require.NoError(t, err)
	require.Equal(t, 1, audited.LostTotal)
	require.Equal(t, "j", lab.TakeOne(t, q).ID)
}
