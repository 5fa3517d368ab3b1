package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestTakeStopsBeforeTooManyBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	big := make([]byte, 600_000)
	for range 3 {
		_, err := q.Push(ctx, queue.Job{Body: big})
		require.NoError(t, err)
	}
	for range 3 {
		taken, err := q.Take(ctx, 10)
		require.NoError(t, err)
		require.Len(t, taken.Deliveries, 1)
	}
}

// A cancelled job leaves its entry behind. A take drops it and leases the next job in the same call.
func TestTakeDropsEntriesWithoutABody(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	pushed, err := q.Push(ctx, lab.Bodies(5)...)
	require.NoError(t, err)
	require.NoError(t, c.HDel(ctx, lab.Key(q, "b"), pushed.IDs[0], pushed.IDs[1]).Err())
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	require.Equal(t, 2, taken.Dropped)
	require.Len(t, taken.Deliveries, 2)
	require.Equal(t, pushed.IDs[2], taken.Deliveries[0].ID)
	require.Equal(t, int64(2), c.ZCard(ctx, lab.Key(q, "l")).Val(), "a deleted job gets no lease")
}

// takeParams are those of a take by a consumer that waits on the channel.
func takeParams(q *queue.Queue, channel string) queuescript.TakeParams {
	return queuescript.TakeParams{
		Queues: []queuescript.TakeQueue{scriptcase.TakeQueue("{"+q.Name()+"}", uuid.NewString())},
		Max:    10, Bytes: 1000, Waiter: channel, Wait: time.Minute,
	}
}

// waitersAre reports whether n channels wait.
func waitersAre(t *testing.T, c *redis.Client, q *queue.Queue, n int64) func() bool {
	return func() bool { return c.ZCard(t.Context(), lab.Key(q, "w")).Val() == n }
}

// waiting returns the names of the waiters; the first is notified first.
func waiting(t *testing.T, c *redis.Client, q *queue.Queue) []string {
	t.Helper()
	found, err := c.ZRange(t.Context(), lab.Key(q, "w"), 0, -1).Result()
	require.NoError(t, err)
	return found
}

// A consumer that gets a job is no waiter, nor is one that takes again immediately.
func TestOnlyATakeThatFindsNothingWaits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	take := func(channel string) queuescript.TakeResult {
		r, err := queuescript.Take(ctx, c, takeParams(q, channel))
		require.NoError(t, err)
		return r
	}
	take("a")
	take("b")
	require.Equal(t, []string{"a", "b"}, waiting(t, c, q))
	require.Positive(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), "the key expires")
	require.LessOrEqual(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), time.Minute+time.Second)

	scheduleDue(t, c, q, "j")
	require.Len(t, take("b").Jobs, 1)
	require.Equal(t, []string{"a"}, waiting(t, c, q), "b has a job, and left none for a")

	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:deleted").Err())
	require.EqualValues(t, 1, take("c").States[0].Dropped)
	require.Equal(t, []string{"a"}, waiting(t, c, q), "c takes again immediately")

	require.NoError(t, q.Pause(ctx))
	take("d")
	require.Equal(t, []string{"a", "d"}, waiting(t, c, q))
}

// scheduleDue schedules a job that is due, and notifies nobody.
func scheduleDue(t *testing.T, c *redis.Client, q *queue.Queue, id string) {
	t.Helper()
	require.NoError(t, c.HSet(t.Context(), lab.Key(q, "b"), id, "body").Err())
	require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "s"), redis.Z{Score: lab.Past, Member: id}).Err())
}

// A take that leaves jobs behind notifies the next waiter.
func TestTakeNotifiesTheNextWaiterOfWhatItLeaves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	notified := listener(t, c, q, "next")
	scheduleDue(t, c, q, "one")
	scheduleDue(t, c, q, "two")
	p := takeParams(q, "me")
	p.Max = 2
	r, err := queuescript.Take(ctx, c, p)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 2)
	require.Len(t, waiting(t, c, q), 1, "nothing is left, so nobody is notified")

	scheduleDue(t, c, q, "three")
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:three", "1:three").Err())
	p.Max, p.Token, p.Since = 1, 1, 1
	_, err = queuescript.Take(ctx, c, p)
	require.NoError(t, err)
	notified()
}

// listener adds a name with a subscriber to the waiters. The function that it returns wants a notification.
func listener(t *testing.T, c *redis.Client, q *queue.Queue, name string) (notified func()) {
	t.Helper()
	sub := c.Subscribe(t.Context(), lab.Key(q, "w:"+name))
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "w"), redis.Z{Score: lab.Future, Member: name}).Err())
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err, "nobody notified %s", name)
		require.Empty(t, waiting(t, c, q))
	}
}

// A take leases one job however large it is: otherwise it would block the head of the list for ever.
func TestTheFirstJobIsTakenHoweverLarge(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "large", Body: make([]byte, 100)}, queue.Job{ID: "next"})
	p := takeParams(q, "")
	p.Bytes = 10
	r, err := queuescript.Take(t.Context(), c, p)
	require.NoError(t, err)
	require.Len(t, r.Jobs, 1)
	require.Equal(t, "large", r.Jobs[0].ID)
}

// Invalid entries at the head of the list, however they came there, do not keep jobs from their workers.
func TestForeignEntriesDoNotBlockTheHead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "no colon", "", ":", "x:y", "17:").Err())
	lab.Push(t, q, queue.Job{ID: "j"})
	_, err := q.Peek(ctx, queue.Ready, 0, 10)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, 5, taken.Dropped)
	require.Equal(t, "j", taken.Deliveries[0].ID)
}

