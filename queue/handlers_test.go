package queue_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A handler that ends its goroutine, as require does in a test, counts as failed, and a new goroutine takes its
// place.
func TestHandlersThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, &queue.Options{Lease: time.Hour})
	lab.Push(t, q, lab.Bodies(2)...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Concurrency: 1, Backoff: noWait},
		func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt == 1 {
				runtime.Goexit()
			}
			return nil
		})
	require.NoError(t, err)
	require.Equal(t, queue.Consumed{Acked: 2, Retried: 2}, out)
}
