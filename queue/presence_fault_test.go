package queue_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// processed is what the queue counts, also where midnight is now.
func processed(t *testing.T, q *queue.Queue) int {
	t.Helper()
	days, err := q.Counts(t.Context(), 2)
	require.NoError(t, err)
	return days[0].Processed + days[1].Processed
}

// What refused reports have counted is part of later ones, however many there were.
func TestRefusedReportsLoseNoCounts(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	q := lab.Must(queue.New(c, "mail", &queue.Options{Prefix: prefix}))
	count, report := queue.Reporter(c, prefix)
	about := keys.NewFleet(prefix).About
	require.NoError(t, c.Set(ctx, about, "x", 0).Err())
	for range 150 {
		count(q)
		report(ctx)
	}
	require.Zero(t, processed(t, q))
	require.NoError(t, c.Del(ctx, about).Err())
	report(ctx)
	require.Equal(t, 150, processed(t, q))
}

// A report without a reply is repeated under its number, and what happened meanwhile comes after it.
func TestReportsWithoutAReplyAreCountedOnce(t *testing.T) {
	t.Parallel()
	ctx, prefix := t.Context(), luatomictest.Namespace(t)+":"
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	lossy := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	t.Cleanup(func() { _ = lossy.Close() })
	q := lab.Must(queue.New(luatomictest.Client(t), "mail", &queue.Options{Prefix: prefix}))
	count, report := queue.Reporter(lossy, prefix)
	sent := lab.Sent(&queuescript.ReportScript)
	count(q)
	report(ctx)
	var lose atomic.Bool
	lose.Store(true)
	proxy.Drop(1000, func(args []string) bool { return lose.Load() && sent(args) })
	for range 3 {
		count(q)
		report(untilRun(ctx, t, proxy, &queuescript.ReportScript))
	}
	lose.Store(false)
	require.Equal(t, 2, processed(t, q), "the first one without a reply has run")
	report(ctx)
	require.Equal(t, 4, processed(t, q))
}

// A consumer learns once that reports are refused. Its last one is sent all the same: the cause may have gone.
func TestAStopAfterARefusedReportCounts(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	q := lab.Must(queue.New(c, "mail", &queue.Options{Prefix: prefix}))
	about := keys.NewFleet(prefix).About
	require.NoError(t, c.Set(ctx, about, "x", 0).Err())
	refused := make(chan struct{})
	ended := make(chan error, 1)
	consuming, stop := context.WithCancel(ctx)
	go func() {
		_, err := q.Consume(consuming, &queue.ConsumeOptions{OnError: func(err error) {
			require.ErrorIs(t, err, lua.ErrWrongType)
			require.True(t, strings.Contains(err.Error(), "report the consumer"), err)
			close(refused) // a second one panics
		}}, func(context.Context, *queue.Delivery) error { stop(); return nil })
		ended <- err
	}()
	lab.Soon(t, 20*time.Second, "the error", refused)
	require.NoError(t, c.Del(ctx, about).Err())
	lab.Push(t, q, queue.Job{})
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the stop", ended), context.Canceled)
	require.Equal(t, 1, processed(t, q))
	luatomictest.Eventually(t, 5*time.Second, "the process leaves the list", func() bool {
		return len(lab.Must(queue.Workers(ctx, c, prefix))) == 0
	})
}
