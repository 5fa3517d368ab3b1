package queue_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The longest of delays is a delay, and no wish to see the job dead.
func TestLongestDurations(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	ctx := t.Context()
	const ever = time.Duration(math.MaxInt64)
	lab.Push(t, q, queue.Job{ID: "nacked"}, queue.Job{ID: "returned"}, queue.Job{ID: "held", Unique: "u", UniqueTTL: ever})
	taken, err := q.Take(ctx, 2)
	require.NoError(t, err)
	require.NoError(t, taken.Deliveries[0].Nack(ctx, ever, "later"))
	require.NoError(t, taken.Deliveries[1].Return(ctx, ever))
	_, err = q.Push(ctx, queue.Job{ID: "delayed", Delay: ever})
	require.NoError(t, err)
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3, 0}, []int{s.Ready, s.Scheduled, s.Dead})
	due, ok := s.NextDue.Get()
	require.True(t, ok)
	require.Greater(t, due.Sub(s.Now), 290*365*24*time.Hour)

	out, err := q.Push(ctx, queue.Job{ID: "second", Unique: "u"})
	require.NoError(t, err)
	require.Equal(t, []queue.Duplicate{{Position: 0, ID: "held"}}, out.Duplicates)
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

// What no repeat can cure ends the consumer, and does not spin.
func TestConsumeEndsOnSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, *queue.Delivery) error { return nil }
	for _, lease := range []time.Duration{-time.Second, time.Microsecond} {
		q, _ := lab.NewQueue(t, &queue.Options{Lease: lease})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := q.Consume(ctx, nil, handler)
		require.ErrorIs(t, err, lua.ErrOutOfRange)
	}
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	require.NoError(t, c.Close())
	q, err := queue.New(c, "q", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = q.Consume(ctx, nil, handler)
	require.ErrorIs(t, err, redis.ErrClosed)
}

// A sleep that is too short for the server's clock is the shortest one.
func TestIdleBelowAMillisecond(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{Delay: 20 * time.Millisecond})
	failed := func(err error) { t.Errorf("%v", err) }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- queue.NewPoller(&queue.PollerOptions{Idle: time.Microsecond, OnError: func(_ *queue.Queue, err error) { failed(err) }}, q).Run(ctx)
	}()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Idle: time.Microsecond, Drain: true, OnError: failed},
		func(context.Context, *queue.Delivery) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 1, out.Acked)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A handler's answer that makes no sense costs the job a round, and not the process.
func TestAnswersOfHandlersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, queue.Job{ID: "discarded"}, queue.Job{ID: "negative"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var tries atomic.Int32
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Backoff: func(int) time.Duration { return -time.Second }},
		func(_ context.Context, d *queue.Delivery) error {
			switch {
			case d.ID == "discarded":
				return queue.Discard(nil)
			case tries.Add(1) == 1:
				return errors.New("again")
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: 1, Dead: 1}, out)
}

// One who listens for a short time does not end the wait of those who listen longer.
func TestShortWaitsLeaveLongOnesAlone(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	ctx := t.Context()
	long := time.Minute
	handler := func(context.Context, *queue.Delivery) error { return nil }
	run := func(idle time.Duration, poll bool) (stop func()) {
		running, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			if poll {
				ended <- queue.NewPoller(&queue.PollerOptions{Idle: idle}, q).Run(running)
				return
			}
			_, err := q.Consume(running, &queue.ConsumeOptions{Idle: idle}, handler)
			ended <- err
		}()
		return func() {
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	}
	stop := run(long, false)
	defer stop()
	waits := func(n int64) func() bool {
		return func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() >= n }
	}
	luatomictest.Eventually(t, 20*time.Second, "the first waits", waits(1))
	for _, poll := range []bool{false, true} {
		stop := run(10*time.Millisecond, poll)
		luatomictest.Eventually(t, 20*time.Second, "the second waits, too", waits(2))
		stop()
		require.Greater(t, c.PTTL(ctx, lab.Key(q, "w")).Val(), long/2)
	}
}

// slowNacks is a network on which each give-back takes its time.
type slowNacks struct {
	redis.Hook
	calls atomic.Int32
}

func (s *slowNacks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowNacks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slowNacks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasSuffix(cmd.FullName(), "queue_nack") {
			s.calls.Add(1)
			time.Sleep(100 * time.Millisecond)
		}
		return next(ctx, cmd)
	}
}

