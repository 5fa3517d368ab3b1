package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// A handler that has settled its job itself may go on: its context does not end with the lease that it has given back.
// It ends by Grace.
func TestAHandlerThatSettlesItsJobGoesOn(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(ctx context.Context, d *queue.Delivery) error{
		"ack":  func(ctx context.Context, d *queue.Delivery) error { return d.Ack(ctx) },
		"bury": func(ctx context.Context, d *queue.Delivery) error { return d.Bury(ctx, "why") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const length = 300 * time.Millisecond
			q, _ := lab.NewQueue(t, &queue.Options{Lease: length})
			lab.Push(t, q, queue.Job{})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var early, cause error
			_, err := q.Consume(ctx, &queue.ConsumeOptions{Grace: time.Millisecond},
				func(ctx context.Context, d *queue.Delivery) error {
					require.NoError(t, settle(ctx, d))
					select {
					case <-ctx.Done():
						early = context.Cause(ctx)
					case <-time.After(3 * length):
					}
					stop()
					<-ctx.Done()
					cause = context.Cause(ctx)
					return nil
				})
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, early)
			require.ErrorContains(t, cause, "consumer stopped")
		})
	}
}
