package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// several are n queues of a new tag: a, b and so on.
func several(t *testing.T, c lua.Client, n int, opts queue.Options) []*queue.Queue {
	t.Helper()
	opts.Tag = uuid.NewString()
	out := make([]*queue.Queue, n)
	for i := range out {
		var err error
		out[i], err = queue.New(c, string(rune('a'+i)), &opts)
		require.NoError(t, err)
	}
	return out
}

// inOrderOf are sources without weights.
func inOrderOf(qs []*queue.Queue) (out []queue.Source) {
	for _, q := range qs {
		out = append(out, queue.Source{Queue: q})
	}
	return out
}

// keyOf is a key of a queue with a tag.
func keyOf(q *queue.Queue, suffix string) string {
	return "{" + q.Tag() + "}{" + q.Name() + "}:" + suffix
}

// namesOf are the names of the queues that gave jobs, one for each job.
func namesOf(ts []queue.Taken) string {
	var names strings.Builder
	for _, t := range ts {
		for _, d := range t.Deliveries {
			names.WriteString(d.Queue().Name())
		}
	}
	return names.String()
}

// A take has as many jobs as it asks for, in the order of the queues; entries that it drops let no later queue pass.
func TestATakeOfSeveralQueuesIsInOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{})
	take := queue.Taker(rand.IntN, inOrderOf(qs)...)
	names := func(max int) string {
		ts, err := take(ctx, max, "")
		require.NoError(t, err)
		return namesOf(ts)
	}
	foreign := func(n int) {
		for range n {
			require.NoError(t, c.RPush(ctx, keyOf(qs[0], "r"), "1:gone").Err())
		}
	}
	pushNumbered(t, qs[1], 4)
	pushNumbered(t, qs[2], 4)
	foreign(2)
	pushNumbered(t, qs[0], 4)
	require.Equal(t, "aaa", names(3), "two entries before them are dropped")
	require.Equal(t, "ab", names(2))
	foreign(9)
	require.Empty(t, names(1), "a may have a job behind the entries that this take has read")
	require.Equal(t, "bbbc", names(4))
	lab.Push(t, qs[0], queue.Job{ID: "due", Delay: time.Millisecond})
	time.Sleep(10 * time.Millisecond)
	require.Equal(t, "ac", names(2), "a job that is due comes first, too")
}

// A take looks eight times at a queue whose entries it drops. Where the eighth look reaches the end of the list, the
// next queue has its turn.
func TestATakeThatDropsAllOfAQueueGoesOn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.Client(t)
	qs := several(t, c, 2, queue.Options{})
	for range 2*8 - 1 {
		require.NoError(t, c.RPush(ctx, keyOf(qs[0], "r"), "1:gone").Err())
	}
	pushNumbered(t, qs[1], 2)
	ts, err := queue.Taker(rand.IntN, inOrderOf(qs)...)(ctx, 2, "")
	require.NoError(t, err)
	require.Equal(t, "bb", namesOf(ts))
}

// A take that drops what came due moves the next due jobs to ready: they come before the jobs of later queues. It does
// this within its eight looks at a queue; then the later queues wait for the next take.
func TestDueEntriesWithoutABodyLetNoLaterQueuePass(t *testing.T) {
	t.Parallel()
	for _, max := range []int{1, 2, 3} {
		for _, gone := range []int{max, max + 1, 2*max - 1, 3 * max, 7 * max, 8 * max, 20 * max} {
			t.Run(fmt.Sprint(max, " jobs behind ", gone), func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				c := luatomictest.Client(t)
				qs := several(t, c, 2, queue.Options{})
				due := func(score float64, id string) {
					require.NoError(t, c.ZAdd(ctx, keyOf(qs[0], "s"), redis.Z{Score: score, Member: id}).Err())
				}
				for i := range gone {
					due(1, fmt.Sprint("gone", i))
				}
				due(2, "live")
				require.NoError(t, c.HSet(ctx, keyOf(qs[0], "b"), "live", "body").Err())
				pushNumbered(t, qs[1], max)
				take := queue.Taker(rand.IntN, inOrderOf(qs)...)
				var order strings.Builder
				for range 4 {
					ts, err := take(ctx, max, "")
					require.NoError(t, err)
					order.WriteString(namesOf(ts))
				}
				require.Equal(t, "a"+strings.Repeat("b", max), order.String())
			})
		}
	}
}

