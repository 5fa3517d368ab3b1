package queue_test

import (
	"context"
	"fmt"
	"strings"
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

// age makes the marks of a queue older, as if that time had passed since the ends of its jobs.
func age(t *testing.T, c *redis.Client, q *queue.Queue, by time.Duration) {
	t.Helper()
	for _, id := range c.ZRange(t.Context(), lab.Key(q, "f"), 0, -1).Val() {
		require.NoError(t, c.ZIncrBy(t.Context(), lab.Key(q, "f"), -float64(by.Milliseconds()), id).Err())
	}
}

func ackOne(t *testing.T, q *queue.Queue) string {
	t.Helper()
	d := lab.TakeOne(t, q)
	require.NoError(t, d.Ack(t.Context()))
	return d.ID
}

// A handler pushes the next step of a chain under an id of its own and then fails. The step ends before the handler
// runs again, more than a minute later: its push is a duplicate.
func TestAStepOfAChainRunsOnceThoughItsParentRunsAgain(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	step := queue.Job{ID: "flow:step 2"}
	lab.Push(t, q, queue.Job{ID: "flow"})
	parent := lab.TakeOne(t, q)
	require.Empty(t, lab.Push(t, q, step).Duplicates)
	require.NoError(t, parent.Nack(t.Context(), time.Hour, "after its push"))
	require.Equal(t, "flow:step 2", ackOne(t, q))

	age(t, c, q, 75*time.Second)
	require.Equal(t, []queue.Duplicate{{Position: 0, ID: "flow:step 2"}}, lab.Push(t, q, step).Duplicates)
	age(t, c, q, 118*time.Minute)
	require.Len(t, lab.Push(t, q, step).Duplicates, 1, "for two hours")
	age(t, c, q, time.Minute)
	require.Empty(t, lab.Push(t, q, step).Duplicates)
}

// Each way out of a queue leaves the id of the caller known for Receipt, and that of a push for a minute. The key
// outlives its marks.
func TestEachEndOfAJobLeavesItsIDKnown(t *testing.T) {
	t.Parallel()
	const receipt = 10 * time.Minute
	ends := map[string]func(ctx context.Context, t *testing.T, q *queue.Queue, c *redis.Client, id string){
		"ack": func(_ context.Context, t *testing.T, q *queue.Queue, _ *redis.Client, _ string) { ackOne(t, q) },
		"cancel": func(ctx context.Context, t *testing.T, q *queue.Queue, _ *redis.Client, id string) {
			lab.Must(q.Cancel(ctx, id))
			require.NoError(t, takeNone(t, q)) // drops the entry
		},
		"nack of a cancelled job": func(ctx context.Context, t *testing.T, q *queue.Queue, _ *redis.Client, id string) {
			d := lab.TakeOne(t, q)
			lab.Must(q.Cancel(ctx, id))
			_ = d.Nack(ctx, 0, "why")
		},
		"reclaim of a cancelled job": func(
			ctx context.Context, t *testing.T, q *queue.Queue, c *redis.Client, id string,
		) {
			lab.TakeOne(t, q)
			lab.Must(q.Cancel(ctx, id))
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: id}).Err())
			require.Equal(t, 1, lab.Must(q.Reclaim(ctx)).Cancelled)
		},
		"expiry": func(_ context.Context, t *testing.T, q *queue.Queue, _ *redis.Client, _ string) {
			require.NoError(t, takeNone(t, q))
		},
		"trim": func(ctx context.Context, t *testing.T, q *queue.Queue, c *redis.Client, _ string) {
			require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
			_, err := q.Trim(ctx, queue.DeadLimits{Age: time.Nanosecond})
			require.NoError(t, err)
			if c.ZCard(ctx, lab.Key(q, "d")).Val() > 0 { // within the millisecond of its death
				age := redis.Z{Score: lab.Past, Member: c.ZRange(ctx, lab.Key(q, "d"), 0, 0).Val()[0]}
				require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"), age).Err())
				require.Equal(t, 1, lab.Must(q.Trim(ctx, queue.DeadLimits{Age: time.Nanosecond})))
			}
		},
	}
	for name, end := range ends {
		for _, chosen := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", chosen ", chosen), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				q, c := lab.NewQueue(t, &queue.Options{Receipt: receipt})
				job, left := queue.Job{}, time.Minute
				if chosen {
					job.ID, left = "chosen", receipt
				}
				first := job
				if name == "expiry" {
					first.ExpiresAt = time.UnixMilli(lab.Past)
				}
				id := lab.Push(t, q, first).IDs[0]
				end(ctx, t, q, c, id)
				require.Zero(t, c.Exists(ctx, lab.Key(q, "b")).Val(), "the job is over")
				now := c.Time(ctx).Val()
				known := time.UnixMilli(int64(c.ZScore(ctx, lab.Key(q, "f"), id).Val())).Add(time.Minute).Sub(now)
				require.InDelta(t, left.Seconds(), known.Seconds(), 20)
				require.Greater(t, c.PTTL(ctx, lab.Key(q, "f")).Val(), known+time.Second, "the key outlives the mark")
				require.Less(t, c.PTTL(ctx, lab.Key(q, "f")).Val(), left+5*time.Second)
				if chosen { // a made id that ends later shortens nothing
					lab.Push(t, q, queue.Job{})
					ackOne(t, q)
					require.Greater(t, c.PTTL(ctx, lab.Key(q, "f")).Val(), known+time.Second)
					require.Len(t, lab.Push(t, q, job).Duplicates, 1)
				}
			})
		}
	}
}

