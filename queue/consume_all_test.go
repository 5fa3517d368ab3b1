package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// pushNumbered pushes n jobs whose ids begin with the name of the queue.
func pushNumbered(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i].ID = fmt.Sprint(q.Name(), i)
	}
	lab.Push(t, q, jobs...)
}

// All jobs of a queue run before those of the next one, and each is acked on its own queue.
func TestConsumeAllInStrictOrder(t *testing.T) {
	t.Parallel()
	qs := several(t, luatomictest.Client(t), 3, queue.Options{})
	for _, i := range []int{2, 0, 1} {
		pushNumbered(t, qs[i], 50)
	}
	var order strings.Builder
	out, err := queue.ConsumeAll(t.Context(), &queue.ConsumeOptions{Concurrency: 1, Drain: true},
		func(_ context.Context, d *queue.Delivery) error {
			require.True(t, strings.HasPrefix(d.ID, d.Queue().Name()))
			order.WriteString(d.Queue().Name())
			return nil
		}, inOrderOf(qs)...)
	require.NoError(t, err)
	out.Retried = 0 // a busy machine may keep a handler for so long that its consumer returns others
	require.Equal(t, queue.Consumed{Acked: 150}, out)
	require.Equal(t, strings.Repeat("a", 50)+strings.Repeat("b", 50)+strings.Repeat("c", 50), order.String())
	for _, q := range qs {
		s := stats(t, q)
		require.Zero(t, s.Ready+s.Leased+s.Dead)
	}
}

// consumeAll runs a consumer of the queues until the test ends.
func consumeAll(t *testing.T, opts *queue.ConsumeOptions, h queue.Handler, qs []*queue.Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _, _ = queue.ConsumeAll(ctx, opts, h, inOrderOf(qs)...) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// waitAtAll waits until n consumers are waiters of each queue.
func waitAtAll(t *testing.T, c *redis.Client, qs []*queue.Queue, n int64) {
	t.Helper()
	luatomictest.Eventually(t, soonAwake, fmt.Sprint(n, " wait at each queue"), func() bool {
		for _, q := range qs {
			if c.ZCard(t.Context(), keyOf(q, "w")).Val() != n {
				return false
			}
		}
		return true
	})
}

// A push to any queue wakes the consumer, also a job that comes due.
func TestPushToAnyQueueWakesTheConsumer(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{})
	got := make(chan *queue.Delivery, 10)
	consumeAll(t, &queue.ConsumeOptions{Concurrency: 1, Idle: asleep},
		func(_ context.Context, d *queue.Delivery) error {
			got <- d
			return nil
		}, qs)
	for _, q := range qs {
		for id, delay := range map[string]time.Duration{"now": 0, "later": 20 * time.Millisecond} {
			waitAtAll(t, c, qs, 1)
			lab.Push(t, q, queue.Job{ID: id, Delay: delay})
			d := lab.Soon(t, soonAwake, id, got)
			require.Same(t, q, d.Queue())
			require.Equal(t, id, d.ID)
		}
	}
}

// A consumer without a free handler waits at no queue, so a push wakes another one. Nor does one that has stopped.
func TestBusyConsumerOfSeveralQueuesWaitsAtNone(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{})
	got := make(chan string, 10)
	h := func(ctx context.Context, d *queue.Delivery) error {
		got <- d.ID
		<-ctx.Done()
		return nil
	}
	opts := &queue.ConsumeOptions{Concurrency: 1, Idle: asleep, Grace: time.Millisecond}
	for _, q := range qs {
		consumeAll(t, opts, h, qs)
		waitAtAll(t, c, qs, 1)
		lab.Push(t, q, queue.Job{ID: q.Name()})
		require.Equal(t, q.Name(), lab.Soon(t, soonAwake, q.Name(), got))
		waitAtAll(t, c, qs, 0)
	}
	stop := consumeAll(t, opts, h, qs)
	waitAtAll(t, c, qs, 1)
	stop()
	waitAtAll(t, c, qs, 0)
}

