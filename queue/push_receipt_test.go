package queue_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// No call adds a job again while it repeats itself, however short Options.Receipt is: a token that the call has drawn
// is known for longer than the call lasts, and a call under a token of the caller ends before its receipt.
func TestAShortReceiptAddsNoJobTwice(t *testing.T) {
	t.Parallel()
	jobs := []queue.Job{{Kind: "k"}, {Kind: "k"}}
	for name, tc := range map[string]struct {
		receipt, lossy time.Duration
		push           func(ctx context.Context, q *queue.Queue, s *queue.Shards) error
	}{
		"Push": {50 * time.Millisecond, time.Second,
			func(ctx context.Context, q *queue.Queue, _ *queue.Shards) error {
				_, err := q.Push(ctx, jobs...)
				return err
			}},
		"PushAll": {50 * time.Millisecond, time.Second,
			func(ctx context.Context, q *queue.Queue, _ *queue.Shards) error {
				_, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: jobs})
				return err
			}},
		"Shards.Push": {50 * time.Millisecond, time.Second,
			func(ctx context.Context, _ *queue.Queue, s *queue.Shards) error {
				_, err := s.Push(ctx, jobs...)
				return err
			}},
		"PushOnce": {6 * time.Second, 10 * time.Second,
			func(ctx context.Context, q *queue.Queue, _ *queue.Shards) error {
				_, err := q.PushOnce(ctx, "token", jobs...)
				return err
			}},
		"PushAllOnce": {6 * time.Second, 10 * time.Second,
			func(ctx context.Context, q *queue.Queue, _ *queue.Shards) error {
				_, err := queue.PushAllOnce(ctx, "token", queue.Batch{Queue: q, Jobs: jobs})
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var done []string
			var err error
			// A machine that stands still for the last sixth of the receipt makes a repeat a new push.
			for round, late := 0, true; late && round < 5; round++ {
				done, late, err = pushThroughLosses(t, tc.receipt, tc.lossy, tc.push)
			}
			if tc.receipt > time.Second {
				require.LessOrEqual(t, len(done), len(jobs))
				require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
				return
			}
			require.NoError(t, err)
			require.Len(t, done, len(jobs))
		})
	}
}

// pushThroughLosses loses each reply to a push for a time. It returns the jobs that were added, and whether a repeat
// came when a receipt of more than a second was over.
func pushThroughLosses(
	t *testing.T, receipt, lossy time.Duration, push func(context.Context, *queue.Queue, *queue.Shards) error,
) (done []string, late bool, err error) {
	t.Helper()
	near, name := luatomictest.Client(t), luatomictest.Namespace(t)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	far := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	defer far.Close()
	opts := &queue.Options{Receipt: receipt}
	q, s := lab.Must(queue.New(far, name, opts)), lab.Must(queue.NewShards(far, name, 1, opts))
	require.NoError(t, lua.Preload(t.Context(), near, &queuescript.PushScript, &queuescript.PushManyScript))
	began := time.Now()
	var last atomic.Int64 // when the server had the last push
	one, many := lab.Sent(&queuescript.PushScript), lab.Sent(&queuescript.PushManyScript)
	proxy.Drop(1<<20, func(args []string) bool {
		is := one(args) || many(args)
		if is {
			last.Store(int64(time.Since(began)))
		}
		return is && time.Since(began) < lossy
	})
	taken := takeAll(t, lab.Must(queue.New(near, name, nil)), lab.Must(queue.NewShards(near, name, 1, nil)).Queues()[0])
	err = push(t.Context(), q, s)
	return taken(), receipt > time.Second && time.Duration(last.Load()) > receipt-receipt/20, err
}

// takeAll takes and acks the jobs of the queues until its result is called, which returns the ids.
func takeAll(t *testing.T, from ...*queue.Queue) func() []string {
	t.Helper()
	stop := make(chan struct{})
	var ids []string
	var loop sync.WaitGroup
	one := func() {
		for _, q := range from {
			taken, err := q.Take(context.Background(), 100)
			if err == nil && len(taken.Deliveries) > 0 {
				err = q.Ack(context.Background(), taken.Deliveries...)
			}
			if err != nil {
				t.Error(err)
			}
			ids = append(ids, idsOf(taken.Deliveries)...)
		}
	}
	loop.Go(func() {
		for {
			one()
			select {
			case <-stop:
				one()
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() []string {
		close(stop)
		loop.Wait()
		slices.Sort(ids)
		return ids
	}
}
