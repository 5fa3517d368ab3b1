package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A push whose reply is lost is sent again. It finds its job, wherever that is by then, and adds none.
func TestPushOfOneWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, q *queue.Queue, d *queue.Delivery){
		"it is taken": func(*testing.T, *queue.Queue, *queue.Delivery) {},
		"it is finished": func(t *testing.T, _ *queue.Queue, d *queue.Delivery) {
			require.NoError(t, d.Ack(t.Context()))
		},
		"it is cancelled": func(t *testing.T, q *queue.Queue, d *queue.Delivery) {
			require.NoError(t, d.Nack(t.Context(), time.Hour, "later"))
			out, err := q.Cancel(t.Context(), d.ID)
			require.NoError(t, err)
			require.Len(t, out, 1)
		},
		"it is dead and trimmed": func(t *testing.T, q *queue.Queue, d *queue.Delivery) {
			require.NoError(t, d.Bury(t.Context(), "why"))
			time.Sleep(5 * time.Millisecond) // older than the limit below
			n, err := q.Trim(t.Context(), queue.DeadLimits{Jobs: -1, Age: time.Millisecond})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, err := queue.New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
			require.NoError(t, err)
			again := pushOne(t, q, "id")
			d := lab.TakeOne(t, q)
			meanwhile(t, q, d)
			again()
			stats, err := q.Stats(t.Context())
			require.NoError(t, err)
			require.Zero(t, stats.Ready, "no second job")
		})
	}
}

// pushOne makes the call of a push, and returns what makes it again.
func pushOne(t *testing.T, q *queue.Queue, id string) (again func()) {
	t.Helper()
	c, tag := luatomictest.Client(t), "{"+q.Name()+"}:"
	push := func() {
		t.Helper()
		_, err := queuescript.PushOne(t.Context(), c, queuescript.PushOneParams{
			Ready: tag + "r", Bodies: tag + "b", Control: tag + "c", Wake: tag + "w", Finished: tag + "f",
			ID: id, Body: []byte("body"),
		})
		require.NoError(t, err)
	}
	push()
	return push
}

func TestPushOfOneThroughALossyLink(t *testing.T) {
	t.Parallel()
	direct, err := queue.New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	q, proxy := lossy(t, direct, nil)
	proxy.Drop(2, func([]string) bool { return true })
	out, err := q.Push(t.Context(), queue.Job{Body: []byte("x")})
	require.NoError(t, err)
	require.Equal(t, 1, out.Ready)
	stats, err := direct.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Ready)
	require.Equal(t, out.IDs[0], lab.TakeOne(t, direct).ID)
}

// Where the list cannot be written the body goes again, and the error is that of its push alone.
func TestPushOfOneRefusedHalfWayHarmsNoOther(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	bad, err := queue.New(c, "bad", &queue.Options{Tag: tag})
	require.NoError(t, err)
	good, err := queue.New(c, "good", &queue.Options{Tag: tag})
	require.NoError(t, err)
	require.NoError(t, c.Set(ctx, "{"+tag+"}{bad}:r", "a text", 0).Err())
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			if i%4 > 0 {
				_, err := good.Push(ctx, queue.Job{Body: []byte("x")})
				require.NoError(t, err)
				return
			}
			_, err := bad.Push(ctx, queue.Job{Body: []byte("x")})
			require.ErrorIs(t, err, lua.ErrWrongType)
		})
	}
	calls.Wait()
	require.EqualValues(t, 150, c.LLen(ctx, "{"+tag+"}{good}:r").Val())
	require.Zero(t, c.HLen(ctx, "{"+tag+"}{bad}:b").Val(), "no body without an entry")
}

// The marks of finished jobs go with the time, and a queue that nobody uses leaves none.
func TestMarksOfFinishedJobsEnd(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	c := server.Client()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	old := make([]string, 300)
	for i := range old {
		old[i] = fmt.Sprint("old", i)
		require.NoError(t, c.Do(ctx, "ZADD", "{q}:f", time.Now().Add(-2*time.Minute).UnixMilli(), old[i]).Err())
	}
	for left := int64(300); left > 1; {
		_, err := q.Push(ctx, queue.Job{})
		require.NoError(t, err)
		require.NoError(t, lab.TakeOne(t, q).Ack(ctx))
		now := c.ZCard(ctx, "{q}:f").Val()
		require.Less(t, now, left, "each ack removes some")
		if now < 10 {
			break
		}
		left = now
	}
	ttl := c.TTL(ctx, "{q}:f").Val()
	require.Positive(t, ttl)
	require.LessOrEqual(t, ttl, 62*time.Second)
	require.NoError(t, c.Expire(ctx, "{q}:f", 0).Err())
	for _, key := range c.Keys(ctx, "{q}:*").Val() {
		require.Positive(t, c.TTL(ctx, key).Val(), "a drained queue leaves nothing that stays: %s", key)
	}
}

// All attempts of a push are made while its marks are kept.
func TestPushOfOneGivesUpBeforeItsMarksDo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	end, ok := queue.WithinReceipt(ctx).Deadline()
	require.True(t, ok)
	require.Less(t, time.Until(end), time.Minute-5*time.Second)
	require.Equal(t, t.Context(), queue.WithinReceipt(t.Context()))
}
