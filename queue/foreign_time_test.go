package queue_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// foreignScores are times that no script of a queue writes. As a number of a reply each would be a time in the past:
// waiters would not sleep until then, and ask without a pause.
var foreignScores = []float64{math.Inf(1), 1e300, 1e19}

func TestAForeignScoreIsNoTimeInThePast(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, score := range foreignScores {
		q, c := lab.NewQueue(t, nil)
		lab.Push(t, q, queue.Job{ID: "parked", Delay: time.Hour}, queue.Job{ID: "held"})
		lab.TakeOne(t, q)
		for key, id := range map[string]string{"s": "parked", "l": "held", "d": "buried"} {
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, key), redis.Z{Score: score, Member: id}).Err())
			require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), id, "body").Err())
		}
		later := func(what string, at time.Time) {
			require.True(t, at.After(time.Now()), "%v: %s: %v", score, what, at)
		}
		taken, err := q.Take(ctx, 1)
		require.NoError(t, err)
		later("take, due", taken.NextDue.Or(time.Time{}))
		later("take, lapse", taken.NextLapse.Or(time.Time{}))
		promoted, err := q.Promote(ctx)
		require.NoError(t, err)
		later("promote", promoted.NextDue.Or(time.Time{}))
		reclaimed, err := q.Reclaim(ctx)
		require.NoError(t, err)
		later("reclaim", reclaimed.NextLapse.Or(time.Time{}))
		later("stats", stats(t, q).NextDue.Or(time.Time{}))
		for state, id := range map[queue.State]string{
			queue.Scheduled: "parked", queue.Leased: "held", queue.Dead: "buried",
		} {
			rows, err := q.Peek(ctx, state, 0, 1)
			require.NoError(t, err)
			later("peek at "+id, rows[0].At)
			found, err := q.Find(ctx, id)
			require.NoError(t, err)
			later("find "+id, found[0].At)
		}
	}
}

// A job under a foreign stamp is returned, not lost, and so is one whose handler has changed its EnqueuedAt.
func TestAJobWithAForeignStampIsReturned(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), "j", "body").Err())
	require.NoError(t, c.RPush(ctx, lab.Key(q, "r"), "99999999999999999999:j").Err())
	require.NoError(t, lab.TakeOne(t, q).Return(ctx, 0))
	d := lab.TakeOne(t, q)
	require.Equal(t, "j", d.ID)
	d.EnqueuedAt = time.Time{}
	require.NoError(t, d.Return(ctx, 0))
	require.Equal(t, "j", lab.TakeOne(t, q).ID)
}

// A bound that no push writes ends no handler: it is the nearest one that there can be.
func TestAForeignTimeoutEndsNoHandler(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]queue.Details{
		"0:0:9223372036854775807:0:": {Timeout: math.MaxInt64 / time.Millisecond * time.Millisecond},
		"0:-1:-9223372036854775807:": {MaxFailures: -1},
	} {
		q, c := lab.NewQueue(t, nil)
		lab.Push(t, q, queue.Job{ID: "j"})
		require.NoError(t, c.HSet(t.Context(), lab.Key(q, "o"), "j", options).Err())
		var got queue.Details
		done, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
			func(ctx context.Context, d *queue.Delivery) error {
				got = d.Details
				return ctx.Err()
			})
		require.NoError(t, err)
		require.Equal(t, want, got, options)
		require.Equal(t, 1, done.Acked, options)
	}
}
