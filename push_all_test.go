package luatomic_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// tagged returns n queues of one tag: a, b and so on.
func tagged(t testing.TB, c lua.Client, tag string, n int) []*luatomic.Queue {
	t.Helper()
	out := make([]*luatomic.Queue, n)
	for i := range out {
		var err error
		out[i], err = luatomic.NewQueue(c, strings.Repeat(string(rune('a'+i%26)), 1+i/26), &luatomic.QueueOptions{Tag: tag})
		require.NoError(t, err)
	}
	return out
}

func pushAll(t *testing.T, batch ...luatomic.QueueJobs) []luatomic.Pushed {
	t.Helper()
	out, err := luatomic.PushAll(t.Context(), batch...)
	require.NoError(t, err)
	return out
}

// One batch, now and later, over three queues, with each outcome that a job can have.
func TestPushAll(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := tagged(t, c, tag, 3)
	push(t, q[1], luatomic.Job{ID: "known"}, luatomic.Job{ID: "holder", Unique: "name"})
	require.NoError(t, q[2].Pause(ctx))
	require.NoError(t, q[1].SetLimit(ctx, 4))

	out := pushAll(t,
		luatomic.QueueJobs{Queue: q[0], Jobs: []luatomic.Job{{ID: "known", Body: []byte("A")}, {ID: "x", Delay: time.Hour, Unique: "name"}, {ID: "known"}}},
		luatomic.QueueJobs{Queue: q[1], Jobs: []luatomic.Job{{ID: "known", Unique: "free"}, {ID: "new", Unique: "name"}, {ID: "y", Unique: "free"}, {Delay: time.Minute}}},
		luatomic.QueueJobs{Queue: q[2], Jobs: []luatomic.Job{{ID: "known", Unique: "name"}, {ID: "z", Unique: "name"}}},
	)
	require.Len(t, out, 3)
	require.Equal(t, out[0].Now, out[2].Now, "one stamp for the batch")
	for i, want := range []luatomic.Pushed{
		{Ready: 1, Scheduled: 1, IDs: []string{"known", "x", "known"}, Duplicates: []luatomic.Duplicate{{Position: 2, ID: "known"}}},
		{Ready: 1, Scheduled: 1, IDs: []string{"known", "new", "y", out[1].IDs[3]}, Duplicates: []luatomic.Duplicate{{Position: 0, ID: "known"}, {Position: 1, ID: "holder"}}},
		{Ready: 1, IDs: []string{"known", "z"}, Duplicates: []luatomic.Duplicate{{Position: 1, ID: "known"}}},
	} {
		want.Now = out[0].Now
		require.Equal(t, want, out[i], "an id or a unique name is known to its own queue; queue %d", i)
	}
	require.Len(t, out[1].IDs[3], 36)

	first := takeOne(t, q[0])
	require.Equal(t, []byte("A"), first.Body)
	require.Equal(t, out[0].Now, first.EnqueuedAt)
	require.NoError(t, first.Ack(ctx))
	due, err := c.ZRangeWithScores(ctx, "{"+tag+"}{b}:s", 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []redis.Z{{Member: out[1].IDs[3], Score: float64(out[0].Now.UnixMilli() + 60_000)}}, due)
	held, err := luatomic.PushAll(ctx, luatomic.QueueJobs{Queue: q[0], Jobs: []luatomic.Job{{Unique: "name"}}}, luatomic.QueueJobs{Queue: q[1]})
	require.NoError(t, err)
	require.Equal(t, []luatomic.Duplicate{{ID: "x"}}, held[0].Duplicates, "the push has put the name on hold")
	paused, err := q[2].Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, paused.Ready, "a paused queue accepts")
}

// The queue whose name is the tag, and queues of that tag: one slot, and no key in common.
func TestPushAllWithTheQueueOfTheTagsName(t *testing.T) {
	t.Parallel()
	q, c := newQueue(t, nil)
	other := tagged(t, c, q.Name(), 1)[0]
	out := pushAll(t, luatomic.QueueJobs{Queue: q, Jobs: bodies(2)}, luatomic.QueueJobs{Queue: other, Jobs: bodies(3)})
	require.Equal(t, 2, out[0].Ready)
	require.Equal(t, 3, out[1].Ready)
	for suffix, n := range map[string]int64{"{" + q.Name() + "}:r": 2, "{" + q.Name() + "}{a}:r": 3} {
		require.Equal(t, n, c.LLen(t.Context(), suffix).Val())
	}
}

