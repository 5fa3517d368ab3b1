package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestRequeueRevivesTheDead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := newQueue(t, nil)
	push(t, q, luatomic.Job{ID: "a", Body: []byte("aa")}, luatomic.Job{ID: "b"}, luatomic.Job{ID: "c"})
	for range 3 {
		require.NoError(t, takeOne(t, q).Bury(ctx, "why"))
	}
	require.Equal(t, 2, stats(t, q).DeadBytes)
	n, err := q.Requeue(ctx, "b", "none")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	d := takeOne(t, q)
	require.Equal(t, "b", d.ID)
	require.Equal(t, 1, d.Attempt, "as if it had never failed")
	n, err = q.Requeue(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Zero(t, c.Exists(ctx, key(q, "n"), key(q, "d")).Val())
	require.Zero(t, stats(t, q).DeadBytes)
}

// A requeue of the oldest whose reply is lost moves them once, and not the next ones too.
// The guard is that the ids are chosen before.
func TestRequeueOfTheOldestAfterALostReply(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, direct := newQueue(t, nil)
	push(t, q, numbered(300, 0)...)
	taken, err := q.Take(ctx, 300)
	require.NoError(t, err)
	for i, d := range taken.Deliveries { // each at a time of its own
		require.NoError(t, direct.ZAdd(ctx, key(q, "d"), redis.Z{Score: float64(i + 1), Member: d.ID}).Err())
	}
	require.NoError(t, direct.Del(ctx, key(q, "l")).Err())
	_, err = q.Requeue(ctx, "none") // the server has the script now
	require.NoError(t, err)

	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	lossy, err := luatomic.NewQueue(c, q.Name(), nil)
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
	left, err := q.Peek(ctx, luatomic.JobDead, 0, 1)
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
	q, c := newQueue(t, nil)
	for i := range 6 {
		push(t, q, luatomic.Job{ID: fmt.Sprint(i), Body: make([]byte, 10)})
		require.NoError(t, takeOne(t, q).Bury(ctx, "why"))
		require.NoError(t, c.ZAdd(ctx, key(q, "d"), redis.Z{Score: float64(time.Now().UnixMilli() - 1000 + int64(i)), Member: fmt.Sprint(i)}).Err())
	}
	trim := func(l luatomic.DeadLimits) int {
		n, err := q.Trim(ctx, l)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, trim(luatomic.DeadLimits{}), "no limits")
	require.Zero(t, trim(luatomic.DeadLimits{Jobs: 6, Bytes: 60, Age: time.Hour}))
	require.Equal(t, 1, trim(luatomic.DeadLimits{Jobs: 5}))
	require.Equal(t, 2, trim(luatomic.DeadLimits{Bytes: 35}))
	left, err := q.Peek(ctx, luatomic.JobDead, 0, 10)
	require.NoError(t, err)
	require.Equal(t, "3", left[0].ID, "the oldest went")
	require.Equal(t, 30, stats(t, q).DeadBytes)
	require.Equal(t, 3, trim(luatomic.DeadLimits{Age: 500 * time.Millisecond}))
	require.Zero(t, c.Exists(ctx, key(q, "d"), key(q, "b"), key(q, "n")).Val())
}

func TestSnoozeAndDiscard(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, nil)
	push(t, q, luatomic.Job{ID: "snoozes"}, luatomic.Job{ID: "hopeless"})
	runs := 0
	out, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true, Concurrency: 1}, func(_ context.Context, d *luatomic.Delivery) error {
		if d.ID == "hopeless" {
			return luatomic.Discard(errors.New("bad address"))
		}
		require.Equal(t, 1, d.Attempt, "a snooze counts as no failure")
		if runs++; runs < 3 {
			return luatomic.Snooze(time.Millisecond)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, luatomic.Consumed{Acked: 1, Retried: 2, Dead: 1}, out)
	dead, err := q.Peek(t.Context(), luatomic.JobDead, 0, 1)
	require.NoError(t, err)
	require.Contains(t, dead[0].Reason, "bad address")
}

func TestConsumeTrimsTheDead(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, &luatomic.QueueOptions{Dead: luatomic.DeadLimits{Jobs: 2}})
	push(t, q, bodies(5)...)
	out, err := q.Consume(t.Context(), &luatomic.ConsumeOptions{Drain: true}, func(context.Context, *luatomic.Delivery) error {
		return luatomic.Discard(errors.New("no"))
	})
	require.NoError(t, err)
	require.Equal(t, 5, out.Dead)
	require.Equal(t, 2, stats(t, q).Dead)
}
