package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Whatever bytes the names of a job and its queue have, the report of a process has them all.
func TestAReportHasNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	q := lab.Must(queue.New(c, "mail\xff", &queue.Options{Prefix: prefix, Tag: "t\xff"}))
	lab.Push(t, q, queue.Job{ID: "a\xff", Kind: "k\xff"})
	var workers []queue.Worker
	_, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true}, func(context.Context, *queue.Delivery) error {
		luatomictest.Eventually(t, time.Minute, "the process reports its job", func() bool {
			workers = lab.Must(queue.Workers(ctx, c, prefix))
			return len(workers) == 1 && len(workers[0].Consumers[0].Holding) == 1
		})
		return nil
	})
	require.NoError(t, err)
	of := workers[0].Consumers[0]
	require.Equal(t, []string{"mail\xff", "t\xff", "a\xff", "k\xff"},
		[]string{of.Queue, of.Tag, of.Holding[0].ID, of.Holding[0].Kind})
}

// A worker has the id under which it reports, whatever its description says.
func TestADescriptionNamesNoOtherProcess(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	fleet := keys.NewFleet(prefix)
	require.NoError(t, c.ZAdd(ctx, fleet.Workers, redis.Z{Score: lab.Future, Member: "own"}).Err())
	require.NoError(t, c.HSet(ctx, fleet.About, "own", `1 {"id":"other","host":"h"}`).Err())
	workers := lab.Must(queue.Workers(ctx, c, prefix))
	require.Len(t, workers, 1)
	require.Equal(t, "own", workers[0].ID)
	require.Equal(t, int64(lab.Future)-15_000, workers[0].Reported.UnixMilli(), "a lease before its end")
}
