package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Jobs now and later in one call, in any order, each in its own key.
func TestPushMixesNowAndLater(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	at := time.Now().Add(time.Hour)
	pushed, err := q.Push(ctx,
		queue.Job{ID: "later", At: at}, queue.Job{ID: "now"},
		queue.Job{ID: "delayed", Delay: time.Minute}, queue.Job{ID: "past", At: time.Unix(1, 0)},
		queue.Job{ID: "tiny", Delay: time.Nanosecond})
	require.NoError(t, err)
	require.Equal(t, 2, pushed.Ready)
	require.Equal(t, 3, pushed.Scheduled)
	due, err := c.ZRangeWithScores(ctx, lab.Key(q, "s"), 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []redis.Z{
		{Member: "tiny", Score: float64(pushed.Now.UnixMilli() + 2)},
		{Member: "delayed", Score: float64(pushed.Now.UnixMilli() + 60_001)},
		{Member: "later", Score: float64(at.Add(time.Millisecond - 1).UnixMilli())},
	}, due, "delays count from the server's clock; times round up, so nothing is early")
	entries, err := c.LRange(ctx, lab.Key(q, "r"), 0, -1).Result()
	require.NoError(t, err)
	stamp := fmt.Sprint(pushed.Now.UnixMilli())
	require.Equal(t, []string{stamp + ":now", stamp + ":past"}, entries)
}

// The guard is the receipt: without it the second call adds jobs with new ids.
func TestPushOnceAddsNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	jobs := []queue.Job{{ID: "x"}, {ID: "x"}, {Delay: time.Hour}}
	first, err := q.PushOnce(ctx, "import-7", jobs...)
	require.NoError(t, err)
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.NoError(t, q.Ack(ctx, taken.Deliveries...))

	second, err := q.PushOnce(ctx, "import-7", jobs...)
	require.NoError(t, err)
	require.Equal(t, first, second, "the same answer, although the job is finished")
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "x"}}, second.Duplicates)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 0, stats.Ready)
	require.Equal(t, 1, stats.Scheduled)
	require.Equal(t, queue.Job{ID: "x"}, jobs[0], "the caller's jobs are not changed")
}

func TestReceiptExpires(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Receipt: time.Minute})
	_, err := q.PushOnce(ctx, "tok", lab.Bodies(1)...)
	require.NoError(t, err)
	ttl := c.PTTL(ctx, lab.Key(q, "i:tok")).Val()
	require.Greater(t, ttl, 50*time.Second)
	require.LessOrEqual(t, ttl, time.Minute)
}

func TestPushRefusesBeforeAnyIO(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)

	pushed, err := q.Push(ctx)
	require.NoError(t, err, "no jobs, no I/O")
	require.Zero(t, pushed)
	require.NoError(t, q.Ack(ctx))

	for name, tc := range map[string]struct {
		jobs []queue.Job
		want error
		text string
	}{
		"too many": {lab.Bodies(queue.MaxBatch + 1), lua.ErrTooLarge, "1001 items, at most 1000"},
		"too many bytes": {[]queue.Job{{Body: make([]byte, queue.MaxBatchBytes)}}, lua.ErrTooLarge,
			"at most 1048576 in one call"},
		"negative delay":   {[]queue.Job{{Delay: -1}}, lua.ErrOutOfRange, "delay"},
		"long id":          {[]queue.Job{{ID: strings.Repeat("x", 129)}}, lua.ErrBadName, "129 bytes, at most 128"},
		"a TTL of no name": {[]queue.Job{{UniqueTTL: time.Hour}}, nil, "UniqueTTL is set and Unique is not; set both"},
		"a negative TTL":   {[]queue.Job{{UniqueTTL: -1}}, lua.ErrOutOfRange, "unique TTL"},
		"two times":        {[]queue.Job{{Delay: 1, At: time.Now()}}, nil, "both At and Delay"},
	} {
		_, err := q.Push(ctx, tc.jobs...)
		require.ErrorContains(t, err, tc.text, name)
		if tc.want != nil {
			require.ErrorIs(t, err, tc.want, name)
		}
	}
}

// A reader sees all jobs of a push or none.
func TestPushIsAllOrNothingToReaders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	q, c := lab.NewQueue(t, nil)
	watched := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if n, err := c.LLen(ctx, lab.Key(q, "r")).Result(); err == nil && n%50 != 0 {
				watched <- fmt.Errorf("saw %d jobs of batches of 50", n)
				return
			}
		}
		watched <- nil
	}()
	for range 100 {
		_, err := q.Push(t.Context(), lab.Bodies(50)...)
		require.NoError(t, err)
	}
	cancel()
	require.NoError(t, <-watched)
}

