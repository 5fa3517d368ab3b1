package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Small promises of single scripts, each by the line that keeps it.

// takeParams are those of a take on the queue by one who waits on the channel.
func takeParams(q *queue.Queue, channel string) gen.QueueTakeParams {
	return gen.QueueTakeParams{
		Ready: lab.Key(q, "r"), Scheduled: lab.Key(q, "s"), Bodies: lab.Key(q, "b"), Leases: lab.Key(q, "l"), Failures: lab.Key(q, "n"), Control: lab.Key(q, "c"), Wake: lab.Key(q, "w"),
		Lease: time.Minute, Max: 10, Bytes: 1000, Waiter: channel, Wait: time.Minute,
	}
}

// waiting are the channels of those who wait, the first to be told first.
func waiting(t *testing.T, c *redis.Client, q *queue.Queue) []string {
	t.Helper()
	found, err := c.ZRange(t.Context(), lab.Key(q, "w"), 0, -1).Result()
	require.NoError(t, err)
	return found
}

// Whoever has work does not wait any more, and nobody waits who looks again at once.
func TestOnlyThoseWithoutWorkWait(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	take := func(channel string) gen.QueueTakeResult {
		r, err := gen.QueueTake(ctx, c, takeParams(q, channel))
		require.NoError(t, err)
		return r
	}
	take("a")
	take("b")
	require.Equal(t, []string{"a", "b"}, waiting(t, c, q))
	require.Positive(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), "those who die are forgotten")
	require.LessOrEqual(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), time.Minute+time.Second)

	scheduleDue(t, c, q, "j")
	require.Len(t, take("b").Jobs, 1)
	require.Equal(t, []string{"a"}, waiting(t, c, q), "b has work, and has left none for a")

	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:gone").Err())
	require.EqualValues(t, 1, take("c").Dropped)
	require.Equal(t, []string{"a"}, waiting(t, c, q), "c looks again at once")

	require.NoError(t, q.Pause(ctx))
	take("d")
	require.Equal(t, []string{"a", "d"}, waiting(t, c, q))
}

// scheduleDue puts a job into the schedule that is due, without a word to anybody.
func scheduleDue(t *testing.T, c *redis.Client, q *queue.Queue, id string) {
	t.Helper()
	require.NoError(t, c.HSet(t.Context(), lab.Key(q, "b"), id, "body").Err())
	require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "s"), redis.Z{Score: lab.Past, Member: id}).Err())
}

// Work that was left behind is told to the next one, and so on.
func TestWhoTakesTellsTheNextOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	heard := listener(t, c, q, "next")
	scheduleDue(t, c, q, "one")
	scheduleDue(t, c, q, "two")
	p := takeParams(q, "me")
	p.Max = 2
	r, err := gen.QueueTake(ctx, c, p)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 2)
	require.Len(t, waiting(t, c, q), 1, "nothing is left, so nobody is told")

	scheduleDue(t, c, q, "three")
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:three", "1:three").Err())
	p.Max = 1
	_, err = gen.QueueTake(ctx, c, p)
	require.NoError(t, err)
	heard()
}

// listener puts a channel with a receiver among those who wait; heard wants the word.
func listener(t *testing.T, c *redis.Client, q *queue.Queue, name string) (heard func()) {
	t.Helper()
	channel := lab.Key(q, "w:"+name)
	sub := c.Subscribe(t.Context(), channel)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "w"), redis.Z{Score: lab.Future, Member: channel}).Err())
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err, "nobody told %s", name)
		require.Empty(t, waiting(t, c, q))
	}
}

// A job alone is taken however large it is: else it would block the head for ever.
func TestTheFirstJobIsTakenHoweverLarge(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "large", Body: make([]byte, 100)}, queue.Job{ID: "next"})
	p := takeParams(q, "")
	p.Bytes = 10
	r, err := gen.QueueTake(t.Context(), c, p)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 1)
	require.Equal(t, "large", r.Jobs[0].ID)
}

