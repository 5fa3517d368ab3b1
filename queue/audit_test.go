package queue_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func audit(t *testing.T, q *queue.Queue, repair bool) queue.Audited {
	t.Helper()
	out, err := q.Audit(t.Context(), repair)
	require.NoError(t, err)
	return out
}

// everywhere fills a queue with jobs in every state, named after it. Each but the dead one holds a unique name. The
// cancelled job is in ready.
func everywhere(t *testing.T, q *queue.Queue) {
	t.Helper()
	ctx := t.Context()
	job := func(id string, delay time.Duration) queue.Job {
		return queue.Job{ID: id, Body: []byte("body"), Unique: "of " + id, Delay: delay}
	}
	lab.Push(t, q, job("leased", 0), job("dead", 0))
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, taken.Deliveries[1].Bury(ctx, "why"))
	lab.Push(t, q, job("failed", 0))
	require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "why"))
	lab.Push(t, q, job("ready", 0), job("cancelled", 0), job("scheduled", time.Hour))
	_, err = q.Cancel(ctx, "cancelled")
	require.NoError(t, err)
}

func TestAuditOfAHealthyQueueChangesNothing(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.Equal(t, queue.Audited{}, audit(t, q, true), "no queue at all")
	everywhere(t, q)
	before := lab.Dump(t.Context(), t, c, q.Name())
	for _, repair := range []bool{false, true} {
		out := audit(t, q, repair)
		require.Equal(t, queue.Audited{Checked: 6}, out)
		require.True(t, out.OK())
	}
	require.Equal(t, before, lab.Dump(t.Context(), t, c, q.Name()))
}

// An audit reports each kind of damage and changes nothing, then repairs it. Then nothing is left to find, and
// every job with a body is delivered.
func TestAuditFindsAndRepairs(t *testing.T) {
	t.Parallel()
	none := []string(nil)
	del := func(suffix string) func(context.Context, *redis.Client, *queue.Queue) {
		return func(ctx context.Context, c *redis.Client, q *queue.Queue) { c.Del(ctx, lab.Key(q, suffix)) }
	}
	for name, test := range map[string]struct {
		damage func(context.Context, *redis.Client, *queue.Queue)
		want   queue.Audited
		jobs   []string // that are delivered in the end
	}{
		"ready deleted": {del("r"), queue.Audited{Checked: 6, Lost: []string{"failed", "ready"}, StaleCounts: 1,
			Repaired: 3},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"entry without a stamp": {func(ctx context.Context, c *redis.Client, q *queue.Queue) { // a take drops it
			for _, entry := range c.LRange(ctx, lab.Key(q, "r"), 0, -1).Val() {
				if strings.HasSuffix(entry, ":ready") {
					c.LRem(ctx, lab.Key(q, "r"), 1, entry)
				}
			}
			c.RPush(ctx, lab.Key(q, "r"), "job:ready")
		}, queue.Audited{Checked: 6, Lost: []string{"ready"}, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"scheduled deleted": {del("s"), queue.Audited{Checked: 6, Lost: []string{"scheduled"}, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"leases deleted": {del("l"), queue.Audited{Checked: 6, Lost: []string{"leased"}, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"dead deleted": {del("d"), queue.Audited{Checked: 6, Lost: []string{"dead"}, DeadBytes: -4, Repaired: 2},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"bodies deleted": {del("b"), queue.Audited{StaleNames: 5, StaleCounts: 2, DeadBytes: -4, Repaired: 14,
			Ghosts: []string{"dead", "leased", "scheduled", "cancelled", "failed", "ready"}},
			none},
		"one body deleted": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HDel(ctx, lab.Key(q, "b"), "scheduled")
		},
			queue.Audited{Checked: 5, Ghosts: []string{"scheduled"}, StaleNames: 1, Repaired: 2},
			[]string{"dead", "failed", "leased", "ready"}},
		"the body of a ready job deleted": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HDel(ctx, lab.Key(q, "b"), "ready")
		}, queue.Audited{Checked: 5, Ghosts: []string{"ready"}, StaleNames: 1, Repaired: 2},
			[]string{"dead", "failed", "leased", "scheduled"}},
		"settings deleted": {del("c"), queue.Audited{Checked: 6, DeadBytes: 4, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"dead_bytes is below zero": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HSet(ctx, lab.Key(q, "c"), "dead_bytes", -6)
		},
			queue.Audited{Checked: 6, DeadBytes: 10, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"dead_bytes is no number": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HSet(ctx, lab.Key(q, "c"), "dead_bytes", "x")
		},
			queue.Audited{Checked: 6, DeadBytes: 5, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"halves of a hold": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HSet(ctx, lab.Key(q, "u"), "k:x", "deleted", "k:y", "deleted", "j:deleted 2", "z")
			c.ZAdd(ctx, lab.Key(q, "ux"), redis.Z{Score: lab.Future, Member: "x"})
		}, queue.Audited{Checked: 6, StaleNames: 3, Repaired: 3},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"the names of jobs deleted": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HDel(ctx, lab.Key(q, "u"), "j:ready", "j:leased", "j:scheduled", "j:failed")
		}, queue.Audited{Checked: 6, StaleNames: 4, Repaired: 4},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"the holders of names deleted": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HDel(ctx, lab.Key(q, "u"), "k:of ready", "k:of leased", "k:of scheduled", "k:of failed")
		}, queue.Audited{Checked: 6, StaleNames: 4, Repaired: 4},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"the holder of a name of two jobs deleted": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HSet(ctx, lab.Key(q, "u"), "j:failed", "of ready")
			c.HDel(ctx, lab.Key(q, "u"), "k:of ready")
		}, queue.Audited{Checked: 6, StaleNames: 2, Repaired: 2},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
		"a job with another name": {func(ctx context.Context, c *redis.Client, q *queue.Queue) {
			c.HSet(ctx, lab.Key(q, "u"), "k:other", "ready")
			c.ZAdd(ctx, lab.Key(q, "ux"), redis.Z{Score: lab.Future, Member: "other"})
		}, queue.Audited{Checked: 6, StaleNames: 1, Repaired: 1},
			[]string{"dead", "failed", "leased", "ready", "scheduled"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, nil)
			everywhere(t, q)
			test.damage(ctx, c, q)
			test.want.LostTotal, test.want.GhostTotal = len(test.want.Lost), len(test.want.Ghosts)

			before := lab.Dump(ctx, t, c, q.Name())
			found, want := audit(t, q, false), test.want
			want.Repaired = 0
			require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "an audit without repair changes nothing")
			require.Equal(t, want, found)
			require.False(t, found.OK())
			require.Equal(t, test.want, audit(t, q, true))
			again := audit(t, q, true)
			require.Equal(t, queue.Audited{Checked: again.Checked}, again, "all is repaired")
			require.ElementsMatch(t, test.jobs, empty(t, q))
			require.Zero(t, c.Exists(ctx, lab.Key(q, "b"), lab.Key(q, "n"), lab.Key(q, "u"), lab.Key(q, "ux"),
				lab.Key(q, "r"), lab.Key(q, "s"), lab.Key(q, "l"), lab.Key(q, "d")).Val())
		})
	}
}

