package queue_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// heldTake is a client whose first take reaches the server only ahead of its first call of that script, when the take
// has long been repeated.
func heldTake(t *testing.T, ahead *lua.Script) (*redis.Client, *lab.HeldUp) {
	t.Helper()
	c, held := lab.HoldUp(t, &queuescript.TakeScript, 0)
	held.Ahead, held.Delivers = ahead, func() {}
	return c, held
}

// A take that reaches the server late, when a repeat of it had the reply, leases no job: nobody would have it. So it is
// where the repeat found jobs, where it found none, and where the next take was made meanwhile.
func TestALateCopyOfATakeTakesNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, takes, after int // jobs pushed, takes of one, jobs pushed
		has                  int
	}{
		"of the last":           {before: 3, takes: 1, has: 1},
		"of an earlier one":     {before: 3, takes: 2, has: 2},
		"of one that had none":  {takes: 1, after: 2},
		"that had none, before": {takes: 2, after: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			direct, _ := lab.NewQueue(t, nil)
			client, held := heldTake(t, &queuescript.StatsScript)
			q := lab.Must(queue.New(client, direct.Name(), nil))
			lab.Push(t, direct, lab.Bodies(tc.before)...)
			var has []*queue.Delivery
			for range tc.takes {
				taken, err := q.Take(ctx, 1)
				require.NoError(t, err)
				has = append(has, taken.Deliveries...)
			}
			lab.Push(t, direct, lab.Bodies(tc.after)...)
			require.Len(t, has, tc.has)
			s := stats(t, q)
			<-held.Arrived
			require.Equal(t, tc.has, s.Leased)
			require.Equal(t, tc.before+tc.after-tc.has, s.Ready)
			require.NoError(t, q.Ack(ctx, has...), "the leases are theirs")
		})
	}
}

// A consumer loses no job to a take that reaches the server late: it acks each one.
func TestALateCopyOfATakeKillsNoJob(t *testing.T) {
	t.Parallel()
	for name, concurrency := range map[string]int{"one handler": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &queue.Options{MaxFailures: 1, Lease: 500 * time.Millisecond}
			direct, _ := lab.NewQueue(t, opts)
			client, held := heldTake(t, &queuescript.AckScript)
			q := lab.Must(queue.New(client, direct.Name(), opts))
			lab.Push(t, direct, lab.Bodies(5)...)
			out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Concurrency: concurrency, Drain: true},
				func(context.Context, *queue.Delivery) error { return nil })
			require.NoError(t, err)
			<-held.Arrived
			out.Retried = 0 // a busy machine may keep a handler for so long that its consumer returns others
			require.Equal(t, queue.Consumed{Acked: 5}, out)
		})
	}
}

// twoQueues is a taker of two queues, as its scripts see it.
func twoQueues(t *testing.T) (c *redis.Client, qs []*queue.Queue, take func(token,
	since int64) queuescript.TakeResult) {
	t.Helper()
	c = luatomictest.Client(t)
	qs = several(t, c, 2, queue.Options{})
	p := queuescript.TakeParams{Max: 2, Bytes: 1000, Waiter: "me", Wait: time.Minute}
	for _, q := range qs {
		p.Queues = append(p.Queues, scriptcase.TakeQueue("{"+q.Tag()+"}{"+q.Name()+"}", "me"))
	}
	return c, qs, func(token, since int64) queuescript.TakeResult {
		t.Helper()
		p.Token, p.Since = token, since
		r, err := queuescript.Take(t.Context(), c, p)
		require.NoError(t, err)
		return r
	}
}

// ids are those of a reply, in order.
func ids(r queuescript.TakeResult) (out []string) {
	for _, j := range r.Jobs {
		out = append(out, j.ID)
	}
	return out
}

// A copy of the last take has its jobs, with the fence that they have, also where their queue was paused meanwhile.
// What was settled or cancelled counts as dropped, so that the caller of a repeat looks again. Nothing changes.
func TestACopyOfTheLastTakeHasItsJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, qs, take := twoQueues(t)
	lab.Push(t, qs[0], queue.Job{ID: "a", Headers: map[string]string{"h": "v"}})
	lab.Push(t, qs[1], lab.Numbered(4, 0)...)
	first := take(7, 7)
	require.Equal(t, []string{"a", "j0"}, ids(first))
	require.NoError(t, qs[1].Pause(ctx))
	lab.Push(t, qs[0], queue.Job{ID: "due 1", Delay: time.Hour}, queue.Job{ID: "due 2", Delay: time.Hour})
	for _, id := range []string{"due 1", "due 2"} { // as many as a take asks for
		require.NoError(t, c.ZAdd(ctx, keyOf(qs[0], "s"), redis.Z{Score: lab.Past, Member: id}).Err())
	}
	require.NoError(t, c.ZAdd(ctx, keyOf(qs[0], "w"), redis.Z{Score: lab.Future, Member: "me"}).Err())
	before := lab.Dump(ctx, t, c, qs[0].Tag())
	for i := range qs {
		require.True(t, c.PExpire(ctx, keyOf(qs[i], "i:me"), 50*time.Second).Val())
	}
	again := take(7, 7)
	for i := range qs {
		require.LessOrEqual(t, c.PTTL(ctx, keyOf(qs[i], "i:me")).Val(), 50*time.Second, "the receipt is the same")
	}
	require.Equal(t, first.Jobs, again.Jobs)
	require.Equal(t, first.Options, again.Options)
	for i := range qs {
		require.Equal(t, first.States[i].Fence, again.States[i].Fence)
		require.Equal(t, first.States[i].Jobs, again.States[i].Jobs)
		require.Zero(t, again.States[i].Dropped)
	}
	require.Equal(t, before, lab.Dump(ctx, t, c, qs[0].Tag()))

	require.NoError(t, c.ZRem(ctx, keyOf(qs[0], "l"), "a").Err())
	for range 2 {
		again = take(7, 7)
		require.Equal(t, []string{"j0"}, ids(again))
		require.EqualValues(t, 1, again.States[0].Dropped)
	}
	_, err := qs[1].Cancel(ctx, "j0")
	require.NoError(t, err)
	again = take(7, 7)
	require.Empty(t, again.Jobs)
	require.EqualValues(t, 1, again.States[0].Dropped)
	require.EqualValues(t, 1, again.States[1].Dropped)
}