// What is known for longer than it has to be goes with the next end of a job.
func TestMarksOfChosenIDsGoAfterTheReceipt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Receipt: 10 * time.Minute})
	end := func(job queue.Job) { lab.Push(t, q, job); ackOne(t, q) }
	end(queue.Job{ID: "old"})
	end(queue.Job{})
	age(t, c, q, 10*time.Minute-30*time.Second)
	end(queue.Job{ID: "young"})
	require.ElementsMatch(t, []string{"old", "young"}, c.ZRange(ctx, lab.Key(q, "f"), 0, -1).Val())
	age(t, c, q, time.Minute)
	end(queue.Job{ID: "younger"})
	require.ElementsMatch(t, []string{"young", "younger"}, c.ZRange(ctx, lab.Key(q, "f"), 0, -1).Val())
}

// A Receipt below a minute leaves ids known for a minute: a repeat of the push must find them.
func TestAShortReceiptLeavesIDsKnownForAMinute(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Receipt: time.Second})
	lab.Push(t, q, queue.Job{ID: "j"})
	ackOne(t, q)
	age(t, c, q, 30*time.Second)
	require.Len(t, lab.Push(t, q, queue.Job{ID: "j"}).Duplicates, 1)
	age(t, c, q, time.Minute)
	require.Empty(t, lab.Push(t, q, queue.Job{ID: "j"}).Duplicates)
}

// Ids that are derived from a token of the caller are known as long as chosen ones, also when the receipt is lost.
func TestIDsUnderATokenAreKnownAfterTheirEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	first := lab.Must(q.PushOnce(ctx, "token", queue.Job{Body: []byte("1")}))
	require.Equal(t, first.IDs[0], ackOne(t, q))
	require.Positive(t, c.Del(ctx, lab.Key(q, "i:token")).Val())
	age(t, c, q, time.Hour)
	again := lab.Must(q.PushOnce(ctx, "token", queue.Job{Body: []byte("1")}))
	require.Len(t, again.Duplicates, 1)
	require.Zero(t, again.Ready)
}

// A push to several queues knows the ids of each.
func TestAPushToSeveralQueuesKnowsIDsAfterTheirEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	qs := several(t, luatomictest.Client(t), 2, queue.Options{})
	lab.Push(t, qs[1], queue.Job{ID: "j"})
	ackOne(t, qs[1])
	out, err := queue.PushAll(ctx, queue.Batch{Queue: qs[0], Jobs: []queue.Job{{ID: "j"}}},
		queue.Batch{Queue: qs[1], Jobs: []queue.Job{{}, {ID: "j"}}})
	require.NoError(t, err)
	require.Empty(t, out[0].Duplicates)
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "j"}}, out[1].Duplicates)
}

// Only a push makes ids that begin with ~. They sort by their time, and those of a push to shards repeat.
func TestIDsThatAPushMakesHaveAFormOfTheirOwn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	var last string
	for range 20 {
		id := lab.Push(t, q, queue.Job{}).IDs[0]
		require.Regexp(t, `^:[0-9a-v]{26}$`, id)
		require.Greater(t, id, last)
		last = id
	}
	_, err := q.Push(ctx, queue.Job{ID: ":chosen"})
	require.ErrorIs(t, err, lua.ErrBadName)
	require.ErrorContains(t, err, "begins with :")
	require.ErrorContains(t, err, "leave ID empty")

	s, err := queue.NewShards(c, "shards "+q.Name(), 2, nil)
	require.NoError(t, err)
	out, err := s.Push(ctx, make([]queue.Job, 5)...)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out.IDs[4], ":"))
	again, err := s.PushOnce(ctx, out.Token, make([]queue.Job, 5)...)
	require.NoError(t, err)
	require.Equal(t, out.IDs, again.IDs)
	require.Equal(t, int64(5), int64(out.Ready))
	chosen, err := s.PushOnce(ctx, "token", queue.Job{})
	require.NoError(t, err)
	require.Len(t, chosen.IDs[0], 36)
}

// A program that calls the script itself without the key of the marks gets an error that names it. Nothing is added.
func TestAPushOfChosenIDsNeedsTheKeyOfTheMarks(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	params := queuescript.PushParams{Keep: time.Minute, Jobs: []queuescript.PushJob{{ID: "chosen", Body: []byte("x")}}}
	for key, name := range map[*string]string{
		&params.Ready: "r", &params.Scheduled: "s", &params.Bodies: "b", &params.Leases: "l", &params.Failures: "n",
		&params.Unique: "u", &params.Expiry: "ux", &params.Control: "c", &params.Wake: "w", &params.Receipt: "p",
		&params.Options: "o",
	} {
		*key = lab.Key(q, name)
	}
	_, err := queuescript.Push(t.Context(), c, params)
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "one for ids that the callers chose")
	require.Zero(t, c.Exists(t.Context(), params.Ready, params.Bodies, params.Receipt).Val())
}
