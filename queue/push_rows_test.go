package queue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// pushRows makes one call of the script with a row for each pair of queue and id, as calls that share a round trip do.
// It returns whether each row met a limit.
func pushRows(t *testing.T, c *redis.Client, rows ...[2]string) (limited []int64, err error) {
	t.Helper()
	var keys []string
	var args []any
	for _, row := range rows {
		for _, key := range []string{"r", "b", "c", "w", "f"} {
			keys = append(keys, "{"+row[0]+"}:"+key)
		}
		args = append(args, row[1], "body of "+row[1])
	}
	reply, err := c.Eval(t.Context(), lab.Text(c, &queuescript.PushOneScript), keys, args...).Slice()
	for i := 0; i < len(reply); i += 2 {
		limited = append(limited, reply[i].(int64))
	}
	return limited, err
}

// Rows of several queues: each queue gets its own, in their order. A second call with them adds nothing, wherever the
// jobs are by then, and a row that is there twice is one job.
func TestRowsOfSeveralQueues(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, c := lab.NewQueue(t, nil)
	b, _ := lab.NewQueue(t, nil)
	rows := [][2]string{{a.Name(), "1"}, {b.Name(), "2"}, {a.Name(), "3"}, {a.Name(), "3"}, {b.Name(), "4"},
		{a.Name(), "5"}}
	limited, err := pushRows(t, c, rows...)
	require.NoError(t, err)
	require.Equal(t, make([]int64, len(rows)), limited)
	ids := func(q *queue.Queue) (ids []string) {
		for _, entry := range c.LRange(ctx, lab.Key(q, "r"), 0, -1).Val() {
			ids = append(ids, entry[len("1700000000000:"):])
		}
		return ids
	}
	require.Equal(t, []string{"1", "3", "5"}, ids(a))
	require.Equal(t, []string{"2", "4"}, ids(b))
	require.Equal(t, map[string]string{"2": "body of 2", "4": "body of 4"}, c.HGetAll(ctx, lab.Key(b, "b")).Val())
	done, leased := lab.TakeOne(t, a), lab.TakeOne(t, a)
	require.NoError(t, done.Ack(ctx))
	before := lab.Dump(ctx, t, c, a.Name())
	limited, err = pushRows(t, c, rows...)
	require.NoError(t, err)
	require.Equal(t, make([]int64, len(rows)), limited)
	require.Equal(t, before, lab.Dump(ctx, t, c, a.Name()), "one is finished, one is leased, one is ready")
	require.Equal(t, "body of 3", string(leased.Body))
	require.Equal(t, []string{"2", "4"}, ids(b))
}

// A queue with a limit takes none of its rows, and says so to each; the other queue is not concerned.
func TestRowsOfAQueueWithALimit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	full, c := lab.NewQueue(t, nil)
	free, _ := lab.NewQueue(t, nil)
	require.NoError(t, full.SetLimit(ctx, 10))
	require.NoError(t, free.Pause(ctx)) // it has a control hash, too
	limited, err := pushRows(t, c, [2]string{full.Name(), "1"}, [2]string{free.Name(), "2"},
		[2]string{full.Name(), "3"})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0, 1}, limited)
	require.Zero(t, c.Exists(ctx, lab.Key(full, "r"), lab.Key(full, "b")).Val())
	require.EqualValues(t, 1, c.LLen(ctx, lab.Key(free, "r")).Val())
}

// Rows notify one consumer of each queue that has new jobs.
func TestRowsNotifyOneConsumerOfEachQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, c := lab.NewQueue(t, nil)
	b, _ := lab.NewQueue(t, nil)
	old, _ := lab.NewQueue(t, nil)
	_, err := pushRows(t, c, [2]string{old.Name(), "1"}, [2]string{old.Name(), "2"})
	require.NoError(t, err)
	for _, q := range []*queue.Queue{a, b, old} {
		sub := c.Subscribe(ctx, lab.Key(q, "w")+":one")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{
			Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: "one",
		}).Err())
	}
	_, err = pushRows(t, c, [2]string{a.Name(), "1"}, [2]string{a.Name(), "2"}, [2]string{b.Name(), "3"},
		[2]string{old.Name(), "1"}, [2]string{old.Name(), "2"})
	require.NoError(t, err)
	require.Zero(t, c.ZCard(ctx, lab.Key(a, "w")).Val(), "it was notified")
	require.Zero(t, c.ZCard(ctx, lab.Key(b, "w")).Val())
	require.EqualValues(t, 1, c.ZCard(ctx, lab.Key(old, "w")).Val(), "no job is new there")
}

// A queue whose list cannot be written keeps none of the bodies. What was there stays.
func TestRowsThatAreRefusedHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.Set(ctx, lab.Key(q, "r"), "a text", 0).Err())
	require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), "other", "body").Err())
	_, err := pushRows(t, c, [2]string{q.Name(), "1"}, [2]string{q.Name(), "2"})
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Equal(t, map[string]string{"other": "body"}, c.HGetAll(ctx, lab.Key(q, "b")).Val())
	many := make([][2]string, 65)
	for i := range many {
		many[i] = [2]string{luatomictest.Namespace(t), "id"}
	}
	_, err = pushRows(t, c, many...)
	require.ErrorContains(t, err, "row: at most 64")
}

// A limit that was set between a push and its repeat makes no new call of the repeat: under other ids its jobs would be
// added again.
func TestALimitThatWasSetSinceIsNoneOfARepeat(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, rows := range map[string][]string{"a job alone": {"1"}, "several": {"1", "2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, c := lab.NewQueue(t, nil)
			push := func(ids ...string) []int64 {
				t.Helper()
				calls := make([][2]string, len(ids))
				for i, id := range ids {
					calls[i] = [2]string{q.Name(), id}
				}
				limited, err := pushRows(t, c, calls...)
				require.NoError(t, err)
				return limited
			}
			require.Equal(t, make([]int64, len(rows)), push(rows...))
			require.NoError(t, q.SetLimit(ctx, 10))
			require.Equal(t, make([]int64, len(rows)), push(rows...), "they are ready")
			require.NoError(t, lab.TakeOne(t, q).Ack(ctx))
			require.Equal(t, append(make([]int64, len(rows)), 1), push(append(rows, "new")...), "one is finished")
			require.EqualValues(t, len(rows)-1, c.LLen(ctx, lab.Key(q, "r")).Val())
		})
	}
}
