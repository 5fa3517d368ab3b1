package queue_test

import (
	"fmt"
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

// A push of bare jobs whose reply is lost is sent again. It knows itself by its first job, wherever that is by then.
func TestPushOfBareJobsWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, q *queue.Queue, c *redis.Client){
		"they are ready": func(*testing.T, *queue.Queue, *redis.Client) {},
		"they are taken": func(t *testing.T, q *queue.Queue, _ *redis.Client) { takeSome(t, q, 3) },
		"the first one is finished": func(t *testing.T, q *queue.Queue, _ *redis.Client) {
			require.NoError(t, q.Ack(t.Context(), takeSome(t, q, 1)...))
		},
		"all are finished": func(t *testing.T, q *queue.Queue, _ *redis.Client) {
			require.NoError(t, q.Ack(t.Context(), takeSome(t, q, 3)...))
		},
		"they are cancelled": func(t *testing.T, q *queue.Queue, _ *redis.Client) {
			out, err := q.Cancel(t.Context(), "0", "1", "2")
			require.NoError(t, err)
			require.Len(t, out, 3)
			taken, err := q.Take(t.Context(), 5) // it drops their entries
			require.NoError(t, err)
			require.Empty(t, taken.Deliveries)
		},
		"they are dead and trimmed": func(t *testing.T, q *queue.Queue, _ *redis.Client) {
			for _, d := range takeSome(t, q, 3) {
				require.NoError(t, d.Bury(t.Context(), "why"))
			}
			time.Sleep(5 * time.Millisecond) // older than the limit below
			n, err := q.Trim(t.Context(), queue.DeadLimits{Jobs: -1, Age: time.Millisecond})
			require.NoError(t, err)
			require.Equal(t, 3, n)
		},
		"the queue has got a limit": func(t *testing.T, q *queue.Queue, _ *redis.Client) {
			require.NoError(t, q.SetLimit(t.Context(), 100))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, c := lab.NewQueue(t, nil)
			r, err := queuescript.PushBare(t.Context(), c, bareParams(q, "0", "1", "2"))
			require.NoError(t, err)
			require.False(t, r.Limited)
			require.EqualValues(t, 3, c.LLen(t.Context(), lab.Key(q, "r")).Val())
			meanwhile(t, q, c)
			entries, bodies := c.LLen(t.Context(), lab.Key(q, "r")).Val(), c.HLen(t.Context(), lab.Key(q, "b")).Val()
			r, err = queuescript.PushBare(t.Context(), c, bareParams(q, "0", "1", "2"))
			require.NoError(t, err)
			require.False(t, r.Limited, "a caller would push the jobs again")
			require.Equal(t, entries, c.LLen(t.Context(), lab.Key(q, "r")).Val(), "no second job")
			require.Equal(t, bodies, c.HLen(t.Context(), lab.Key(q, "b")).Val())
		})
	}
}

func takeSome(t *testing.T, q *queue.Queue, n int) []*queue.Delivery {
	t.Helper()
	taken, err := q.Take(t.Context(), n)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, n)
	return taken.Deliveries
}

func bareParams(q *queue.Queue, ids ...string) queuescript.PushBareParams {
	p := queuescript.PushBareParams{Ready: lab.Key(q, "r"), Bodies: lab.Key(q, "b"), Control: lab.Key(q, "c"),
		Wake: lab.Key(q, "w"), Finished: lab.Key(q, "f")}
	for _, id := range ids {
		p.Jobs = append(p.Jobs, queuescript.PushBareJob{ID: id, Body: []byte("body of " + id)})
	}
	return p
}

func TestPushOfBareJobsThroughALossyLink(t *testing.T) {
	t.Parallel()
	direct, c := lab.NewQueue(t, nil)
	q, proxy := lossy(t, direct, nil)
	require.NoError(t, lua.Preload(t.Context(), c, &queuescript.PushBareScript))
	proxy.Drop(2, lab.Sent(&queuescript.PushBareScript))
	out, err := q.Push(t.Context(), lab.Bodies(1000)...)
	require.NoError(t, err)
	require.Equal(t, 3, proxy.Executed(lab.Sent(&queuescript.PushBareScript)))
	require.Equal(t, 1000, out.Ready)
	require.EqualValues(t, 1000, c.LLen(t.Context(), lab.Key(q, "r")).Val())
	require.EqualValues(t, 1000, c.HLen(t.Context(), lab.Key(q, "b")).Val())
	require.Equal(t, out.IDs[0], lab.TakeOne(t, direct).ID)
}

// Where the list cannot be written the bodies go again.
func TestPushOfBareJobsRefusedHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.Set(ctx, lab.Key(q, "r"), "a text", 0).Err())
	_, err := q.Push(ctx, lab.Bodies(1000)...)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.Zero(t, c.Exists(ctx, lab.Key(q, "b")).Val(), "no body without an entry")
	require.Equal(t, "a text", c.Get(ctx, lab.Key(q, "r")).Val())
}

// A user who may call only some of the commands meets the undo. The jobs that are there already stay.
func TestPushOfBareJobsRefusedHalfWayLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin := luatomictest.StartServer(t).Client()
	full, err := queue.New(admin, "q", nil)
	require.NoError(t, err)
	lab.Push(t, full, lab.Bodies(3)...)
	bodies, entries := admin.HGetAll(ctx, "{q}:b").Val(), admin.LRange(ctx, "{q}:r", 0, -1).Val()
	require.Len(t, bodies, 3)
	for _, forbidden := range []string{"hset", "rpush"} {
		q, err := queue.New(limited(t, admin, forbidden), "q", nil)
		require.NoError(t, err)
		_, err = q.Push(ctx, lab.Bodies(1000)...)
		require.ErrorIs(t, err, lua.ErrExecutedInPart, forbidden)
		require.Equal(t, bodies, admin.HGetAll(ctx, "{q}:b").Val(), forbidden)
		require.Equal(t, entries, admin.LRange(ctx, "{q}:r", 0, -1).Val(), forbidden)
	}
}

// The bounds of the header hold for a call that was not made by the generated function, too, and nothing is written.
func TestPushOfBareJobsRefusesRawCallsOutOfBounds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "there", Body: []byte("x")})
	p := bareParams(q)
	keys := []string{p.Ready, p.Bodies, p.Control, p.Wake, p.Finished}
	many := make([]any, 2002)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	before := lab.Dump(ctx, t, c, q.Name())
	for text, args := range map[string][]any{
		"job: at most 1000":         many,
		"job: an id without a body": {"a", "A", "there"},
		"":                          nil,
	} {
		err := c.Eval(ctx, lab.Text(c, &queuescript.PushBareScript), keys, args...).Err()
		require.ErrorContains(t, err, text, "%d arguments", len(args))
		require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "%d arguments", len(args))
	}
	require.Equal(t, "there", lab.TakeOne(t, q).ID)
}