// Each call that makes work tells one who waits, and one that makes none tells nobody.
func TestWhoIsTold(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		told bool
		call func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error
	}{
		"return": {true, func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error { return d.Return(ctx, 0) }},
		"return, later": {true, func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error {
			return d.Return(ctx, time.Hour)
		}},
		"bury": {false, func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error { return d.Bury(ctx, "no") }},
		"reclaim, ready": {true, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Reclaims(ctx, q, nil)
		}},
		"reclaim, nobody": {false, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Reclaims(ctx, q, nil)
		}},
		"reclaim, dead": {false, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Reclaims(ctx, q, nil)
		}},
		"requeue": {true, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Requeues("dead")(ctx, q, nil)
		}},
		"requeue, none": {false, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Requeues("no")(ctx, q, nil)
		}},
		"promote, none": {false, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Promotes(ctx, q, nil)
		}},
		"push, later than the next": {false, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Pushes(queue.Job{Delay: 3 * time.Hour})(ctx, q, nil)
		}},
		"push, before the next": {true, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Pushes(queue.Job{Delay: time.Hour})(ctx, q, nil)
		}},
		"push, now": {true, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			return scriptcase.Pushes(queue.Job{})(ctx, q, nil)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			most := -1
			if name == "reclaim, dead" {
				most = 1
			}
			q, c := lab.NewQueue(t, &queue.Options{MaxFailures: most})
			lab.Push(t, q, queue.Job{ID: "dead"})
			require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "no"))
			lab.Push(t, q, queue.Job{ID: "leased"}, queue.Job{ID: "scheduled", Delay: 2 * time.Hour})
			d := lab.TakeOne(t, q)
			if name == "reclaim, ready" || name == "reclaim, dead" {
				require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: "leased"}).Err())
			}
			heard := listener(t, c, q, "x")
			require.NoError(t, tc.call(ctx, q, d))
			if tc.told {
				heard()
				return
			}
			require.Len(t, waiting(t, c, q), 1, "told of nothing")
		})
	}
}

// A poller that is told waits again under its own channel, once, and tells a consumer
// only of ready jobs.
func TestThePollerWaitsAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	promote := func(channel string) {
		_, err := gen.DelayedPromote(ctx, c, gen.DelayedPromoteParams{Scheduled: lab.Key(q, "s"), Ready: lab.Key(q, "r"), Wake: lab.Key(q, "w"), Max: 10, Waiter: channel, Wait: time.Minute})
		require.NoError(t, err)
	}
	poller := lab.Key(q, "w:poller")
	require.NoError(t, lab.Subscribe(ctx, t, c, poller), "it would hear its own word")
	promote(poller)
	require.Equal(t, []string{poller}, waiting(t, c, q))
	require.Positive(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), "one that dies is forgotten")
	heard := listener(t, c, q, "consumer")
	promote(poller)
	require.Len(t, waiting(t, c, q), 2, "nothing is ready, so nobody is told")
	promote("")
	require.Len(t, waiting(t, c, q), 2, "one without a channel does not wait")
	scheduleDue(t, c, q, "j")
	promote(poller)
	require.Equal(t, []string{poller}, waiting(t, c, q), "itself it does not tell")
	require.NoError(t, c.Del(ctx, lab.Key(q, "w")).Err())
	heard()
}

// A unique name whose time was over belongs to the job that took it over, whatever
// becomes of the job that had it first.
func TestANameTakenOverStaysWithItsNewHolder(t *testing.T) {
	t.Parallel()
	cases := map[string]func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error{
		"ack":  func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error { return d.Ack(ctx) },
		"bury": func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error { return d.Bury(ctx, "no") },
		"reclaim": func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error {
			if err := d.Extend(ctx, time.Millisecond); err != nil {
				return err
			}
			for {
				if r, err := q.Reclaim(ctx); err != nil || r.Buried > 0 {
					return err
				}
			}
		},
		"cancel": func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error {
			if err := d.Return(ctx, 0); err != nil {
				return err
			}
			return scriptcase.Cancels("first")(ctx, q, nil)
		},
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, &queue.Options{MaxFailures: 1})
			lab.Push(t, q, queue.Job{ID: "first", Unique: "x", UniqueTTL: time.Millisecond})
			d := lab.TakeOne(t, q)
			luatomictest.Eventually(t, 20*time.Second, "the hold is over", func() bool {
				return len(lab.Push(t, q, queue.Job{ID: "second", Unique: "x", Delay: time.Hour}).Duplicates) == 0
			})
			require.NoError(t, call(ctx, q, d))
			require.Equal(t, map[string]string{"k:x": "second", "j:second": "x"}, c.HGetAll(ctx, lab.Key(q, "u")).Val())
			require.EqualValues(t, 1, c.ZCard(ctx, lab.Key(q, "ux")).Val())
		})
	}
}

// A reclaim takes back a bounded number, so that the script stays short, and says that
// there is more.
func TestReclaimIsBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	const over = 250
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, j := range lab.Numbered(over, 0) {
			p.HSet(ctx, lab.Key(q, "b"), j.ID, "body")
			p.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: j.ID})
		}
		return nil
	})
	require.NoError(t, err)
	first, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, first.Returned)
	require.Less(t, first.NextLapse.Or(first.Now), first.Now, "more are over")
	second, err := q.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, over-200, second.Returned)
}