// The guard is the limit of every queue before the first write to any.
func TestPushAllLeavesAllAloneWhenOneIsFull(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := tagged(t, c, tag, 3)
	require.NoError(t, q[1].SetLimit(ctx, 4))
	push(t, q[1], luatomic.Job{}, luatomic.Job{Delay: time.Hour})
	require.NoError(t, takeOne(t, q[1]).Extend(ctx, time.Hour))
	push(t, q[1], luatomic.Job{})
	before := dump(ctx, t, c, tag)
	_, err := luatomic.PushAllOnce(ctx, "token", luatomic.QueueJobs{Queue: q[0], Jobs: bodies(3)},
		luatomic.QueueJobs{Queue: q[1], Jobs: []luatomic.Job{{}, {Delay: time.Hour}}}, luatomic.QueueJobs{Queue: q[2], Jobs: bodies(1)})
	require.ErrorIs(t, err, luatomic.ErrFull)
	require.ErrorContains(t, err, `queue "b"`)
	require.Equal(t, before, dump(ctx, t, c, tag))
	_, err = luatomic.PushAllOnce(ctx, "token", luatomic.QueueJobs{Queue: q[0], Jobs: bodies(3)}, luatomic.QueueJobs{Queue: q[1], Jobs: bodies(1)})
	require.NoError(t, err, "a refused batch leaves no receipt, and there is room for one")
}

func TestPushAllOnceAddsNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := tagged(t, c, tag, 2)
	long, err := luatomic.NewQueue(c, "long", &luatomic.QueueOptions{Tag: tag, Receipt: time.Hour})
	require.NoError(t, err)
	batch := []luatomic.QueueJobs{
		{Queue: q[0], Jobs: []luatomic.Job{{ID: "x"}, {ID: "x"}, {Delay: time.Hour}}},
		{Queue: q[1]},
		{Queue: long, Jobs: []luatomic.Job{{ID: "y:1 2", Unique: "u"}, {ID: "z", Unique: "u"}, {}}},
	}
	first, err := luatomic.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	require.Greater(t, c.PTTL(ctx, "{"+tag+"}{}:i:import-7").Val(), 59*time.Minute, "the longest receipt of the queues")
	require.NoError(t, takeOne(t, q[0]).Ack(ctx))
	before := dump(ctx, t, c, tag)
	second, err := luatomic.PushAllOnce(ctx, "import-7", batch...)
	require.NoError(t, err)
	for i := range first {
		require.Equal(t, len(first[i].IDs), len(second[i].IDs))
		first[i].IDs, second[i].IDs = nil, nil // ids made for the call differ
	}
	require.Equal(t, first, second, "the same answer, although a job is finished")
	require.Equal(t, []luatomic.Duplicate{{Position: 1, ID: "x"}}, second[0].Duplicates)
	require.Equal(t, []luatomic.Duplicate{{Position: 1, ID: "y:1 2"}}, second[2].Duplicates)
	require.Equal(t, before, dump(ctx, t, c, tag))

	_, err = luatomic.PushAllOnce(ctx, "import-7", batch[:2]...)
	require.ErrorContains(t, err, "used for a batch over 3 queues, not 2; use another token")
	alone, err := q[0].PushOnce(ctx, "import-7", luatomic.Job{})
	require.NoError(t, err)
	require.Equal(t, 1, alone.Ready, "the token of a batch is not one of its queues'")
}

