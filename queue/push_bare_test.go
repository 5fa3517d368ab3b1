package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Jobs without ids and options need no receipt. They keep their order, their bytes and one stamp.
func TestPushOfBareJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, n := range []int{2, 50, 51, 999, queue.MaxBatch} {
		q, c := lab.NewQueue(t, nil)
		jobs := make([]queue.Job, n)
		for i := range jobs {
			jobs[i].Body = []byte(fmt.Sprint(i))
		}
		jobs[1].Body = nil
		out := lab.Push(t, q, jobs...)
		require.Equal(t, n, out.Ready)
		require.Empty(t, c.Keys(ctx, lab.Key(q, "i:*")).Val())
		require.EqualValues(t, n, c.HLen(ctx, lab.Key(q, "b")).Val())
		var all []*queue.Delivery
		for len(all) < n {
			taken, err := q.Take(ctx, 100)
			require.NoError(t, err)
			require.NotEmpty(t, taken.Deliveries)
			all = append(all, taken.Deliveries...)
		}
		require.Len(t, all, n)
		for i, d := range all {
			require.Equal(t, out.IDs[i], d.ID)
			require.Equal(t, string(jobs[i].Body), string(d.Body))
			require.Equal(t, out.Now, d.EnqueuedAt)
		}
	}
}

// One job with an id or options of its own takes the others along to the longer script, and so does a size that only
// the shorter one could bear: its errors are the same for all queues.
func TestPushOfBareJobsIsForThemAlone(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]queue.Job{
		"id": {ID: "x"}, "time": {At: time.Unix(1, 0)}, "delay": {Delay: time.Hour}, "unique": {Unique: "u"},
		"kind": {Kind: "k"},
		"size": {Body: make([]byte, queue.MaxBatchBytes-1000)},
	} {
		q, c := lab.NewQueue(t, nil)
		lab.Push(t, q, queue.Job{}, job, queue.Job{}, queue.Job{}, queue.Job{}, queue.Job{}, queue.Job{})
		require.Len(t, c.Keys(t.Context(), lab.Key(q, "i:*")).Val(), 1, name)
	}
	q, _ := lab.NewQueue(t, nil)
	_, err := q.Push(t.Context(), queue.Job{Body: make([]byte, queue.MaxBatchBytes)}, queue.Job{})
	require.ErrorIs(t, err, lua.ErrTooLarge)
	_, err = q.Push(t.Context(), lab.Bodies(queue.MaxBatch+1)...)
	require.ErrorIs(t, err, lua.ErrTooLarge)
}

// A limit holds for bare jobs, also for those of a Queue that does not know of it: all of a batch or none.
func TestPushOfBareJobsIntoAFullQueue(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	for range 3 {
		q, err := queue.New(c, name, nil)
		require.NoError(t, err)
		require.NoError(t, q.SetLimit(ctx, 5))
		for range 3 {
			if _, err = q.Push(ctx, lab.Bodies(2)...); err != nil {
				require.ErrorIs(t, err, queue.ErrFull)
			}
		}
		require.ErrorIs(t, err, queue.ErrFull)
		require.EqualValues(t, 4, c.LLen(ctx, lab.Key(q, "r")).Val())
		require.EqualValues(t, 4, c.HLen(ctx, lab.Key(q, "b")).Val())
	}
	q, err := queue.New(c, name, nil)
	require.NoError(t, err)
	require.NoError(t, q.SetLimit(ctx, 0))
	require.Equal(t, 10, lab.Push(t, q, lab.Bodies(10)...).Ready)
}

// A queue of a later layout has a text for its limit, which the longer script reports.
func TestPushOfBareJobsToALaterLayout(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.HSet(t.Context(), lab.Key(q, "c"), "limit", "layout 9").Err())
	_, err := q.Push(t.Context(), lab.Bodies(2)...)
	require.ErrorIs(t, err, queuescript.ErrPushLayout)
	require.Zero(t, c.Exists(t.Context(), lab.Key(q, "r"), lab.Key(q, "b")).Val())
}

// A batch notifies one consumer that waits, past one that is dead.
func TestPushOfBareJobsNotifies(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	sub := c.Subscribe(ctx, lab.Key(q, "w:one"), lab.Key(q, "w:two"))
	defer sub.Close()
	for range 2 {
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
	}
	end := float64(time.Now().Add(time.Minute).UnixMilli())
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Score: end - 1, Member: "dead"},
		redis.Z{Score: end, Member: "one"}, redis.Z{Score: end, Member: "two"}).Err())
	lab.Push(t, q, lab.Bodies(2)...)
	m, err := sub.ReceiveTimeout(ctx, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, lab.Key(q, "w:one"), m.(*redis.Message).Channel)
	require.Equal(t, []string{"two"}, c.ZRange(ctx, lab.Key(q, "w"), 0, -1).Val())
}

// PushSeq has the batches of Push.
func TestPushSeqOfBareJobsLeavesNoReceipt(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	total := 0
	for out, err := range q.PushSeq(t.Context(), slices.Values(lab.Bodies(2500))) {
		require.NoError(t, err)
		total += out.Ready
	}
	require.Equal(t, 2500, total)
	require.Empty(t, c.Keys(t.Context(), lab.Key(q, "i:*")).Val())
}