// Where no job is dead, a size that is no number is found too.
func TestAuditRepairsTheSizeOfAnEmptyDeadSet(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	for _, text := range []string{"x", "", "1e3", "00", "99999999999999999999"} {
		require.NoError(t, c.HSet(t.Context(), lab.Key(q, "c"), "dead_bytes", text).Err())
		_, err := q.Stats(t.Context())
		require.NoError(t, err, text)
		require.Equal(t, queue.Audited{DeadBytes: 1, Repaired: 1}, audit(t, q, true), text)
		require.Zero(t, c.Exists(t.Context(), lab.Key(q, "c")).Val(), text)
	}
}

// empty finishes every job of the queue, in whatever state, and returns their ids.
func empty(t *testing.T, q *queue.Queue) []string {
	t.Helper()
	ctx := t.Context()
	c := luatomictest.Client(t)
	_, err := q.Requeue(ctx)
	require.NoError(t, err)
	for _, set := range []string{"s", "l"} { // all jobs are due, every lease has ended
		for _, id := range c.ZRange(ctx, lab.Key(q, set), 0, -1).Val() {
			c.ZAdd(ctx, lab.Key(q, set), redis.Z{Score: lab.Past, Member: id})
		}
	}
	var mu sync.Mutex
	var ids []string
	_, err = q.Consume(ctx, &queue.ConsumeOptions{Drain: true}, func(_ context.Context, d *queue.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, d.ID)
		return nil
	})
	require.NoError(t, err)
	return ids
}

// On a busy queue an audit takes no job for lost, so a repair delivers none twice.
func TestAuditOfABusyQueue(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	const producers, batches, size, enough = 2, 30, 50, 6
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var runs, acked, pushed, audits atomic.Int64
	var work, produced sync.WaitGroup
	for range 2 {
		work.Go(func() {
			out, _ := q.Consume(ctx, nil, func(_ context.Context, d *queue.Delivery) error {
				switch n := runs.Add(1); {
				case n%5 == 0:
					return queue.Snooze(0)
				case n%7 == 0:
					return queue.Snooze(time.Millisecond)
				}
				return nil
			})
			acked.Add(int64(out.Acked))
		})
	}
	for range producers {
		produced.Go(func() {
			for i := 0; i < batches || audits.Load() < enough; i++ {
				_, err := q.Push(ctx, lab.Bodies(size)...)
				if !assert.NoError(t, err) {
					return
				}
				pushed.Add(size)
				time.Sleep(10 * time.Millisecond) // spreads the pushes; nothing depends on it
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); produced.Wait() }()
	for busy := true; busy; audits.Add(1) {
		select {
		case <-done:
			busy = false
		default:
		}
		out := audit(t, q, true)
		require.True(t, out.OK(), "%+v", out)
	}
	luatomictest.Eventually(t, 60*time.Second, "all is done", func() bool {
		s := stats(t, q)
		return s.Ready+s.Scheduled+s.Leased == 0
	})
	stop()
	work.Wait()
	require.Equal(t, pushed.Load(), acked.Load())
}
