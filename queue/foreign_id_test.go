package queue_test

import (
	"context"
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

// withForeignIDs returns a queue with a small job behind jobs of another program, whose ids have these sizes.
func withForeignIDs(t *testing.T, opts *queue.Options, sizes ...int) *queue.Queue {
	t.Helper()
	q, c := lab.NewQueue(t, opts)
	for i, size := range sizes {
		id := strings.Repeat(string(rune('a'+i)), size)
		require.NoError(t, c.HSet(t.Context(), lab.Key(q, "b"), id, "body").Err())
		require.NoError(t, c.RPush(t.Context(), lab.Key(q, "r"), "1700000000000:"+id).Err())
	}
	lab.Push(t, q, queue.Job{ID: "small"})
	return q
}

// Deliveries that do not fit into one call are settled in several.
func TestLongIDsAreSettledInSeveralCalls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q := withForeignIDs(t, nil, 600<<10, 700<<10)
	var held []*queue.Delivery
	for _, settle := range []func([]*queue.Delivery) error{
		func(ds []*queue.Delivery) error { return q.Extend(ctx, time.Minute, ds...) },
		func(ds []*queue.Delivery) error { return q.Return(ctx, 0, ds...) },
		func(ds []*queue.Delivery) error { return q.Nack(ctx, 0, "failed", ds...) },
		func(ds []*queue.Delivery) error { return q.Ack(ctx, ds...) },
	} {
		taken, err := q.Take(ctx, 10)
		require.NoError(t, err)
		held = append(held, taken.Deliveries...)
		require.Len(t, held, 3)
		require.NoError(t, settle(held))
		if stats(t, q).Leased == 0 {
			held = nil
		}
	}
	require.Zero(t, stats(t, q).Ready+stats(t, q).Leased)
}

// A job whose id no call can name holds up no other.
func TestAnIDThatNoCallCanNameIsRefusedAlone(t *testing.T) {
	t.Parallel()
	q := withForeignIDs(t, nil, 2<<20)
	taken, err := q.Take(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, taken.Deliveries, 2)
	require.ErrorIs(t, q.Ack(t.Context(), taken.Deliveries...), lua.ErrTooLarge)
	require.Equal(t, 1, stats(t, q).Leased)
	require.Equal(t, "small", taken.Deliveries[1].ID)
	require.NoError(t, taken.Deliveries[1].Ack(t.Context()), "it is acked already")
}

// The leases of other jobs are renewed beside one whose id no call can name.
func TestLeasesAreRenewedBesideALongID(t *testing.T) {
	t.Parallel()
	q := withForeignIDs(t, &queue.Options{Lease: 2 * time.Second}, 2<<20)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := q.Consume(ctx, &queue.ConsumeOptions{Grace: time.Millisecond},
		func(ctx context.Context, d *queue.Delivery) error {
			if d.ID != "small" {
				<-ctx.Done()
				return ctx.Err()
			}
			first := d.Deadline()
			luatomictest.Eventually(t, 10*time.Second, "a renewal", func() bool {
				return d.Deadline().After(first) || ctx.Err() != nil
			})
			require.NoError(t, ctx.Err())
			stop()
			return nil
		})
	require.ErrorIs(t, err, context.Canceled)
}

// A look for a job whose id no call can name finds the others.
func TestAFindGoesOnBesideALongID(t *testing.T) {
	t.Parallel()
	q := withForeignIDs(t, nil, 2<<20)
	found, err := q.Find(t.Context(), strings.Repeat("a", 2<<20), "small", "none")
	require.ErrorIs(t, err, lua.ErrTooLarge)
	require.Len(t, found, 3)
	require.Equal(t, queue.Absent, found[0].State)
	require.Equal(t, queue.Ready, found[1].State)
	require.Equal(t, "small", found[1].ID)
	require.Equal(t, queue.Absent, found[2].State)
}

// Jobs whose ids do not fit into one call are found by several.
func TestLongIDsAreFoundBySeveralCalls(t *testing.T) {
	t.Parallel()
	q := withForeignIDs(t, nil, 600<<10, 700<<10)
	found, err := q.Find(t.Context(), strings.Repeat("a", 600<<10), strings.Repeat("b", 700<<10), "small")
	require.NoError(t, err)
	require.Len(t, found, 3)
	for _, f := range found {
		require.Equal(t, queue.Ready, f.State)
	}
}

// Calls that read ids themselves go on beside one that no call can name, and say so.
func TestARequeueAndAnAuditGoOnBesideALongID(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q := withForeignIDs(t, nil)
	c := luatomictest.Client(t)
	require.NoError(t, lab.TakeOne(t, q).Bury(ctx, "bad"))
	for score, size := range []int{2 << 20, 600 << 10, 700 << 10} {
		id := strings.Repeat(string(rune('a'+score)), size)
		require.NoError(t, c.HSet(ctx, lab.Key(q, "b"), id, "").Err())
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: float64(score), Member: id}).Err())
	}
	n, err := q.Requeue(ctx)
	require.ErrorIs(t, err, lua.ErrTooLarge)
	require.Equal(t, 3, n)
	require.Equal(t, 3, stats(t, q).Ready)
	require.NoError(t, c.Del(ctx, lab.Key(q, "r"), lab.Key(q, "d")).Err())
	report, err := q.Audit(ctx, true)
	require.ErrorIs(t, err, lua.ErrTooLarge)
	require.Equal(t, 3, report.LostTotal)
	require.Equal(t, 3, stats(t, q).Ready)
}

// Cancel and BuryJobs go on beside an id that no call can name, say so, and keep the states in the order of the ids.
func TestACancelAndABuryGoOnBesideALongID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 2<<20)
	for verb, end := range map[string]func(context.Context, *queue.Queue) ([]queue.State, error){
		"cancel": func(ctx context.Context, q *queue.Queue) ([]queue.State, error) {
			return q.Cancel(ctx, "none", long, "small")
		},
		"bury": func(ctx context.Context, q *queue.Queue) ([]queue.State, error) {
			return q.BuryJobs(ctx, "bad", "none", long, "small")
		},
	} {
		q := withForeignIDs(t, nil, 2<<20)
		was, err := end(t.Context(), q)
		require.ErrorIs(t, err, lua.ErrTooLarge, verb)
		require.Equal(t, []queue.State{queue.Absent, queue.Absent, queue.Ready}, was, verb)
		taken, err := q.Take(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, taken.Deliveries, 1, "%s: only the job that no call can name", verb)
	}
}

// A scheduled job of another program, whose id Push would refuse, is rescheduled like any other.
func TestRescheduleOfAForeignID(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	id := strings.Repeat("{é}\n", 100)
	require.NoError(t, c.HSet(t.Context(), lab.Key(q, "b"), id, "body").Err())
	require.NoError(t, c.ZAdd(t.Context(), lab.Key(q, "s"), redis.Z{Score: 1e13, Member: id}).Err())
	moved, err := q.Reschedule(t.Context(), id, time.Time{})
	require.NoError(t, err)
	require.True(t, moved.Found)
	require.Equal(t, id, lab.Must(q.Take(t.Context(), 1)).Deliveries[0].ID)
}
