package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// An age below a millisecond is a bound, too.
func TestTrimOfAShortAge(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	require.NoError(t, lab.TakeOne(t, q).Bury(t.Context(), "why"))
	died := c.ZScore(t.Context(), lab.Key(q, "d"), "j").Val()
	luatomictest.Eventually(t, 10*time.Second, "the job is older than that", func() bool {
		return float64(c.Time(t.Context()).Val().UnixMilli()) > died+1
	})
	n, err := q.Trim(t.Context(), queue.DeadLimits{Age: 500 * time.Microsecond})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestRequeueRevivesTheDead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a", Body: []byte("aa")}, queue.Job{ID: "b"}, queue.Job{ID: "c"})
	for range 3 {
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	}
	require.Equal(t, 2, stats(t, q).DeadBytes)
	n, err := q.Requeue(ctx, "b", "none")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	d := lab.TakeOne(t, q)
	require.Equal(t, "b", d.ID)
	require.Equal(t, 1, d.Attempt, "no failure is counted")
	n, err = q.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Zero(t, c.Exists(ctx, lab.Key(q, "n"), lab.Key(q, "d")).Val())
	require.Zero(t, stats(t, q).DeadBytes)
}

// A dead job that is requeued or cancelled takes its own bytes from the count, and leaves those of the others.
func TestADeadJobTakesItsOwnBytesAlong(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "a", Body: []byte("1")}, queue.Job{ID: "b", Body: []byte("22")},
		queue.Job{ID: "c", Body: []byte("4444")})
	for range 3 {
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
	}
	_, err := q.Requeue(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, 6, stats(t, q).DeadBytes)
	_, err = q.Cancel(ctx, "b")
	require.NoError(t, err)
	require.Equal(t, 4, stats(t, q).DeadBytes)
}

func TestTrimKeepsTheDeadWithinLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for i := range 6 {
		lab.Push(t, q, queue.Job{ID: fmt.Sprint(i), Body: make([]byte, 10)})
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"),
			redis.Z{Score: float64(time.Now().UnixMilli() - 1000 + int64(i)), Member: fmt.Sprint(i)}).Err())
	}
	trim := func(l queue.DeadLimits) int {
		n, err := q.Trim(ctx, l)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, trim(queue.DeadLimits{}), "no limits")
	require.Zero(t, trim(queue.DeadLimits{Jobs: 6, Bytes: 60, Age: time.Hour}))
	require.Equal(t, 1, trim(queue.DeadLimits{Jobs: 5}))
	require.Equal(t, 2, trim(queue.DeadLimits{Bytes: 35}))
	left, err := q.Peek(ctx, queue.Dead, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "3", left[0].ID, "the oldest are deleted")
	require.Equal(t, 30, stats(t, q).DeadBytes)
	require.Equal(t, 3, trim(queue.DeadLimits{Age: 500 * time.Millisecond}))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "d"), lab.Key(q, "b"), lab.Key(q, "n")).Val())
}

// A queue in which jobs have died, and that is empty again, leaves no key but receipts, which expire.
func TestDrainedQueueLeavesNoKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, remove := range map[string]func(q *queue.Queue) error{
		"requeue": func(q *queue.Queue) error {
			_, err := q.Requeue(ctx, "j")
			require.NoError(t, err)
			return lab.TakeOne(t, q).Ack(ctx)
		},
		"cancel": func(q *queue.Queue) error { _, err := q.Cancel(ctx, "j"); return err },
		"trim":   func(q *queue.Queue) error { _, err := q.Trim(ctx, queue.DeadLimits{Jobs: 1}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, c := lab.NewQueue(t, nil)
			lab.Push(t, q, queue.Job{ID: "j", Body: []byte("body"), Unique: "u"})
			require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
			if name == "trim" {
				lab.Push(t, q, queue.Job{ID: "last"})
				require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
			}
			require.NoError(t, remove(q))
			if name == "trim" {
				_, err := q.Cancel(ctx, "last")
				require.NoError(t, err)
			}
			for key := range lab.Dump(ctx, t, c, q.Name()) {
				require.Positive(t, c.PTTL(ctx, key).Val(), key)
			}
		})
	}
}