func TestPushAllRefusesBeforeAnyIO(t *testing.T) {
	t.Parallel()
	dead := func() *redis.Client { return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1}) }
	c, other := dead(), dead()
	defer c.Close()
	defer other.Close()
	onTag := func(c lua.Client, name, prefix, tag string) luatomic.QueueJobs {
		q, err := luatomic.NewQueue(c, name, &luatomic.QueueOptions{Prefix: prefix, Tag: tag})
		require.NoError(t, err)
		return luatomic.QueueJobs{Queue: q, Jobs: bodies(1)}
	}
	with := func(p luatomic.QueueJobs, jobs ...luatomic.Job) luatomic.QueueJobs {
		p.Jobs = jobs
		return p
	}
	a, b := onTag(c, "a", "", "t"), onTag(c, "b", "", "t")
	many := make([]luatomic.QueueJobs, luatomic.MaxBatchQueues+1)
	for name, tc := range map[string]struct {
		batch []luatomic.QueueJobs
		want  error
		text  string
	}{
		"tags":       {[]luatomic.QueueJobs{a, onTag(c, "b", "", "")}, lua.ErrCrossSlot, `have the tags "t" and "b"; give them one QueueOptions.Tag`},
		"prefixes":   {[]luatomic.QueueJobs{a, onTag(c, "b", "p:", "t")}, nil, `have the prefixes "" and "p:"; give them one`},
		"clients":    {[]luatomic.QueueJobs{a, onTag(other, "b", "", "t")}, nil, "have different clients; make them with one"},
		"twice":      {[]luatomic.QueueJobs{a, b, onTag(c, "a", "", "t")}, nil, `queue "a" is there twice; put its jobs into one part`},
		"no queue":   {[]luatomic.QueueJobs{a, {}}, nil, "part 1 has no queue"},
		"queues":     {many, lua.ErrTooLarge, "65 items, at most 64"},
		"jobs":       {[]luatomic.QueueJobs{with(a, bodies(600)...), with(b, bodies(401)...)}, lua.ErrTooLarge, "1001 items, at most 1000"},
		"bytes":      {[]luatomic.QueueJobs{with(a, luatomic.Job{Body: make([]byte, 600_000)}), with(b, luatomic.Job{Body: make([]byte, 600_000)})}, lua.ErrTooLarge, "at most 1048576 in one call"},
		"a bad job":  {[]luatomic.QueueJobs{a, with(b, luatomic.Job{}, luatomic.Job{Delay: -1})}, lua.ErrOutOfRange, `queue "b": job 1: `},
		"cured ones": {[]luatomic.QueueJobs{with(a), with(b)}, nil, ""},
	} {
		out, err := luatomic.PushAll(t.Context(), tc.batch...)
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
	_, err := luatomic.PushAllOnce(t.Context(), "", a)
	require.ErrorIs(t, err, lua.ErrBadName)
	_, err = luatomic.NewQueue(c, "a", &luatomic.QueueOptions{Tag: "{"})
	require.ErrorIs(t, err, lua.ErrBadName)
	_, err = luatomic.NewShards(c, "a", 2, &luatomic.QueueOptions{Tag: "t"})
	require.ErrorContains(t, err, "leave QueueOptions.Tag empty")
}

// A key of the wrong type in the second queue is found before the first one is written:
// a large body would change the form of its hash for good, and no undo mends that.
func TestPushAllReadsAllKeysFirst(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	for _, suffix := range []string{"b", "ux", "r", "s", "l", "c", "w"} {
		tag := luatomictest.Namespace(t)
		q := tagged(t, c, tag, 2)
		push(t, q[0], luatomic.Job{ID: "there", Body: []byte("small")})
		require.NoError(t, c.Set(ctx, "{"+tag+"}{b}:"+suffix, "x", 0).Err())
		before := dump(ctx, t, c, tag)
		_, err := luatomic.PushAll(ctx, luatomic.QueueJobs{Queue: q[0], Jobs: []luatomic.Job{{Body: make([]byte, 100)}}},
			luatomic.QueueJobs{Queue: q[1], Jobs: []luatomic.Job{{Unique: "u"}, {Delay: time.Hour}}})
		require.ErrorIs(t, err, lua.ErrWrongType, suffix)
		require.Equal(t, before, dump(ctx, t, c, tag), suffix)
	}
}

// The guard is the look at the end of a hold.
func TestPushAllFindsAHoldOver(t *testing.T) {
	t.Parallel()
	q, _ := newQueue(t, nil)
	push(t, q, luatomic.Job{ID: "first", Unique: "u", UniqueTTL: 20 * time.Millisecond})
	second := luatomic.QueueJobs{Queue: q, Jobs: []luatomic.Job{{ID: "second", Unique: "u"}}}
	luatomictest.Eventually(t, 5*time.Second, "the hold ends", func() bool { return pushAll(t, second)[0].Ready == 1 })
	second.Jobs[0].ID = "third"
	require.Equal(t, []luatomic.Duplicate{{ID: "second"}}, pushAll(t, second)[0].Duplicates)
}

