package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Queues of a tag work as any other, on whichever node the tag is, and the server agrees that a batch over them
// stays in one slot.
func TestPushAllOnACluster(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartCluster(t).Client()
	for i := range 6 {
		q := lab.Tagged(t, c, fmt.Sprint("tag", i), queue.MaxBatchQueues)
		batch := make([]queue.Batch, len(q))
		for n := range q {
			batch[n] = queue.Batch{Queue: q[n], Jobs: []queue.Job{{ID: "now", Unique: "u"}, {Delay: time.Millisecond}}}
		}
		for n, out := range pushAll(t, batch...) {
			require.Equal(t, 1, out.Ready)
			require.Equal(t, 1, out.Scheduled)
			worked, err := q[n].Consume(ctx, &queue.ConsumeOptions{Drain: true},
				func(context.Context, *queue.Delivery) error { return nil })
			require.NoError(t, err)
			require.Equal(t, 2, worked.Acked)
			report, err := q[n].Audit(ctx, false)
			require.NoError(t, err)
			require.True(t, report.OK(), "%+v", report)
		}
	}
}

// One consumer takes from all queues of a tag, on whichever node the tag is, with and without weights.
func TestConsumeAllOnACluster(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartCluster(t).Client()
	for i := range 6 {
		qs := lab.Tagged(t, c, fmt.Sprint("all", i), queue.MaxSources)
		from := make([]queue.Source, len(qs))
		for n, q := range qs {
			lab.Push(t, q, queue.Job{}, queue.Job{Delay: time.Millisecond})
			from[n] = queue.Source{Queue: q, Weight: i % 2 * (n + 1)}
		}
		out, err := queue.ConsumeAll(ctx, &queue.ConsumeOptions{Concurrency: 4, Drain: true},
			func(context.Context, *queue.Delivery) error { return nil }, from...)
		require.NoError(t, err)
		require.Equal(t, 2*len(qs), out.Acked)
		for _, q := range qs {
			report, err := q.Audit(ctx, false)
			require.NoError(t, err)
			require.True(t, report.OK(), "%+v", report)
		}
	}
}