// A paused queue, or a full one, is left alone, and the others go on. Once it is resumed it has its turn.
func TestConsumeAllPassesAPausedQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{})
	require.NoError(t, qs[0].Pause(ctx))
	require.NoError(t, qs[1].SetLimit(ctx, 1))
	for _, q := range qs {
		pushNumbered(t, q, 1)
	}
	_, err := qs[1].Push(ctx, queue.Job{})
	require.ErrorIs(t, err, queue.ErrFull)
	got := make(chan string, 10)
	consumeAll(t, &queue.ConsumeOptions{Idle: asleep}, func(_ context.Context, d *queue.Delivery) error {
		got <- d.ID
		return nil
	}, qs)
	first := []string{lab.Soon(t, soonAwake, "b", got), lab.Soon(t, soonAwake, "c", got)}
	require.ElementsMatch(t, []string{"b0", "c0"}, first)
	waitAtAll(t, c, qs, 1)
	require.Equal(t, 1, stats(t, qs[0]).Ready)
	require.NoError(t, qs[0].Resume(ctx))
	require.Equal(t, "a0", lab.Soon(t, soonAwake, "a", got))
}

// The jobs of a worker that died come back on their own queues.
func TestConsumeAllReclaimsTheJobsOfAllQueues(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{Lease: 300 * time.Millisecond})
	for _, q := range qs {
		pushNumbered(t, q, 2)
	}
	ts, err := queue.Taker(rand.IntN, inOrderOf(qs)...)(t.Context(), 10, "")
	require.NoError(t, err)
	require.Equal(t, "aabbcc", namesOf(ts))
	live := make([]*queue.Queue, len(qs)) // with leases that outlast a pause of the machine
	for i, q := range qs {
		live[i] = lab.Must(queue.New(c, q.Name(), &queue.Options{Tag: q.Tag()}))
	}
	var again atomic.Int64
	drain := &queue.ConsumeOptions{Drain: true}
	out, err := queue.ConsumeAll(t.Context(), drain, func(_ context.Context, d *queue.Delivery) error {
		if d.Attempt > 1 {
			again.Add(1)
		}
		return nil
	}, inOrderOf(live)...)
	require.NoError(t, err)
	require.Equal(t, 6, out.Acked)
	require.EqualValues(t, 6, again.Load())
}

// Jobs whose handlers outlast the grace are ready again on their own queues, without a failure counted.
func TestConsumeAllReturnsJobsToTheirQueues(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{})
	for _, q := range qs {
		pushNumbered(t, q, 2)
	}
	ctx, stop := context.WithCancel(t.Context())
	var started atomic.Int64
	out, err := queue.ConsumeAll(ctx, &queue.ConsumeOptions{Concurrency: 6, Grace: time.Millisecond},
		func(ctx context.Context, _ *queue.Delivery) error {
			if started.Add(1) == 6 {
				stop()
			}
			<-ctx.Done()
			return ctx.Err()
		}, inOrderOf(qs)...)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, queue.Consumed{Retried: 6}, out)
	for _, q := range qs {
		s := stats(t, q)
		require.Equal(t, []int{2, 0}, []int{s.Ready, s.Leased})
		require.Equal(t, 1, lab.TakeOne(t, q).Attempt)
	}
}

// Failures, the dead set, events and counts are of the job's queue.
func TestConsumeAllKeepsTheSettingsOfEachQueue(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	var mu sync.Mutex
	events := map[string]int{}
	observe := func(e queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		events[e.Queue+" "+e.Tag+" "+string(e.Outcome)]++
	}
	tag := uuid.NewString()
	strict, err := queue.New(c, "strict", &queue.Options{Tag: tag, MaxFailures: 1, Observe: observe})
	require.NoError(t, err)
	patient, err := queue.New(c, "patient", &queue.Options{Tag: tag, MaxFailures: 3, Observe: observe})
	require.NoError(t, err)
	qs := []*queue.Queue{strict, patient}
	for _, q := range qs {
		pushNumbered(t, q, 2)
	}
	out, err := queue.ConsumeAll(t.Context(), &queue.ConsumeOptions{Drain: true, Backoff: noWait},
		func(context.Context, *queue.Delivery) error { return context.DeadlineExceeded }, inOrderOf(qs)...)
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Retried: 4, Dead: 4}, out)
	require.Equal(t, 2, stats(t, strict).Dead)
	require.Equal(t, 2, stats(t, patient).Dead)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{
		"strict " + tag + " dead": 2, "patient " + tag + " dead": 2, "patient " + tag + " retried": 4,
	}, events)
	for i, failed := range []int{2, 6} {
		days, err := qs[i].Counts(t.Context(), 2)
		require.NoError(t, err)
		total := 0
		for _, d := range days {
			total += int(d.Failed)
		}
		require.Equal(t, failed, total, qs[i].Name())
	}
}