// One plain job takes the fast path of the script, with the same result.
func TestPushOfOneJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	first, err := q.PushOnce(ctx, "token", queue.Job{ID: "a", Body: []byte("A")})
	require.NoError(t, err)
	require.Equal(t, queue.Pushed{IDs: []string{"a"}, Ready: 1, Now: first.Now}, first)
	require.Equal(t, []queue.Duplicate{{ID: "a"}}, lab.Push(t, q, queue.Job{ID: "a", Body: []byte("B")}).Duplicates)
	d := lab.TakeOne(t, q)
	require.Equal(t, []byte("A"), d.Body)
	require.Equal(t, first.Now, d.EnqueuedAt)
	require.NoError(t, d.Ack(ctx))
	again, err := q.PushOnce(ctx, "token", queue.Job{ID: "a", Body: []byte("A")})
	require.NoError(t, err)
	require.Equal(t, first, again, "the receipt outlives the job")
	ttl := c.PTTL(ctx, lab.Key(q, "i:token")).Val()
	require.Greater(t, ttl, 9*time.Minute)
	require.NoError(t, q.SetLimit(ctx, 1))
	lab.Push(t, q, queue.Job{})
	_, err = q.Push(ctx, queue.Job{})
	require.ErrorIs(t, err, queue.ErrFull)
	require.Equal(t, int64(1), c.LLen(ctx, lab.Key(q, "r")).Val())
}

func TestPushSeqSplitsByCountAndBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	total, calls := 0, 0
	for out, err := range q.PushSeq(ctx, slices.Values(lab.Bodies(2500))) {
		require.NoError(t, err)
		total, calls = total+out.Ready, calls+1
	}
	require.Equal(t, 2500, total)
	require.Equal(t, 3, calls)

	calls = 0
	big := queue.Job{Body: make([]byte, 400_000)}
	for _, err := range q.PushSeq(ctx, slices.Values([]queue.Job{big, big, big, big, big})) {
		require.NoError(t, err)
		calls++
	}
	require.Equal(t, 3, calls)

	var last error
	for _, err := range q.PushSeq(ctx, slices.Values([]queue.Job{{Delay: -1}})) {
		last = err
	}
	require.ErrorIs(t, last, lua.ErrOutOfRange)
}

// PushSeq splits by size, however long the names of the keys are.
func TestPushSeqLeavesRoomForLongNames(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	name := luatomictest.Namespace(t)
	pad := func(s string) string { return s + strings.Repeat("x", 128-len(s)) }
	q, err := queue.New(c, pad(name), &queue.Options{Prefix: pad("p"), Tag: pad("t")})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := q.Cancel(context.Background(), "a", "b")
		require.NoError(t, err)
		_, err = q.Take(context.Background(), 2)
		require.NoError(t, err)
	})
	half := make([]byte, queue.MaxBatchBytes/2-700)
	n := 0
	for out, err := range q.PushSeq(t.Context(), func(yield func(queue.Job) bool) {
		_ = yield(queue.Job{ID: "a", Body: half}) && yield(queue.Job{ID: "b", Body: half})
	}) {
		require.NoError(t, err)
		n += out.Ready
	}
	require.Equal(t, 2, n)
}

// A cancel that failed half-way leaves the mark of the job. A new job of that id is refused while the mark exists:
// the old entry would deliver it.
func TestPushRefusesAnIDWhoseMarkIsLeft(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.HSet(t.Context(), lab.Key(q, "n"), "marked", "x", "failed", "3").Err())
	marked, failed := queue.Job{ID: "marked"}, queue.Job{ID: "failed"}
	known := []queue.Duplicate{{ID: "marked"}}
	require.Equal(t, known, lab.Push(t, q, marked).Duplicates)
	require.Equal(t, known, lab.Push(t, q, marked, queue.Job{ID: "other"}).Duplicates)
	require.Equal(t, known, pushAll(t, queue.Batch{Queue: q, Jobs: []queue.Job{marked}})[0].Duplicates)
	require.Equal(t, 1, lab.Push(t, q, failed).Ready, "a count alone is no mark")
}

func TestPushOnceRepeatsDuplicatesOfUniqueNames(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	jobs := []queue.Job{{ID: "a 1:2", Unique: "u"}, {ID: "b", Unique: "u"}, {ID: "a 1:2"}}
	first, err := q.PushOnce(t.Context(), "t", jobs...)
	require.NoError(t, err)
	second, err := q.PushOnce(t.Context(), "t", jobs...)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, []queue.Duplicate{{Position: 1, ID: "a 1:2"}, {Position: 2, ID: "a 1:2"}}, first.Duplicates)
}

// A repeat under a token returns the ids of the jobs that the first call added, also where the caller chose none.
func TestPushOnceRepeatsTheIDs(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	first, err := q.PushOnce(t.Context(), "token", lab.Bodies(3)...)
	require.NoError(t, err)
	again, err := q.PushOnce(t.Context(), "token", lab.Bodies(3)...)
	require.NoError(t, err)
	require.Equal(t, first, again)
	taken, err := q.Take(t.Context(), 5)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 3)
	for i, d := range taken.Deliveries {
		require.Equal(t, first.IDs[i], d.ID)
	}
}
