package redisinaction_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestPollQueueMovesWhatIsDue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Zero(t, out.Moved)
	_, more := out.NextDue.Get()
	require.False(t, more)

	now := r.Time(ctx).Val()
	score := func(d time.Duration) float64 { return float64(now.Add(d).UnixMicro()) / 1e6 }
	other := `["b", "other\/queue", "x",[ {"a":NaN} ]]`
	anonymous := `["", "q", "x", []]` // of a program that makes no ids
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:",
		redis.Z{Score: 2, Member: item("two")}, redis.Z{Score: 1, Member: item("one")},
		redis.Z{Score: math.Inf(-1), Member: item("zero")},
		redis.Z{Score: 3, Member: anonymous}, redis.Z{Score: 1.5, Member: other},
		redis.Z{Score: score(time.Hour), Member: item("later")}).Err())
	out, err = c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 5, out.Moved)
	require.Empty(t, out.Malformed)
	next, ok := out.NextDue.Get()
	require.True(t, ok)
	require.WithinDuration(t, now.Add(time.Hour), next, 2*time.Microsecond)
	require.WithinDuration(t, now, out.Now, time.Minute)
	require.Equal(t, []string{item("zero"), item("one"), item("two"), anonymous},
		r.LRange(ctx, prefix+"queue:q", 0, -1).Val())
	require.Equal(t, []string{other}, r.LRange(ctx, prefix+"queue:other/queue", 0, -1).Val(), "its bytes are its own")
	require.Equal(t, []string{item("later")}, r.ZRange(ctx, prefix+"delayed:", 0, -1).Val())
}

// Never early by the server's clock: at the exact time of the score and after it.
func TestPollQueueIsNeverEarly(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	_, err := c.ExecuteLater(ctx, "q", "n", nil, 20*time.Millisecond)
	require.NoError(t, err)
	due := r.ZRangeWithScores(ctx, prefix+"delayed:", 0, 0).Val()[0].Score
	for {
		out, err := c.PollQueue(ctx)
		require.NoError(t, err)
		require.Equal(t, float64(out.Now.UnixMicro())/1e6 >= due,
			out.Moved == 1 || r.ZCard(ctx, prefix+"delayed:").Val() == 0)
		if out.Moved == 1 {
			return
		}
	}
}

// A poll moves at most MaxBatch items, in several steps, and reports that more are due.
func TestPollQueueMovesABatch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	const n = redisinaction.MaxBatch + 300
	var zs []redis.Z
	for i := range n {
		zs = append(zs, redis.Z{Score: float64(i), Member: fmt.Sprintf(`["%d", "q%d", "n", []]`, i, i%600)})
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", zs...).Err())
	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, redisinaction.MaxBatch, out.Moved)
	next, ok := out.NextDue.Get()
	require.True(t, ok)
	require.False(t, next.After(out.Now), "more is due")
	out, err = c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 300, out.Moved)
	require.Equal(t, []string{zs[5].Member.(string), zs[605].Member.(string), zs[1205].Member.(string)},
		r.LRange(ctx, prefix+"queue:q5", 0, -1).Val())
}

// A poll moves no more than MaxBatch items where their bytes make its steps shorter than 500.
func TestPollQueueMovesABatchOfLongerItems(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	var zs []redis.Z
	for i := range redisinaction.MaxBatch + 300 {
		body := fmt.Sprintf(`["%d", "q", "n", ["%s"]]`, i, strings.Repeat("x", 1300))
		zs = append(zs, redis.Z{Score: float64(i), Member: body})
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", zs...).Err())
	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, redisinaction.MaxBatch, out.Moved)
}

// Large items move in steps of their own; one item may be larger than a batch.
func TestPollQueueMovesLargeItems(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	for i := range 5 {
		body := fmt.Sprintf(`["%d", "q", "n", ["%s"]]`, i, strings.Repeat("x", 1<<21))
		require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: 1, Member: body}).Err())
	}
	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 5, out.Moved)
	require.EqualValues(t, 5, r.LLen(ctx, prefix+"queue:q").Val())
}

// Malformed items at the head, an empty one among them, block nothing.
func TestMalformedItemsAreQuarantined(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	want := append([]string{`["name", []]`}, malformedItems...)
	for i, text := range want {
		require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: float64(i), Member: text}).Err())
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: 1000, Member: item("good")}).Err())
	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, out.Moved)
	require.Len(t, out.Malformed, len(want))
	for i, m := range out.Malformed {
		require.Equal(t, want[i], string(m.Raw))
		require.ErrorIs(t, m.Reason, redisinaction.ErrMalformed)
	}
	require.Equal(t, want, r.LRange(ctx, prefix+"malformed:", 0, -1).Val())
	require.Equal(t, []string{item("good")}, r.LRange(ctx, prefix+"queue:q", 0, -1).Val())
	require.Zero(t, r.Exists(ctx, prefix+"delayed:").Val())
}

func TestForeignScoresAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	nanos := redis.Z{Score: float64(time.Now().UnixNano()),
		Member: `{"Identifier":"i","Queue":"q","Name":"n","Args":["a"]}`}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", nanos, redis.Z{Score: math.Inf(1), Member: "never"},
		redis.Z{Score: 1, Member: item("good")}).Err())
	out, err := c.PollQueue(ctx)
	require.ErrorIs(t, err, redisinaction.ErrForeignScore)
	require.ErrorContains(t, err, "2 items of")
	require.ErrorContains(t, err, "Go port of the book's code")
	require.Equal(t, 1, out.Moved, "the others are still moved")
	_, next := out.NextDue.Get()
	require.False(t, next)
	require.EqualValues(t, 2, r.ZCard(ctx, prefix+"delayed:").Val())

	require.NoError(t, r.Del(ctx, prefix+"delayed:").Err())
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: 1e11, Member: item("5138")}).Err())
	_, err = c.PollQueue(ctx)
	require.NoError(t, err)
}

// A queue whose key is not a list delays its own items, however many, and no others.
func TestAQueueThatRefusesItemsBlocksNoOther(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, r, prefix := own(t)
	require.NoError(t, r.Set(ctx, prefix+"queue:bad", "no list", 0).Err())
	for i := range 1200 {
		bad := redis.Z{Score: float64(i), Member: fmt.Sprintf(`["%d", "bad", "n", []]`, i)}
		require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", bad).Err())
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:",
		redis.Z{Score: 700, Member: "malformed"}, redis.Z{Score: 2000, Member: item("good")}).Err())
	out, err := c.PollQueue(ctx)
	require.ErrorIs(t, err, redisinaction.ErrQueueRefused)
	require.ErrorContains(t, err, `queue:bad" is not a list`)
	require.ErrorContains(t, err, "1200 items")
	require.Equal(t, 1, out.Moved)
	require.Len(t, out.Malformed, 1)
	require.EqualValues(t, 1200, r.ZCard(ctx, prefix+"delayed:").Val())

	require.NoError(t, r.Del(ctx, prefix+"queue:bad").Err())
	require.NoError(t, r.Set(ctx, prefix+"malformed:2", "", 0).Err())
	for moved := 0; moved < 1200; {
		out, err = c.PollQueue(ctx)
		require.NoError(t, err)
		moved += out.Moved
	}
	require.EqualValues(t, 1200, r.LLen(ctx, prefix+"queue:bad").Val())
}

// between runs a change between the read of a poll and its move.
type between struct {
	redis.UniversalClient
	once   sync.Once
	change func()
}

func (b *between) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		b.once.Do(b.change)
	}
	return b.UniversalClient.Process(ctx, cmd)
}

// An item that is rescheduled, or moved by another poller, between the read and the move is left alone.
func TestPollQueueMovesOnlyWhatItRead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, r, prefix := own(t)
	delayed := prefix + "delayed:"
	require.NoError(t, r.ZAdd(ctx, delayed, redis.Z{Score: 1, Member: item("moved")},
		redis.Z{Score: 2, Member: item("put off")}, redis.Z{Score: 3, Member: item("here")}).Err())
	b := &between{UniversalClient: r, change: func() {
		require.NoError(t, r.ZRem(ctx, delayed, item("moved")).Err())
		require.NoError(t, r.ZAdd(ctx, delayed, redis.Z{Score: 4e9, Member: item("put off")}).Err())
	}}
	out, err := redisinaction.New(b, &redisinaction.Options{Prefix: prefix}).PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, out.Moved)
	require.Equal(t, []string{item("here")}, r.LRange(ctx, prefix+"queue:q", 0, -1).Val())
	require.Equal(t, []string{item("put off")}, r.ZRange(ctx, delayed, 0, -1).Val())
}

// Pollers that run at the same time move each item once.
func TestPollersMoveEachItemOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, r, prefix := own(t)
	const n = 3000
	var moved atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p := c.NewPoller(&redisinaction.PollerOptions{OnPoll: func(p redisinaction.Polled) {
				moved.Add(int64(p.Moved))
			}})
			if err := p.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for i := range n / 100 {
		tasks := make([]redisinaction.Task, 100)
		for j := range tasks {
			tasks[j] = redisinaction.Task{Name: "n", Delay: time.Duration(i*100+j) * 50 * time.Microsecond}
		}
		_, err := c.ExecuteAll(ctx, "q", tasks...)
		require.NoError(t, err)
	}
	luatomictest.Eventually(t, 60*time.Second, "all moves are reported", func() bool { return moved.Load() >= n-1 })
	cancel()
	wg.Wait()
	require.EqualValues(t, n-1, moved.Load(), "the task without a delay needs no poller")
	seen := make(map[string]bool)
	for _, text := range r.LRange(t.Context(), prefix+"queue:q", 0, -1).Val() {
		require.False(t, seen[text])
		seen[text] = true
	}
	require.Len(t, seen, n)
}