// A job whose lease has ended may be leased to another worker when the take that had no reply is repeated, or a copy
// of it arrives. It stays with that worker.
func TestARepeatOfATakeLeavesJobsOfAnotherWorker(t *testing.T) {
	t.Parallel()
	for what, token := range map[string]int64{"a repeat": 8, "a copy": 7} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c, qs, take := twoQueues(t)
			lab.Push(t, qs[0], queue.Job{ID: "a"}, queue.Job{ID: "b"})
			require.Equal(t, []string{"a", "b"}, ids(take(7, 7)))
			require.NoError(t, c.ZAdd(ctx, keyOf(qs[0], "l"), redis.Z{Score: lab.LongLease, Member: "a"}).Err())
			require.Equal(t, []string{"b"}, ids(take(token, 7)))
			require.Equal(t, float64(lab.LongLease), c.ZScore(ctx, keyOf(qs[0], "l"), "a").Val())
		})
	}
}

// A copy of an earlier take has nothing and changes nothing, whichever queue the last one took from; and so has a copy
// of a take that found nothing: it is no waiter again.
func TestACopyOfAnEarlierTakeHasNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, qs, take := twoQueues(t)
	pushNumbered(t, qs[0], 2)
	pushNumbered(t, qs[1], 9)
	require.Equal(t, []string{"a0", "a1"}, ids(take(0, 0)))
	require.Equal(t, []string{"b0", "b1"}, ids(take(1, 1)))
	unchanged := func(token, since int64) {
		t.Helper()
		before := lab.Dump(ctx, t, c, qs[0].Tag())
		r := take(token, since)
		require.Empty(t, r.Jobs)
		require.Zero(t, r.States[0].Dropped+r.States[1].Dropped)
		require.Equal(t, before, lab.Dump(ctx, t, c, qs[0].Tag()))
	}
	unchanged(0, 0)
	for token := range int64(5) {
		take(2+token, 2+token)
	}
	for _, q := range qs {
		require.EqualValues(t, 1, c.ZCard(ctx, keyOf(q, "w")).Val())
		require.NoError(t, c.Del(ctx, keyOf(q, "w")).Err())
	}
	lab.Push(t, qs[1], queue.Job{ID: "new"})
	unchanged(6, 6)
	unchanged(3, 0)
	require.Len(t, take(7, 7).Jobs, 1)
}

// A take that only dropped entries may have left jobs behind them: its repeat counts one as dropped.
func TestACopyOfATakeThatDroppedEntriesLooksAgain(t *testing.T) {
	t.Parallel()
	c, qs, take := twoQueues(t)
	require.NoError(t, c.RPush(t.Context(), keyOf(qs[1], "r"), "1:gone").Err())
	require.EqualValues(t, 1, take(3, 3).States[1].Dropped)
	r := take(3, 3)
	require.EqualValues(t, 1, r.States[0].Dropped+r.States[1].Dropped)
}

// A take that starts over has the jobs of all takes since the last reply, under a new lease. Those of a take that had
// its reply stay with that.
func TestATakeThatStartsOverHasANewLease(t *testing.T) {
	t.Parallel()
	c, qs, take := twoQueues(t)
	lab.Push(t, qs[0], lab.Numbered(9, 0)...)
	require.Equal(t, []string{"j0", "j1"}, ids(take(4, 4)))
	lost := take(5, 5)
	require.Equal(t, []string{"j2", "j3"}, ids(lost))
	again := take(7, 5)
	require.Equal(t, []string{"j2", "j3"}, ids(again))
	require.Greater(t, again.States[0].Fence, lost.States[0].Fence)
	require.Equal(t, again.States[0].Fence, int64(c.ZScore(t.Context(), keyOf(qs[0], "l"), "j2").Val()))
	require.Equal(t, []string{"j4", "j5"}, ids(take(8, 8)))
}

// The receipt outlives a short lease, as a copy may.
func TestAReceiptOfATakeStaysForAMinute(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.Client(t)
	for _, jobs := range []int{0, 1} {
		for _, lease := range []time.Duration{time.Second, time.Hour} {
			qs := several(t, c, 1, queue.Options{Lease: lease})
			lab.Push(t, qs[0], lab.Bodies(jobs)...)
			_, err := queue.Taker(rand.IntN, inOrderOf(qs)...)(ctx, 1, "")
			require.NoError(t, err)
			keys := c.Keys(ctx, "{"+qs[0].Tag()+"}{a}:i:*").Val()
			require.Len(t, keys, 1)
			stays := max(lease, time.Minute)
			require.InDelta(t, stays, c.PTTL(ctx, keys[0]).Val(), float64(stays/6))
		}
	}
}