// Many jobs that fail at once, as when what all of them need is away, cost neither the
// job that was done among them nor each other their settling.
func TestManyFailuresAtOnceAreSettled(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	const n = 100
	lab.Push(t, q, lab.Bodies(n)...)
	slow := &slowNacks{}
	c.AddHook(slow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failures atomic.Int32
	var begun sync.WaitGroup
	begun.Add(n)
	go func() {
		defer cancel()
		luatomictest.Eventually(t, 50*time.Second, "all are settled", func() bool {
			s, err := q.Stats(ctx)
			return err == nil && s.Leased == 0 && s.Ready == 0
		})
	}()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{
		Concurrency: n, Backoff: func(int) time.Duration { return time.Hour }, OnError: func(error) { failures.Add(1) },
	}, func(_ context.Context, d *queue.Delivery) error {
		begun.Done()
		begun.Wait()
		if string(d.Body) == string(lab.Bodies(n)[n/2].Body) {
			return nil
		}
		return errors.New("away")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, queue.Consumed{Acked: 1, Retried: n - 1}, out)
	require.EqualValues(t, n-1, failures.Load())
}

// A consumer that stops, and waits for its last handlers, is told of no work any more,
// and passes on what it was told of.
func TestStoppingConsumerPassesTheWordOn(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	ctx := t.Context()
	begun, gate := make(chan string, 3), make(chan struct{})
	stopping, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(stopping, &queue.ConsumeOptions{Idle: time.Hour, Grace: time.Minute}, func(_ context.Context, d *queue.Delivery) error {
			begun <- d.ID
			<-gate
			return nil
		})
		ended <- err
	}()
	defer func() {
		cancel()
		close(gate)
		require.ErrorIs(t, <-ended, context.Canceled)
	}()
	waiting := func(n int64) {
		luatomictest.Eventually(t, 20*time.Second, "they wait", func() bool { return c.ZCard(ctx, lab.Key(q, "w")).Val() == n })
	}
	waiting(1)
	lab.Push(t, q, queue.Job{ID: "long"})
	require.Equal(t, "long", <-begun)
	waiting(1)
	old := c.ZRange(ctx, lab.Key(q, "w"), 0, 0).Val()[0]

	got := make(chan string, 3)
	other, end := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() {
		_, err := q.Consume(other, &queue.ConsumeOptions{Idle: time.Hour}, func(_ context.Context, d *queue.Delivery) error {
			got <- d.ID
			return nil
		})
		over <- err
	}()
	defer func() {
		end()
		require.ErrorIs(t, <-over, context.Canceled)
	}()
	waiting(2)

	// The old one was told of a job, and ends before it looks.
	require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), "told", "").Err())
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "1:told").Err())
	require.NoError(t, c.ZRem(ctx, lab.Key(q, "w"), old).Err())
	cancel()
	hears := func(id string) {
		t.Helper()
		select {
		case g := <-got:
			require.Equal(t, id, g)
		case <-time.After(20 * time.Second):
			t.Fatalf("nobody came for the job %s", id)
		}
	}
	hears("told")
	waiting(1)
	require.NotEqual(t, []string{old}, c.ZRange(ctx, lab.Key(q, "w"), 0, 0).Val())
	lab.Push(t, q, queue.Job{ID: "new"})
	hears("new")
}

// So does one that stops while it waits in line.
func TestStoppedConsumersDoNotStandInLine(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(ctx, nil, func(context.Context, *queue.Delivery) error { return nil })
		ended <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "it waits", func() bool { return c.ZCard(t.Context(), lab.Key(q, "w")).Val() == 1 })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, c.ZCard(t.Context(), lab.Key(q, "w")).Val())
}

// A time that no clock reaches is not one that has passed.
func TestTimesThatNoClockReaches(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	ctx := t.Context()
	never := []time.Time{time.Unix(1<<62, 0), time.Unix(1<<63-62135596801, 999999999), time.UnixMilli(math.MaxInt64)}
	for _, at := range never {
		out, err := q.Push(ctx, queue.Job{At: at})
		require.NoError(t, err)
		require.Equal(t, 1, out.Scheduled, at)
		_, err = q.Push(ctx, queue.Job{ID: "moved", Delay: time.Minute})
		require.NoError(t, err)
		moved, err := q.Reschedule(ctx, "moved", at)
		require.NoError(t, err)
		require.True(t, moved.Due.Year() > 9999, moved.Due)
	}
	taken, err := q.Take(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, taken.Deliveries)
	due, ok := taken.NextDue.Get()
	require.True(t, ok && due.Year() > 9999, due)
}

// A handler that ends its goroutine, as require does in a test, has failed; its place is
// not lost.
func TestHandlersThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, lab.Bodies(2)...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Concurrency: 1, Backoff: noWait}, func(_ context.Context, d *queue.Delivery) error {
		if d.Attempt == 1 {
			runtime.Goexit()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 2, Retried: 2}, out)
}