// A drain ends when all queues are empty at one moment, also of jobs that handlers pushed to a queue before.
func TestConsumeAllDrainsAllQueues(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	qs := several(t, c, 3, queue.Options{})
	pushNumbered(t, qs[2], 1)
	drain := &queue.ConsumeOptions{Drain: true}
	out, err := queue.ConsumeAll(t.Context(), drain, func(_ context.Context, d *queue.Delivery) error {
		time.Sleep(100 * time.Millisecond) // takes find nothing meanwhile
		switch d.Queue() {
		case qs[2]:
			pushNumbered(t, qs[1], 2)
		case qs[1]:
			lab.Push(t, qs[0], queue.Job{Delay: 20 * time.Millisecond})
		}
		return nil
	}, inOrderOf(qs)...)
	require.NoError(t, err)
	require.Equal(t, 5, out.Acked)
}

// A process that consumes several queues is listed with each of them.
func TestConsumeAllIsReportedForEachQueue(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	prefix := uuid.NewString() + ":"
	qs := several(t, c, 2, queue.Options{Prefix: prefix})
	pushNumbered(t, qs[1], 1)
	started := make(chan struct{})
	consumeAll(t, &queue.ConsumeOptions{Grace: time.Millisecond}, func(ctx context.Context, _ *queue.Delivery) error {
		close(started)
		<-ctx.Done()
		return nil
	}, qs)
	lab.Soon(t, soonAwake, "the handler", started)
	luatomictest.Eventually(t, time.Minute, "the report has the job", func() bool {
		ws, err := queue.Workers(t.Context(), c, prefix)
		return err == nil && len(ws) == 1 && len(ws[0].Consumers) == 2 &&
			ws[0].Consumers[0].Holds == 0 && ws[0].Consumers[1].Holds == 1 && ws[0].Consumers[1].Queue == "b"
	})
}

// One script cannot take from queues of different slots; the error names the cure. Nothing is sent.
func TestConsumeAllRefusesQueuesThatShareNoSlot(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	qs := several(t, c, 2, queue.Options{})
	newQueue := func(name string, c lua.Client, opts *queue.Options) *queue.Queue {
		q, err := queue.New(c, name, opts)
		require.NoError(t, err)
		return q
	}
	consume := func(from ...queue.Source) error {
		_, err := queue.ConsumeAll(t.Context(), nil, nil, from...)
		require.Error(t, err)
		return err
	}
	other := newQueue("other", c, nil)
	err := consume(queue.Source{Queue: qs[0]}, queue.Source{Queue: other})
	require.ErrorIs(t, err, lua.ErrCrossSlot)
	require.ErrorContains(t, err, "give both one queue.Options.Tag")
	elsewhere := newQueue("a", luatomictest.Client(t), &queue.Options{Tag: qs[0].Tag()})
	require.ErrorContains(t, consume(queue.Source{Queue: qs[1]}, queue.Source{Queue: elsewhere}), "different clients")
	require.ErrorContains(t, consume(), "no queue is given")
	require.ErrorContains(t, consume(queue.Source{}), "set Source.Queue")
	require.ErrorContains(t, consume(queue.Source{Queue: other}, queue.Source{Queue: other}), "is there twice")
	require.ErrorIs(t, consume(queue.Source{Queue: other, Weight: -1}), lua.ErrOutOfRange)
	many := inOrderOf(several(t, c, queue.MaxSources+1, queue.Options{}))
	require.ErrorIs(t, consume(many...), lua.ErrTooLarge)
}