// Lasting errors are reported once, others each time.
func TestPollerReportsErrors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, r, prefix := own(t)
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: 1e18, Member: "x"}).Err())
	errs := make(chan error, 100)
	p := c.NewPoller(&redisinaction.PollerOptions{Idle: time.Microsecond, OnError: func(err error) { errs <- err }})
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	require.ErrorIs(t, <-errs, redisinaction.ErrForeignScore)
	_, err := c.ExecuteLater(ctx, "q", "n", nil, time.Millisecond)
	require.NoError(t, err)
	luatomictest.Eventually(t, 30*time.Second, "it goes on", func() bool {
		return r.LLen(ctx, prefix+"queue:q").Val() == 1
	})
	require.Empty(t, errs)
	require.NoError(t, r.Del(ctx, prefix+"delayed:").Err())
	require.NoError(t, r.Set(ctx, prefix+"delayed:", "no zset", 0).Err())
	for range 2 {
		require.ErrorContains(t, <-errs, "WRONGTYPE")
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A user that may add but not remove gets the error before anything is added: otherwise each poll would add the items
// again.
func TestPollQueueAddsNothingItMayNotRemove(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	r := server.Client()
	require.NoError(t, r.ZAdd(ctx, "delayed:",
		redis.Z{Score: 1, Member: item("a")}, redis.Z{Score: 4e9, Member: ""}).Err())
	_, err := redisinaction.New(r, nil).PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{""}, r.ZRange(ctx, "delayed:", 0, -1).Val(),
		"an item that is not due stays, whatever its bytes")
	require.NoError(t, r.Del(ctx, "delayed:", "queue:q").Err())

	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "adder", "on", ">secret", "~*", "+@all", "-zrem").Err())
	require.NoError(t, r.ZAdd(ctx, "delayed:", redis.Z{Score: 1, Member: item("a")}).Err())
	adder := server.Client(func(o *redis.Options) { o.Username, o.Password = "adder", "secret" })
	_, err = redisinaction.New(adder, nil).PollQueue(ctx)
	require.ErrorContains(t, err, "move_due") // the text differs by version
	require.Zero(t, r.Exists(ctx, "queue:q").Val())
}

// Items that their queue refuses are read at each poll. Where they are many, the server does not spend its time on
// that until an operator comes.
func TestAPollerRestsBesideManyItemsThatAreRefused(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	_, r, prefix := own(t)
	require.NoError(t, r.Set(ctx, prefix+"queue:q", "x", 0).Err())
	stuck := make([]redis.Z, 11_000)
	for i := range stuck {
		stuck[i] = redis.Z{Score: float64(i), Member: item(fmt.Sprint(i))}
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", stuck...).Err())
	counted := luatomictest.Client(t)
	polls, start := 0, time.Now()
	var busy time.Duration
	for _, sha := range []string{lab.Digest(&script.DueScript), lab.Digest(&script.MoveDueScript)} {
		counted.AddHook(&lab.Around{Sha: sha, Do: func(run func() error) error {
			began := time.Now()
			defer func() { busy += time.Since(began) }()
			return run()
		}})
	}
	counted.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if args := cmds[0].Args(); lab.OfScript(cmds[0], lab.Digest(&script.DueScript)) &&
			fmt.Sprint(reflect.Indirect(reflect.ValueOf(args[4]))) == "0" { // the first step of a poll
			if polls++; polls == 6 {
				cancel()
			}
		}
	}))
	c := redisinaction.New(counted, &redisinaction.Options{Prefix: prefix})
	require.ErrorIs(t, c.NewPoller(nil).Run(ctx), context.Canceled)
	require.Less(t, 3*busy, time.Since(start))
}

// However many items are refused, those behind them are moved, one poll after the other.
func TestManyRefusedItemsHoldUpNoOthers(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(bounded(t), time.Minute)
	defer cancel()
	c, r, prefix := own(t)
	require.NoError(t, r.Set(ctx, prefix+"queue:bad", "x", 0).Err())
	stuck := make([]redis.Z, 22_000)
	for i := range stuck {
		stuck[i] = redis.Z{Score: float64(i), Member: fmt.Sprintf(`["%d", "bad", "n", []]`, i)}
	}
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", stuck...).Err())
	require.NoError(t, r.ZAdd(ctx, prefix+"delayed:", redis.Z{Score: 30_000, Member: item("good")}).Err())
	moved := 0
	p := c.NewPoller(&redisinaction.PollerOptions{OnPoll: func(out redisinaction.Polled) {
		if moved += out.Moved; moved == 1 {
			require.EqualValues(t, 1, r.LLen(ctx, prefix+"queue:q").Val())
			require.NoError(t, r.Del(ctx, prefix+"queue:bad").Err())
		} else if moved == 22_001 {
			cancel()
		}
	}})
	require.ErrorIs(t, p.Run(ctx), context.Canceled)
	require.EqualValues(t, 22_000, r.LLen(t.Context(), prefix+"queue:bad").Val())
}
