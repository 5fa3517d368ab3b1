package queue_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// deadBeside is a Queue of the same name with other bounds, as another process has it.
func deadBeside(t *testing.T, q *queue.Queue, limits queue.DeadLimits) *queue.Queue {
	t.Helper()
	return lab.Must(queue.New(luatomictest.Client(t), q.Name(), &queue.Options{Dead: limits, MaxFailures: 1}))
}

// consumeFailing works on all jobs of q, each of which dies.
func consumeFailing(t *testing.T, q *queue.Queue) {
	t.Helper()
	_, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
		func(context.Context, *queue.Delivery) error { return errors.New("no") })
	require.NoError(t, err)
}

// buryAll pushes n jobs and buries them through Deliveries, which trims nothing.
func buryAll(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	for i := range n {
		lab.Push(t, q, queue.Job{Body: []byte("body " + strconv.Itoa(i%10))})
		require.NoError(t, lab.TakeOne(t, q).Bury(t.Context(), "why"))
	}
}

// A consumer that has bounds stores them when it begins. A process without bounds of its own trims to them, whether a
// handler fails, a job is buried by id or a lease ends.
func TestAProcessWithoutBoundsTrimsToThoseOfTheQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, test := range map[string]struct {
		stored queue.DeadLimits
		want   int
	}{
		"fewer": {queue.DeadLimits{Jobs: 3}, 3},
		"bytes": {queue.DeadLimits{Bytes: 12}, 2},
		"age":   {queue.DeadLimits{Age: time.Hour}, 6}, // one is older than that
		"more":  {queue.DeadLimits{Jobs: -1}, 7},
	} {
		for how, die := range map[string]func(q *queue.Queue, c *redis.Client){
			"handler": func(q *queue.Queue, _ *redis.Client) { consumeFailing(t, q) },
			"buried": func(q *queue.Queue, _ *redis.Client) {
				_, err := q.BuryJobs(ctx, "why", "last")
				require.NoError(t, err)
			},
			"lease": func(q *queue.Queue, c *redis.Client) {
				d := lab.TakeOne(t, q)
				require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
				consumeFailing(t, q)
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				direct, c := lab.NewQueue(t, nil)
				consumeFailing(t, deadBeside(t, direct, test.stored))
				buryAll(t, direct, 6)
				oldest := c.ZRange(ctx, lab.Key(direct, "d"), 0, 0).Val()[0]
				require.NoError(t, c.ZAdd(ctx, lab.Key(direct, "d"), redis.Z{Score: 1, Member: oldest}).Err())
				lab.Push(t, direct, queue.Job{ID: "last", Body: []byte("body 6")})
				die(deadBeside(t, direct, queue.DeadLimits{}), c)
				require.Equal(t, test.want, stats(t, direct).Dead)
			})
		}
	}
}

// The queue keeps more than 10 000 dead jobs where the application says so, also beside a process that says nothing.
func TestAnUnboundedDeadSetIsNotTrimmedByAProcessWithDefaults(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	direct, c := lab.NewQueue(t, nil)
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{Jobs: -1}))
	fillDead(t, c, direct, 10_001)
	lab.Push(t, direct, queue.Job{})
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{}))
	require.Equal(t, 10_002, stats(t, direct).Dead)

	require.NoError(t, c.HDel(ctx, lab.Key(direct, "c"), "dead_limits").Err())
	lab.Push(t, direct, queue.Job{})
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{Stored: true, Jobs: -1}))
	require.Equal(t, 10_003, stats(t, direct).Dead, "nothing stored, and no bound of its own")
	lab.Push(t, direct, queue.Job{})
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{Jobs: -1}))
	require.Equal(t, "-1 -1 -1", c.HGet(ctx, lab.Key(direct, "c"), "dead_limits").Val(), "lost, and stored again")
}

// fillDead adds n dead jobs without bodies.
func fillDead(t *testing.T, c *redis.Client, q *queue.Queue, n int) {
	t.Helper()
	dead := make([]redis.Z, n)
	for i := range dead {
		dead[i] = redis.Z{Score: float64(i + 1), Member: strconv.Itoa(i)}
	}
	require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "d"), dead...).Err())
}

// Only a consumer stores bounds: a tool that buries jobs leaves those of the application. A Trim takes what it is
// given, or what is stored.
func TestOnlyAConsumerStoresTheBounds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	direct, c := lab.NewQueue(t, nil)
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{Jobs: 4, Bytes: 1000, Age: time.Hour}))
	const stored = "4 1000 3600000"
	field := func() string { return c.HGet(ctx, lab.Key(direct, "c"), "dead_limits").Val() }
	require.Equal(t, stored, field())
	buryAll(t, direct, 6)
	lab.Push(t, direct, queue.Job{ID: "last"})
	_, err := deadBeside(t, direct, queue.DeadLimits{Jobs: -1}).BuryJobs(ctx, "why", "last")
	require.NoError(t, err)
	require.Equal(t, 7, stats(t, direct).Dead)
	n, err := direct.Trim(ctx, queue.DeadLimits{Jobs: 6})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, stored, field())
	n, err = direct.Trim(ctx, queue.DeadLimits{Stored: true, Jobs: 1})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{}))
	require.Equal(t, stored, field())
	require.NoError(t, c.HDel(ctx, lab.Key(direct, "c"), "dead_limits").Err())
	n, err = direct.Trim(ctx, queue.DeadLimits{Stored: true, Jobs: 1})
	require.NoError(t, err)
	require.Equal(t, 3, n, "the queue has none")
}

// The stored bounds may be a text that nobody can read: then nothing is deleted, and a process with bounds mends it.
func TestForeignBoundsOfTheDeadSetDeleteNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	direct, c := lab.NewQueue(t, nil)
	buryAll(t, direct, 3)
	for _, text := range []string{"", "1", "1 1", "many", "1 1 1 1", "1e0 1 1"} {
		require.NoError(t, c.HSet(ctx, lab.Key(direct, "c"), "dead_limits", text).Err())
		n, err := direct.Trim(ctx, queue.DeadLimits{Stored: true, Jobs: 1})
		require.NoError(t, err)
		require.Zero(t, n, text)
	}
	consumeFailing(t, deadBeside(t, direct, queue.DeadLimits{Jobs: 2}))
	require.Equal(t, 3, stats(t, direct).Dead, "nobody died")
	n, err := direct.Trim(ctx, queue.DeadLimits{Stored: true})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
