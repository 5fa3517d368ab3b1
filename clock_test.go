package luatomic_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A job is taken, returned and taken again immediately, with leases of one length: the second lease has another
// fence, and the first worker is refused.
func TestARetakenJobHasAnotherFence(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "j"})
	first := lab.TakeOne(t, q)
	for range 50 {
		require.NoError(t, first.Return(ctx, 0))
		second := lab.TakeOne(t, q)
		require.Greater(t, second.Deadline(), first.Deadline(), "a later lease has a later fence")
		before := lab.Dump(ctx, t, c, q.Name())
		requireRefused(t, first)
		require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "the second lease is unchanged")
		first = second
	}
}

// A stepping clock comes in two forms: the scripts of a real server, whose TIME is shifted, and an imitation whose
// expiry of keys steps too.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	servers := map[string]func(*testing.T) (*redis.Client, func(time.Duration)){
		"scripts of a real server": func(t *testing.T) (*redis.Client, func(time.Duration)) {
			c, clock := luatomictest.Client(t), &shiftedTime{sources: make(map[string]string)}
			for _, s := range scriptcase.AllScripts {
				clock.sources[lab.Digest(s)] = lab.Text(c, s)
			}
			c.AddHook(clock)
			return c, func(d time.Duration) { clock.by.Add(d.Microseconds()) }
		},
		"imitation": func(t *testing.T) (*redis.Client, func(time.Duration)) {
			server, err := launch.StartEmbedded()
			require.NoError(t, err)
			t.Cleanup(server.Close)
			c := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c, server.Step
		},
	}
	for name, open := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, check := range map[string]func(*testing.T, *redis.Client, func(time.Duration)){
				"ahead": stepAhead, "back": stepBack, "to and fro": stepToAndFro,
			} {
				t.Run(kind, func(t *testing.T) {
					t.Parallel()
					c, step := open(t)
					check(t, c, step)
				})
			}
		})
	}
}

const aStep = 10 * time.Second

// steppedQueue returns a queue with a job under a lease shorter than a step, one under a longer one, a job that is
// due within a step, and one that is due later.
func steppedQueue(t *testing.T, c *redis.Client) (short, long *queue.Queue, one, two *queue.Delivery) {
	t.Helper()
	var err error
	name := luatomictest.Namespace(t)
	short, err = queue.New(c, name, &queue.Options{Lease: aStep / 2})
	require.NoError(t, err)
	long, err = queue.New(c, name, &queue.Options{Lease: 2 * aStep})
	require.NoError(t, err)
	lab.Push(t, short, queue.Job{ID: "one"}, queue.Job{ID: "two"}, queue.Job{ID: "soon", Delay: aStep / 2},
		queue.Job{ID: "later", Delay: 2 * aStep})
	return short, long, lab.TakeOne(t, short), lab.TakeOne(t, long)
}

