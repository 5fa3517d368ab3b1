package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func pushAll(t *testing.T, batch ...queue.Batch) []queue.Pushed {
	t.Helper()
	out, err := queue.PushAll(t.Context(), batch...)
	require.NoError(t, err)
	return out
}

// One batch, now and later, over three queues, with each outcome that a job can have.
func TestPushAll(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 3)
	lab.Push(t, q[1], queue.Job{ID: "known"}, queue.Job{ID: "holder", Unique: "name"})
	require.NoError(t, q[2].Pause(ctx))
	require.NoError(t, q[1].SetLimit(ctx, 4))

	out := pushAll(t,
		queue.Batch{Queue: q[0], Jobs: []queue.Job{{ID: "known", Body: []byte("A")},
			{ID: "x", Delay: time.Hour, Unique: "name"}, {ID: "known"}}},
		queue.Batch{Queue: q[1], Jobs: []queue.Job{{ID: "known", Unique: "free"}, {ID: "new", Unique: "name"},
			{ID: "y", Unique: "free"}, {Delay: time.Minute}}},
		queue.Batch{Queue: q[2], Jobs: []queue.Job{{ID: "known", Unique: "name"}, {ID: "z", Unique: "name"}}},
	)
	require.Len(t, out, 3)
	require.Equal(t, out[0].Now, out[2].Now, "one stamp for the batch")
	for i, want := range []queue.Pushed{
		{Ready: 1, Scheduled: 1, IDs: []string{"known", "x", "known"},
			Duplicates: []queue.Duplicate{{Position: 2, ID: "known"}}},
		{Ready: 1, Scheduled: 1, IDs: []string{"known", "new", "y", out[1].IDs[3]},
			Duplicates: []queue.Duplicate{{Position: 0, ID: "known"}, {Position: 1, ID: "holder"}}},
		{Ready: 1, IDs: []string{"known", "z"}, Duplicates: []queue.Duplicate{{Position: 1, ID: "known"}}},
	} {
		want.Now = out[0].Now
		require.Equal(t, want, out[i], "an id or a unique name is known to its own queue; queue %d", i)
	}
	require.Len(t, out[1].IDs[3], 27)

	first := lab.TakeOne(t, q[0])
	require.Equal(t, []byte("A"), first.Body)
	require.Equal(t, out[0].Now, first.EnqueuedAt)
	require.NoError(t, first.Ack(ctx))
	due, err := c.ZRangeWithScores(ctx, "{"+tag+"}{b}:s", 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []redis.Z{{Member: out[1].IDs[3], Score: float64(out[0].Now.UnixMilli() + 60_001)}}, due)
	held, err := queue.PushAll(ctx, queue.Batch{Queue: q[0], Jobs: []queue.Job{{Unique: "name"}}},
		queue.Batch{Queue: q[1]})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{ID: "x"}}, held[0].Duplicates, "the job of the push holds the name")
	paused, err := q[2].Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, paused.Ready, "a paused queue accepts")
}

// The queue whose name is the tag, and queues of that tag, share a slot and no key.
func TestPushAllWithTheQueueOfTheTagsName(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	other := lab.Tagged(t, c, q.Name(), 1)[0]
	out := pushAll(t, queue.Batch{Queue: q, Jobs: lab.Bodies(2)}, queue.Batch{Queue: other, Jobs: lab.Bodies(3)})
	require.Equal(t, 2, out[0].Ready)
	require.Equal(t, 3, out[1].Ready)
	for suffix, n := range map[string]int64{"{" + q.Name() + "}:r": 2, "{" + q.Name() + "}{a}:r": 3} {
		require.Equal(t, n, c.LLen(t.Context(), suffix).Val())
	}
}

// The guard is the check of every limit before the first write to any queue.
func TestPushAllLeavesAllAloneWhenOneIsFull(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 3)
	require.NoError(t, q[1].SetLimit(ctx, 4))
	lab.Push(t, q[1], queue.Job{}, queue.Job{Delay: time.Hour})
	require.NoError(t, lab.TakeOne(t, q[1]).Extend(ctx, time.Hour))
	lab.Push(t, q[1], queue.Job{})
	before := lab.Dump(ctx, t, c, tag)
	_, err := queue.PushAllOnce(ctx, "token", queue.Batch{Queue: q[0], Jobs: lab.Bodies(3)},
		queue.Batch{Queue: q[1], Jobs: []queue.Job{{}, {Delay: time.Hour}}},
		queue.Batch{Queue: q[2], Jobs: lab.Bodies(1)})
	require.ErrorIs(t, err, queue.ErrFull)
	require.ErrorContains(t, err, `queue "b"`)
	require.Equal(t, before, lab.Dump(ctx, t, c, tag))
	_, err = queue.PushAllOnce(ctx, "token", queue.Batch{Queue: q[0], Jobs: lab.Bodies(3)},
		queue.Batch{Queue: q[1], Jobs: lab.Bodies(1)})
	require.NoError(t, err, "a refused batch leaves no receipt, and one job is below the limit")
}

func TestPushAllOnceAddsNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 2)
	long, err := queue.New(c, "long", &queue.Options{Tag: tag, Receipt: time.Hour})
	require.NoError(t, err)
	batch := []queue.Batch{
		{Queue: q[0], Jobs: []queue.Job{{ID: "x"}, {ID: "x"}, {Delay: time.Hour}}},
		{Queue: q[1]},
		{Queue: long, Jobs: []queue.Job{{ID: "y:1 2", Unique: "u"}, {ID: "z", Unique: "u"}, {}}},
	}
	first, err := queue.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, "{"+tag+"}{}:i:import-7").Val(), 59*time.Minute, "the longest receipt of the queues")
	require.NoError(t, lab.TakeOne(t, q[0]).Ack(ctx))
	before := lab.Dump(ctx, t, c, tag)
	second, err := queue.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	require.Equal(t, first, second, "the same answer, although a job is finished")
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "x"}}, second[0].Duplicates)
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "y:1 2"}}, second[2].Duplicates)
	require.Equal(t, before, lab.Dump(ctx, t, c, tag))

	_, err = queue.PushAllOnce(ctx, "import-7", batch[:2]...)
	require.ErrorIs(t, err, queue.ErrTokenReused)
	alone, err := q[0].PushOnce(ctx, "import-7", queue.Job{})
	require.NoError(t, err)
	require.Equal(t, 1, alone.Ready, "the token of a batch is not one of its queues'")
}

// The ids of jobs without one are derived from the token: a repeat returns those that exist, also when the receipt has
// ended, and adds no job that is in its queue still.
func TestPushAllOnceRepeatsTheIDs(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 2)
	batch := []queue.Batch{{Queue: q[0], Jobs: lab.Bodies(2)}, {Queue: q[1], Jobs: []queue.Job{{ID: "x"}, {}}}}
	first, err := queue.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	require.Empty(t, batch[0].Jobs[0].ID, "the caller's jobs are not changed")
	require.NotEqual(t, first[0].IDs[0], first[0].IDs[1])
	require.Equal(t, "x", first[1].IDs[0])
	for i, out := range first {
		found, err := q[i].Find(ctx, out.IDs...)
		require.NoError(t, err)
		for _, f := range found {
			require.Equal(t, queue.Ready, f.State)
		}
	}
	second, err := queue.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.EqualValues(t, 1, c.Del(ctx, "{"+tag+"}{}:i:import-7").Val())
	late, err := queue.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	for i, out := range late {
		require.Equal(t, first[i].IDs, out.IDs)
		require.Zero(t, out.Ready)
		require.Len(t, out.Duplicates, 2)
	}
}

func TestPushAllRefusesBeforeAnyIO(t *testing.T) {
	t.Parallel()
	dead := func() *redis.Client { return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}) }
	c, other := dead(), dead()
	defer c.Close()
	defer other.Close()
	onTag := func(c lua.Client, name, prefix, tag string) queue.Batch {
		q, err := queue.New(c, name, &queue.Options{Prefix: prefix, Tag: tag})
		require.NoError(t, err)
		return queue.Batch{Queue: q, Jobs: lab.Bodies(1)}
	}
	with := func(p queue.Batch, jobs ...queue.Job) queue.Batch {
		p.Jobs = jobs
		return p
	}
	a, b := onTag(c, "a", "", "t"), onTag(c, "b", "", "t")
	many := make([]queue.Batch, queue.MaxBatchQueues+1)
	for name, tc := range map[string]struct {
		batch []queue.Batch
		want  error
		text  string
	}{
		"tags": {[]queue.Batch{a, onTag(c, "b", "", "")}, lua.ErrCrossSlot,
			`have the tags "t" and "b"; give both one queue.Options.Tag`},
		"prefixes": {[]queue.Batch{a, onTag(c, "b", "p:", "t")}, nil,
			`have the prefixes "" and "p:"; give both one queue.Options.Prefix`},
		"clients": {[]queue.Batch{a, onTag(other, "b", "", "t")}, nil,
			"have different clients; make both with one client"},
		"twice": {[]queue.Batch{a, b, onTag(c, "a", "", "t")}, nil,
			`queue "a" is in the batch twice; put its jobs into one part`},
		"no queue": {[]queue.Batch{a, {}}, nil, "part 1 has no queue; set Batch.Queue"},
		"queues":   {many, lua.ErrTooLarge, "65 items, at most 64"},
		"jobs": {[]queue.Batch{with(a, lab.Bodies(600)...), with(b, lab.Bodies(401)...)}, lua.ErrTooLarge,
			"1001 items, at most 1000"},
		"bytes": {[]queue.Batch{with(a, queue.Job{Body: make([]byte, 600_000)}),
			with(b, queue.Job{Body: make([]byte, 600_000)})}, lua.ErrTooLarge, "at most 1048576 in one call"},
		"a bad job": {[]queue.Batch{a, with(b, queue.Job{}, queue.Job{Delay: -1})}, lua.ErrOutOfRange,
			`queue "b": job 1: `},
		"no jobs": {[]queue.Batch{with(a), with(b)}, nil, ""},
	} {
		out, err := queue.PushAll(t.Context(), tc.batch...)
		if tc.text == "" {
			require.NoError(t, err, "no jobs: nothing is sent")
			require.Len(t, out, 2)
			continue
		}
		require.ErrorContains(t, err, tc.text, name)
		if tc.want != nil {
			require.ErrorIs(t, err, tc.want, name)
		}
	}
	_, err := queue.PushAllOnce(t.Context(), "", a)
	require.ErrorIs(t, err, lua.ErrBadName)
	_, err = queue.New(c, "a", &queue.Options{Tag: "{"})
	require.ErrorIs(t, err, lua.ErrBadName)
	_, err = queue.NewShards(c, "a", 2, &queue.Options{Tag: "t"})
	require.ErrorContains(t, err, "leave queue.Options.Tag empty")
}

