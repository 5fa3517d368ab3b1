package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// onePlace is a queue of two shards with one job in each, for a consumer with one place: one job waits for the other.
func onePlace(t *testing.T, job queue.Job, opts *queue.Options) *queue.Shards {
	t.Helper()
	s, err := queue.NewShards(luatomictest.Client(t), luatomictest.Namespace(t), 2, opts)
	require.NoError(t, err)
	for _, q := range s.Queues() {
		lab.Push(t, q, job)
	}
	return s
}

// bothLeased waits until the consumers of both shards have their job: the second one waits for its turn.
func bothLeased(t *testing.T, s *queue.Shards) {
	luatomictest.Eventually(t, 30*time.Second, "both jobs are leased", func() bool {
		now, err := s.Stats(context.Background())
		return err == nil && now.Leased == 2
	})
}

// A job that expires while it waits for its turn gets no handler.
func TestJobThatExpiresBeforeItsTurnDoesNotRun(t *testing.T) {
	t.Parallel()
	var seen observed
	s := onePlace(t, queue.Job{ID: "x", ExpiresAt: time.Now().Add(5 * time.Second)}, &queue.Options{Observe: seen.add})
	out, err := s.Consume(t.Context(), &queue.ConsumeOptions{Concurrency: 1, Drain: true},
		func(_ context.Context, d *queue.Delivery) error {
			bothLeased(t, s)
			time.Sleep(time.Until(d.ExpiresAt) + 200*time.Millisecond)
			return nil
		})
	require.NoError(t, err)
	out.Retried = 0 // where the reply of its take was slow, the job may be returned before it has expired
	require.Equal(t, queue.Consumed{Acked: 1, Expired: 1}, out)
	require.ElementsMatch(t, []queue.Outcome{queue.OutcomeAcked, queue.OutcomeExpired}, seen.outcomes("x"))
}

// The wait for a turn is not the handler's time: it has all of the job's Timeout, and Event.Run is without the wait.
func TestTimeoutBeginsWithTheTurn(t *testing.T) {
	t.Parallel()
	const held = 1500 * time.Millisecond
	var seen observed
	s := onePlace(t, queue.Job{ID: "x", Timeout: time.Second}, &queue.Options{Observe: seen.add})
	runs := 0
	out, err := s.Consume(t.Context(), &queue.ConsumeOptions{Concurrency: 1, Drain: true},
		func(ctx context.Context, _ *queue.Delivery) error {
			if runs++; runs == 1 {
				bothLeased(t, s)
				time.Sleep(held)
				return nil
			}
			return ctx.Err()
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 2}, out)
	events := seen.events["x"] // the consumers settle their jobs in any order
	require.Len(t, events, 2)
	require.Less(t, min(events[0].Run, events[1].Run), held)
}

// A job that waits for its turn when the consumer stops causes no event: no handler had it.
func TestJobWithoutATurnCausesNoEvent(t *testing.T) {
	t.Parallel()
	var seen observed
	s := onePlace(t, queue.Job{ID: "x"}, &queue.Options{Observe: seen.add})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, err := s.Consume(ctx, &queue.ConsumeOptions{Concurrency: 1},
		func(context.Context, *queue.Delivery) error {
			bothLeased(t, s)
			time.Sleep(100 * time.Millisecond) // it waits by now; if not, the test is weaker
			stop()
			return nil
		})
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, out.Retried, 1, "0 where the reply of its take came after the stop")
	out.Retried = 0
	require.Equal(t, queue.Consumed{Acked: 1}, out)
	require.Equal(t, []queue.Outcome{queue.OutcomeAcked}, seen.outcomes("x"))
}

// A job whose lease is lost while it waits for its turn is lost, and its delivery ends in an event.
func TestJobLostBeforeItsTurnCausesAnEvent(t *testing.T) {
	t.Parallel()
	var seen observed
	s := onePlace(t, queue.Job{ID: "x"}, &queue.Options{Observe: seen.add, Lease: time.Hour})
	c := luatomictest.Client(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := s.Consume(ctx, &queue.ConsumeOptions{Concurrency: 1},
		func(ctx context.Context, d *queue.Delivery) error {
			defer stop()
			bothLeased(t, s)
			for _, q := range s.Queues() {
				if q != d.Queue() { // another worker has it from now on
					require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.LongLease, Member: "x"}).Err())
				}
			}
			luatomictest.Eventually(t, 20*time.Second, "the loss is observed", func() bool {
				for _, q := range s.Queues() { // which has the consumer extend its leases
					_ = c.Publish(ctx, lab.Key(q, "l"), "x").Err()
				}
				return len(seen.outcomes("x")) == 1
			})
			return nil
		})
	require.ErrorIs(t, err, context.Canceled)
	require.ElementsMatch(t, []queue.Outcome{queue.OutcomeLost, queue.OutcomeAcked}, seen.outcomes("x"))
	require.NoError(t, seen.events["x"][0].Err, "no handler had it")
}