// Forward: leases and jobs whose time is within the step have expired or are due, and no others.
func stepAhead(t *testing.T, c *redis.Client, step func(time.Duration)) {
	ctx := t.Context()
	short, _, stale, two := steppedQueue(t, c)
	step(aStep)
	reclaimed, err := short.Reclaim(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, reclaimed.Returned, "the short lease has expired, the long one has not")
	promoted, err := short.Promote(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, promoted.Moved, "one of the two is due")
	taken, err := short.Take(ctx, 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	again, soon := taken.Deliveries[0], taken.Deliveries[1]
	require.Equal(t, "one", again.ID)
	require.Equal(t, 2, again.Attempt)
	require.Equal(t, "soon", soon.ID)
	requireRefused(t, stale)

	step(-aStep) // and back: every lease lasts longer, and none is another worker's
	requireRefused(t, stale)
	require.NoError(t, short.Ack(ctx, two, again, soon))
	step(3 * aStep)
	require.NoError(t, lab.TakeOne(t, short).Ack(ctx))
	requireEmpty(t, short)
}

// Back: leases last longer by the step and jobs are due later by it. A job that is returned and taken again has
// another fence, although an earlier one.
func stepBack(t *testing.T, c *redis.Client, step func(time.Duration)) {
	ctx := t.Context()
	short, _, stale, two := steppedQueue(t, c)
	step(-aStep)
	reclaimed, err := short.Reclaim(ctx)
	require.NoError(t, err)
	require.Zero(t, reclaimed.Returned+reclaimed.Buried)
	require.Greater(t, reclaimed.NextLapse.Or(time.Time{}).Sub(reclaimed.Now), aStep)
	promoted, err := short.Promote(ctx)
	require.NoError(t, err)
	require.Zero(t, promoted.Moved)
	require.Greater(t, promoted.NextDue.Or(time.Time{}).Sub(promoted.Now), aStep)

	require.NoError(t, stale.Return(ctx, 0), "its lease lasts")
	again := lab.TakeOne(t, short)
	require.Less(t, again.Deadline(), stale.Deadline())
	requireRefused(t, stale)
	require.NoError(t, short.Ack(ctx, again, two))
	step(aStep + aStep/2 + time.Second)
	require.NoError(t, lab.TakeOne(t, short).Ack(ctx), "soon")
	step(2 * aStep)
	require.NoError(t, lab.TakeOne(t, short).Ack(ctx), "later")
	requireEmpty(t, short)
}

// Forward and back, ten times a second, under working consumers: nothing is lost.
func stepToAndFro(t *testing.T, c *redis.Client, step func(time.Duration)) {
	ctx := t.Context()
	q, err := queue.New(c, luatomictest.Namespace(t), &queue.Options{Lease: aStep / 2, MaxFailures: -1})
	require.NoError(t, err)
	jobs := lab.Numbered(300, 0)
	for i := range jobs {
		jobs[i].Delay = time.Duration(i%3) * 100 * time.Millisecond
	}
	lab.Push(t, q, jobs...)
	var mu sync.Mutex
	seen := make(map[string]bool)
	var consumers sync.WaitGroup
	opts := &queue.ConsumeOptions{Concurrency: 3, Drain: true, Idle: 50 * time.Millisecond}
	for range 3 {
		consumers.Go(func() {
			_, err := q.Consume(ctx, opts, func(_ context.Context, d *queue.Delivery) error {
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				seen[d.ID] = true
				return nil
			})
			if err != nil {
				t.Errorf("consume: %v", err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		consumers.Wait()
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			require.Len(t, seen, len(jobs), "every job ran")
			require.Greater(t, i, 2, "the clock stepped meanwhile")
			requireEmpty(t, q)
			return
		case <-tick.C:
			step([]time.Duration{aStep, -aStep, -aStep, aStep}[i%4])
		}
	}
}

// requireRefused requires that no call of a worker with a lost lease changes anything.
func requireRefused(t *testing.T, stale *queue.Delivery) {
	t.Helper()
	ctx := t.Context()
	require.ErrorIs(t, stale.Ack(ctx), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Return(ctx, 0), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Nack(ctx, 0, "late"), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Bury(ctx, "late"), queue.ErrLeaseLost)
	require.ErrorIs(t, stale.Extend(ctx, time.Hour), queue.ErrLeaseLost)
}

func requireEmpty(t *testing.T, q *queue.Queue) {
	t.Helper()
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Ready+s.Scheduled+s.Leased+s.Dead)
}

// shiftedTime runs the scripts of a client with a shifted TIME: it sends the text behind a prefix instead of the
// digest.
type shiftedTime struct {
	by      atomic.Int64 // us
	sources map[string]string
}

const shiftedPrefix = `local redis = (function(real) ` +
	`local function shifted(f) return function(c, ...) local got = f(c, ...) ` +
	`if string.lower(c) ~= 'time' then return got end ` +
	`local us = got[1] * 1000000 + got[2] + %d ` +
	`return {string.format('%%.0f', math.floor(us / 1000000)), string.format('%%.0f', us %% 1000000)} end end ` +
	`return {call = shifted(real.call), pcall = shifted(real.pcall)} end)(redis) `

func (s *shiftedTime) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *shiftedTime) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (s *shiftedTime) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if len(args) > 1 {
			if source, ok := s.sources[fmt.Sprint(args[1])]; ok {
				args[0], args[1] = "eval", fmt.Sprintf(shiftedPrefix, s.by.Load())+source
			}
		}
		return next(ctx, cmd)
	}
}
