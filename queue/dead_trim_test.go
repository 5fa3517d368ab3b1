package queue_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A death trims the dead set with one script, however far that is above its bounds: acks do not wait for more. The next
// death goes on. So it is with a death by a handler and by the end of a lease.
func TestADeathTrimsOneStep(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, perish := range map[string]func(q *queue.Queue, c *redis.Client) queue.Handler{
		"discarded": func(*queue.Queue, *redis.Client) queue.Handler {
			return func(context.Context, *queue.Delivery) error { return queue.Discard(errors.New("no")) }
		},
		"reclaimed": func(q *queue.Queue, c *redis.Client) queue.Handler {
			d := lab.TakeOne(t, q)
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.Past, Member: d.ID}).Err())
			return func(context.Context, *queue.Delivery) error { return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, c := lab.NewQueue(t, nil)
			const before = 1000
			dead := make([]redis.Z, before)
			for i := range dead {
				dead[i] = redis.Z{Score: float64(i + 1), Member: strconv.Itoa(i)}
			}
			require.NoError(t, c.ZAdd(ctx, lab.Key(direct, "d"), dead...).Err())
			var trims atomic.Int32
			client := luatomictest.Client(t)
			client.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.TrimScript), Do: func(run func() error) error {
				trims.Add(1)
				return run()
			}})
			q := lab.Must(queue.New(client, direct.Name(), &queue.Options{
				MaxFailures: 1, Dead: queue.DeadLimits{Jobs: 10}, Lease: time.Minute}))
			for deaths := range int32(2) {
				trims.Store(0)
				lab.Push(t, direct, queue.Job{})
				out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true}, perish(direct, c))
				require.NoError(t, err)
				require.Equal(t, queue.Consumed{Dead: 1}, out)
				require.EqualValues(t, 2, trims.Load(), "the first one stores the bounds")
				require.Equal(t, before+(1+int(deaths))*(1-200), stats(t, direct).Dead)
			}
		})
	}
}

// So it is with jobs that are buried by id: the caller waits for what its own deaths cost.
func TestABuryOfWaitingJobsTrimsWhatItCosts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, &queue.Options{Dead: queue.DeadLimits{Jobs: 10}})
	dead := make([]redis.Z, 1000)
	for i := range dead {
		dead[i] = redis.Z{Score: float64(i + 1), Member: strconv.Itoa(i)}
	}
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"), dead...).Err())
	lab.Push(t, q, queue.Job{ID: "a"}, queue.Job{ID: "b", Delay: time.Hour})
	states, err := q.BuryJobs(ctx, "why", "a", "b", "none")
	require.NoError(t, err)
	require.Equal(t, []queue.State{queue.Ready, queue.Scheduled, queue.Absent}, states)
	require.Equal(t, 1000+2-200, stats(t, q).Dead)
	_, err = q.BuryJobs(ctx, "why", "a", "none")
	require.NoError(t, err)
	require.Equal(t, 1000+2-200, stats(t, q).Dead, "nobody died")
}