// The bound of the bodies is one for all queues, and the queue whose job exceeds it is not passed.
func TestATakeOfSeveralQueuesIsBounded(t *testing.T) {
	t.Parallel()
	qs := several(t, luatomictest.Client(t), 2, queue.Options{})
	large := func() queue.Job { return queue.Job{Body: make([]byte, 700_000)} }
	lab.Push(t, qs[0], large())
	lab.Push(t, qs[0], large())
	lab.Push(t, qs[1], queue.Job{Body: []byte("small")})
	take := queue.Taker(rand.IntN, inOrderOf(qs)...)
	for _, want := range []string{"a", "ab", ""} {
		ts, err := take(t.Context(), 10, "")
		require.NoError(t, err)
		require.Equal(t, want, namesOf(ts))
	}
}

// While all queues have jobs, each one comes first in proportion to its weight. An empty one costs the others nothing.
func TestWeightsHoldInProportion(t *testing.T) {
	t.Parallel()
	qs := several(t, luatomictest.Client(t), 3, queue.Options{})
	for _, q := range qs {
		pushNumbered(t, q, 600)
	}
	seed := rand.New(rand.NewPCG(1, 2))
	take := queue.Taker(seed.IntN,
		queue.Source{Queue: qs[0], Weight: 4}, queue.Source{Queue: qs[1]}, queue.Source{Queue: qs[2], Weight: 1})
	first := map[string]int{}
	for range 600 {
		ts, err := take(t.Context(), 1, "")
		require.NoError(t, err)
		first[namesOf(ts)]++
	}
	require.InDelta(t, 400, first["a"], 60)
	require.InDelta(t, 100, first["b"], 50)
	require.InDelta(t, 100, first["c"], 50)
	for range 4 {
		ts, err := take(t.Context(), 300, "")
		require.NoError(t, err)
		require.Len(t, namesOf(ts), 300, "another queue has what one lacks")
	}
	ts, err := take(t.Context(), 300, "")
	require.NoError(t, err)
	require.Empty(t, namesOf(ts))
}

// A take that finds jobs leaves the waiters of all queues. What it leaves behind in any of them notifies the next
// waiter there, unless that queue is paused.
func TestATakeOfSeveralQueuesNotifiesTheNextWaiter(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.Client(t)
	qs := several(t, c, 4, queue.Options{})
	take := queue.Taker(rand.IntN, inOrderOf(qs)...)
	_, err := take(ctx, 1, "me")
	require.NoError(t, err)
	waitAtAll(t, c, qs, 1)
	subs := map[*queue.Queue]*redis.PubSub{}
	for _, q := range qs {
		subs[q] = c.Subscribe(ctx, keyOf(q, "w:next"))
		defer func() { _ = subs[q].Close() }()
		_, err := subs[q].Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, c.ZAdd(ctx, keyOf(q, "w"), redis.Z{Score: lab.Future, Member: "next"}).Err())
	}
	// The jobs appear without a notification.
	for _, q := range qs[:3] {
		require.NoError(t, c.HSet(ctx, keyOf(q, "b"), "j", "body").Err())
		require.NoError(t, c.RPush(ctx, keyOf(q, "r"), "1:j").Err())
	}
	require.NoError(t, qs[0].Pause(ctx))
	ts, err := take(ctx, 1, "me")
	require.NoError(t, err)
	require.Equal(t, "b", namesOf(ts))
	waiters := func(q *queue.Queue) []string { return c.ZRange(ctx, keyOf(q, "w"), 0, -1).Val() }
	require.Equal(t, []string{"next"}, waiters(qs[0]), "it is paused")
	require.Equal(t, []string{"next"}, waiters(qs[1]), "it has no more jobs")
	require.Empty(t, waiters(qs[2]), "it has a job")
	require.Equal(t, []string{"next"}, waiters(qs[3]))
	within, cancel := context.WithTimeout(ctx, soonAwake)
	defer cancel()
	_, err = subs[qs[2]].ReceiveMessage(within)
	require.NoError(t, err)
}