// What is left of a cancelled job when an error came half-way is its mark. A new job of
// that id is refused while it is there: the old entry would take it along.
func TestPushRefusesAnIDWhoseMarkIsLeft(t *testing.T) {
	t.Parallel()
	q, c := newQueue(t, nil)
	require.NoError(t, c.HSet(t.Context(), key(q, "n"), "marked", "x", "failed", "3").Err())
	marked, failed := luatomic.Job{ID: "marked"}, luatomic.Job{ID: "failed"}
	known := []luatomic.Duplicate{{ID: "marked"}}
	require.Equal(t, known, push(t, q, marked).Duplicates)
	require.Equal(t, known, push(t, q, marked, luatomic.Job{ID: "other"}).Duplicates)
	require.Equal(t, known, pushAll(t, luatomic.QueueJobs{Queue: q, Jobs: []luatomic.Job{marked}})[0].Duplicates)
	require.Equal(t, 1, push(t, q, failed).Ready, "a count alone is no mark")
}

func TestPushAllWakesAConsumerOfEachQueue(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, tag := luatomictest.Client(t), luatomictest.Namespace(t)
	q, got := tagged(t, c, tag, 3), make(chan string, 10)
	ended := make(chan error, len(q))
	for _, one := range q {
		go func() {
			_, err := one.Consume(ctx, &luatomic.ConsumeOptions{Concurrency: 1, Idle: time.Hour}, func(_ context.Context, d *luatomic.Delivery) error {
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
	parts := func(ids string, delays ...time.Duration) (out []luatomic.QueueJobs) {
		for i, d := range delays {
			out = append(out, luatomic.QueueJobs{Queue: q[i], Jobs: []luatomic.Job{{ID: ids, Delay: d}}})
		}
		return out
	}
	// Behind an earliest time that all know of, it is the earliest of the new ones that counts.
	for _, one := range q {
		push(t, one, luatomic.Job{Delay: time.Hour})
	}
	first := parts("first", 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
	for i := range first {
		first[i].Jobs = append(first[i].Jobs, luatomic.Job{Delay: 2 * time.Hour})
	}
	for name, batch := range map[string][]luatomic.QueueJobs{
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
				t.Fatalf("%s: woken were only %v", name, seen)
			}
		}
		require.Equal(t, map[string]bool{"a" + name: true, "b" + name: true, "c" + name: true}, seen)
	}
}

// Queues of a tag work as any other, on whichever node the tag is; and the server agrees
// that a batch over them stays in one slot.
func TestPushAllOnACluster(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartCluster(t).Client()
	for i := range 6 {
		q := tagged(t, c, fmt.Sprint("tag", i), luatomic.MaxBatchQueues)
		batch := make([]luatomic.QueueJobs, len(q))
		for n := range q {
			batch[n] = luatomic.QueueJobs{Queue: q[n], Jobs: []luatomic.Job{{ID: "now", Unique: "u"}, {Delay: time.Millisecond}}}
		}
		for n, out := range pushAll(t, batch...) {
			require.Equal(t, 1, out.Ready)
			require.Equal(t, 1, out.Scheduled)
			worked, err := q[n].Consume(ctx, &luatomic.ConsumeOptions{Drain: true}, func(context.Context, *luatomic.Delivery) error { return nil })
			require.NoError(t, err)
			require.Equal(t, 2, worked.Acked)
			report, err := q[n].Audit(ctx, false)
			require.NoError(t, err)
			require.True(t, report.OK(), "%+v", report)
		}
	}
}

// Under a lease on the tag, a batch goes in while the lease is held and not after.
func TestPushAllUnderALease(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	lease, err := luatomic.NewLocker(c, nil).Try(ctx, tag)
	require.NoError(t, err)
	q := tagged(t, lua.Guard(c, lease), tag, 2)
	batch := []luatomic.QueueJobs{{Queue: q[0], Jobs: bodies(1)}, {Queue: q[1], Jobs: bodies(1)}}
	for _, out := range pushAll(t, batch...) {
		require.Equal(t, 1, out.Ready)
	}
	require.NoError(t, lease.Release(ctx))
	_, err = luatomic.PushAll(ctx, batch...)
	require.ErrorIs(t, err, lua.ErrFenced)
	require.Equal(t, int64(1), c.LLen(ctx, "{"+tag+"}{a}:r").Val())
}
