package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A take that finds nothing and does not wait writes its receipt alone, no waiter without a name.
func TestATakeThatFindsNothingWritesAReceipt(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, takeNone(t, q))
	keys := c.Keys(t.Context(), "{"+q.Name()+"}:*").Val()
	require.Len(t, keys, 1)
	require.Contains(t, keys[0], lab.Key(q, "i:"))
}

// The take that drops the entry of a buried job takes the mark off its count. A job that never failed has no count.
func TestATakeTakesTheMarkOffABuriedJob(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "failed"})
	require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "boom"))
	lab.Push(t, q, queue.Job{ID: "new"})
	_, err := q.BuryJobs(ctx, "why", "failed", "new")
	require.NoError(t, err)
	counts := func() map[string]string { return c.HGetAll(ctx, lab.Key(q, "n")).Val() }
	require.Equal(t, map[string]string{"failed": "b1", "failed\n": "why", "new": "b0", "new\n": "why"}, counts())
	require.NoError(t, takeNone(t, q))
	require.Equal(t, map[string]string{"failed": "1", "failed\n": "why", "new\n": "why"}, counts())
}

// A take without a lease is refused before anything is written: what is due stays where it is.
func TestATakeWithoutALeaseIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	scheduleDue(t, c, q, "j")
	before := lab.Dump(ctx, t, c, q.Name())
	p := takeParams(q, "")
	p.Queues[0].Lease = 0
	_, err := queuescript.Take(ctx, c, p)
	require.ErrorContains(t, err, "lease must be 1 or more")
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
}