// The guard is the check whether a hold has ended.
func TestPushAllFindsAHoldOver(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "first", Unique: "u", UniqueTTL: 20 * time.Millisecond})
	second := queue.Batch{Queue: q, Jobs: []queue.Job{{ID: "second", Unique: "u"}}}
	luatomictest.Eventually(t, 5*time.Second, "the hold ends", func() bool { return pushAll(t, second)[0].Ready == 1 })
	second.Jobs[0].ID = "third"
	require.Equal(t, []queue.Duplicate{{ID: "second"}}, pushAll(t, second)[0].Duplicates)
}

func TestPushAllWakesAConsumerOfEachQueue(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, tag := luatomictest.Client(t), luatomictest.Namespace(t)
	q, got := lab.Tagged(t, c, tag, 3), make(chan string, 10)
	ended := make(chan error, len(q))
	for _, one := range q {
		go func() {
			_, err := one.Consume(ctx, &queue.ConsumeOptions{Concurrency: 1, Idle: time.Hour},
				func(_ context.Context, d *queue.Delivery) error {
					got <- one.Name() + d.ID
					return nil
				})
			ended <- err
		}()
	}
	defer func() {
		cancel()
		for range q {
			if err := <-ended; err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
		}
	}()
	waiting := func() bool {
		n := int64(0)
		for _, one := range q {
			n += c.ZCard(ctx, "{"+tag+"}{"+one.Name()+"}:w").Val()
		}
		return n == 3
	}
	parts := func(ids string, delays ...time.Duration) (out []queue.Batch) {
		for i, d := range delays {
			out = append(out, queue.Batch{Queue: q[i], Jobs: []queue.Job{{ID: ids, Delay: d}}})
		}
		return out
	}
	// All queues have a scheduled job. The earliest of the new ones decides.
	for _, one := range q {
		lab.Push(t, one, queue.Job{Delay: time.Hour})
	}
	first := parts("first", 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
	for i := range first {
		first[i].Jobs = append(first[i].Jobs, queue.Job{Delay: 2 * time.Hour})
	}
	for name, batch := range map[string][]queue.Batch{
		"now":   parts("now", 0, 0, 0),
		"later": parts("later", 20*time.Millisecond, 0, 20*time.Millisecond),
		"first": first,
	} {
		luatomictest.Eventually(t, 30*time.Second, "all consumers wait", waiting)
		pushAll(t, batch...)
		seen := make(map[string]bool)
		for range 3 {
			select {
			case g := <-got:
				seen[g] = true
			case <-time.After(30 * time.Second): // they sleep for an hour
				t.Fatalf("%s: only %v were woken", name, seen)
			}
		}
		require.Equal(t, map[string]bool{"a" + name: true, "b" + name: true, "c" + name: true}, seen)
	}
}

// Under a lease on the tag, a batch is added while the lease is held and not after.
func TestPushAllUnderALease(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lease, err := lock.New(c, nil).Try(ctx, tag)
	require.NoError(t, err)
	q := lab.Tagged(t, lua.Guard(c, lease), tag, 2)
	batch := []queue.Batch{{Queue: q[0], Jobs: lab.Bodies(1)}, {Queue: q[1], Jobs: lab.Bodies(1)}}
	for _, out := range pushAll(t, batch...) {
		require.Equal(t, 1, out.Ready)
	}
	require.NoError(t, lease.Release(ctx))
	_, err = queue.PushAll(ctx, batch...)
	require.ErrorIs(t, err, lua.ErrFenced)
	require.Equal(t, int64(1), c.LLen(ctx, "{"+tag+"}{a}:r").Val())
}

// Readers of two queues see a batch in both or in neither.
func TestPushAllIsAllOrNothingToReaders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, tag := luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 2)
	watched := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			var a, b *redis.IntCmd
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
				a, b = p.LLen(ctx, "{"+tag+"}{a}:r"), p.LLen(ctx, "{"+tag+"}{b}:r")
				return nil
			})
			if err == nil && a.Val() != b.Val() {
				watched <- errors.New(strings.Join([]string{"saw", a.String(), "and", b.String()}, " "))
				return
			}
		}
		watched <- nil
	}()
	for range 100 {
		pushAll(t, queue.Batch{Queue: q[0], Jobs: lab.Bodies(20)}, queue.Batch{Queue: q[1], Jobs: lab.Bodies(20)})
	}
	cancel()
	require.NoError(t, <-watched)
}