// An entry whose stamp is no number is foreign, also when it names a job.
func TestForeignEntriesThatNameAJobAreDropped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	pushed := lab.Push(t, q, queue.Job{ID: "j"})
	foreign := []any{"junk:j", ":j", "1.5:j", "-1:j", "1x:j"}
	require.NoError(t, c.LPush(ctx, lab.Key(q, "r"), foreign...).Err())
	rows, err := q.Peek(ctx, queue.Ready, 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"j"}, idsOf(taken.Deliveries))
	require.Equal(t, pushed.Now, taken.Deliveries[0].EnqueuedAt)
	require.Equal(t, len(foreign), taken.Dropped)
}

// Take promotes, so delays need no poller.
func TestTakePromotesWhatIsDue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	pushed, err := q.Push(ctx, queue.Job{ID: "d", Body: []byte("x"), Delay: 30 * time.Millisecond})
	require.NoError(t, err)
	var got *queue.Delivery
	luatomictest.Eventually(t, 5*time.Second, "the job is due", func() bool {
		taken, err := q.Take(ctx, 1)
		require.NoError(t, err)
		if len(taken.Deliveries) == 1 {
			got = taken.Deliveries[0]
			require.False(t, taken.Now.Before(pushed.Now.Add(30*time.Millisecond)), "never early by the server's clock")
		}
		return got != nil
	})
	require.Equal(t, []byte("x"), got.Body)
}

// Each call that makes a job ready notifies one waiter. A call that makes none ready notifies nobody.
func TestEachCallThatMakesJobsReadyNotifiesOneWaiter(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		notifies bool
		call     func(ctx context.Context, q *queue.Queue, d *queue.Delivery) error
	}{
		"return": {true, func(ctx context.Context, _ *queue.Queue,
			d *queue.Delivery) error {
			return d.Return(ctx, 0)
		}},
		"return, later": {true, func(ctx context.Context, _ *queue.Queue, d *queue.Delivery) error {
			return d.Return(ctx, time.Hour)
		}},
		"bury": {false, func(ctx context.Context, _ *queue.Queue,
			d *queue.Delivery) error {
			return d.Bury(ctx, "no")
		}},
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
		"reschedule, later": {false, func(ctx context.Context, q *queue.Queue, _ *queue.Delivery) error {
			_, err := q.Reschedule(ctx, "scheduled", time.Now().Add(3*time.Hour))
			return err
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
			notified := listener(t, c, q, "x")
			require.NoError(t, tc.call(ctx, q, d))
			if tc.notifies {
				notified()
				return
			}
			require.Len(t, waiting(t, c, q), 1, "nobody is notified")
		})
	}
}

// Every script that notifies skips channels without a subscriber: here the notification reaches the last of three.
func TestEveryScriptSkipsDeadWaiters(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, q *queue.Queue) error{
		"push of one": func(ctx context.Context, q *queue.Queue) error {
			_,
				err := q.Push(ctx, queue.Job{})
			return err
		},
		"push": func(ctx context.Context, q *queue.Queue) error {
			_,
				err := q.Push(ctx, lab.Bodies(2)...)
			return err
		},
		"push later": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Push(ctx, queue.Job{Delay: 1})
			return err
		},
		"push all later": func(ctx context.Context, q *queue.Queue) error {
			_, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: []queue.Job{{Delay: 1}}})
			return err
		},
		"requeue": func(ctx context.Context, q *queue.Queue) error { _, err := q.Requeue(ctx, "dead"); return err },
		"reschedule": func(ctx context.Context, q *queue.Queue) error {
			_, err := q.Reschedule(ctx, "far", time.Unix(1, 0))
			return err
		},
		"resume":  func(ctx context.Context, q *queue.Queue) error { return q.Resume(ctx) },
		"take":    func(ctx context.Context, q *queue.Queue) error { _, err := q.Take(ctx, 1); return err },
		"reclaim": func(ctx context.Context, q *queue.Queue) error { _, err := q.Reclaim(ctx); return err },
		"repair":  func(ctx context.Context, q *queue.Queue) error { _, err := q.Audit(ctx, true); return err },
		"nack": func(ctx context.Context, q *queue.Queue) error {
			taken, err := q.Take(ctx, 1)
			return errors.Join(err, q.Nack(ctx, 0, "why", taken.Deliveries...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, nil)
			switch name {
			case "requeue":
				lab.Push(t, q, queue.Job{ID: "dead"})
				require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "why"))
			case "reschedule":
				lab.Push(t, q, queue.Job{ID: "far", Delay: time.Hour})
			case "take":
				lab.Push(t, q, lab.Bodies(2)...)
			case "nack":
				lab.Push(t, q, queue.Job{})
			case "reclaim", "repair":
				require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), "j", "body").Err())
			}
			if name == "reclaim" {
				require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: "j"}).Err())
			}
			require.NoError(t, lab.Subscribe(ctx, t, c, lab.Key(q, "w:live")))
			waiting := []redis.Z{{Score: lab.Future, Member: "dead 1"}, {Score: lab.Future + 1, Member: "dead 2"},
				{Score: lab.Future + 2, Member: "live"}, {Score: lab.Future + 3, Member: "later"}}
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), waiting...).Err())
			require.NoError(t, call(ctx, q))
			require.Equal(t, []string{"later"}, c.ZRange(ctx, lab.Key(q, "w"), 0, -1).Val())
		})
	}
}
