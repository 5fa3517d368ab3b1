package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

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
	require.Equal(t, 1, d.Attempt, "as if it had never failed")
	n, err = q.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Zero(t, c.Exists(ctx, lab.Key(q, "n"), lab.Key(q, "d")).Val())
	require.Zero(t, stats(t, q).DeadBytes)
}

// A requeue of the oldest whose reply is lost moves them once, and not the next ones too.
// The guard is that the ids are chosen before.
func TestRequeueOfTheOldestAfterALostReply(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, direct := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Numbered(300, 0)...)
	taken, err := q.Take(ctx, 300)
	require.NoError(t, err)
	for i, d := range taken.Deliveries { // each at a time of its own
		require.NoError(t, direct.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: float64(i + 1), Member: d.ID}).Err())
	}
	require.NoError(t, direct.Del(ctx, lab.Key(q, "l")).Err())
	_, err = q.Requeue(ctx, "none") // the server has the script now
	require.NoError(t, err)

	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	lossy, err := queue.New(c, q.Name(), nil)
	require.NoError(t, err)
	sent := luatomictest.Command("EVALSHA", gen.QueueRequeueSHA)
	proxy.Drop(2, sent)
	n, err := lossy.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, n)
	require.Equal(t, 3, proxy.Executed(sent))
	after := stats(t, q)
	require.Equal(t, 200, after.Ready, "each once")
	require.Equal(t, 100, after.Dead)
	left, err := q.Peek(ctx, queue.Dead, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "j200", left[0].ID, "those that died first went")

	n, err = lossy.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 100, n)
	n, err = lossy.Requeue(ctx)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestTrimKeepsTheDeadWithinLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for i := range 6 {
		lab.Push(t, q, queue.Job{ID: fmt.Sprint(i), Body: make([]byte, 10)})
		require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: float64(time.Now().UnixMilli() - 1000 + int64(i)), Member: fmt.Sprint(i)}).Err())
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
	require.Equal(t, "3", left[0].ID, "the oldest went")
	require.Equal(t, 30, stats(t, q).DeadBytes)
	require.Equal(t, 3, trim(queue.DeadLimits{Age: 500 * time.Millisecond}))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "d"), lab.Key(q, "b"), lab.Key(q, "n")).Val())
}

func TestSnoozeAndDiscard(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "snoozes"}, queue.Job{ID: "hopeless"})
	runs := 0
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: 1}, func(_ context.Context, d *queue.Delivery) error {
		if d.ID == "hopeless" {
			return queue.Discard(errors.New("bad address"))
		}
		require.Equal(t, 1, d.Attempt, "a snooze counts as no failure")
		if runs++; runs < 3 {
			return queue.Snooze(time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 2, Dead: 1}, out)
	dead, err := q.Peek(t.Context(), queue.Dead, 0, 1)
	require.NoError(t, err)
	require.Contains(t, dead[0].Reason, "bad address")
}

func TestConsumeTrimsTheDead(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Dead: queue.DeadLimits{Jobs: 2}})
	lab.Push(t, q, lab.Bodies(5)...)
	out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, func(context.Context, *queue.Delivery) error {
		return queue.Discard(errors.New("no"))
	})
	require.NoError(t, err)
	require.Equal(t, 5, out.Dead)
	require.Equal(t, 2, stats(t, q).Dead)
}
