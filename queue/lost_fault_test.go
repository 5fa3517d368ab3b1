package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A lease that is lost hides no failure of the same call: the other job is not acked.
func TestLostLeaseHidesNoFailure(t *testing.T) {
	t.Parallel()
	for name, ack := range map[string]func(context.Context, *queue.Shards, ...*queue.Delivery) error{
		"queue": func(ctx context.Context, s *queue.Shards, ds ...*queue.Delivery) error {
			return s.Queues()[0].Ack(ctx, ds...)
		},
		"shards": func(ctx context.Context, s *queue.Shards, ds ...*queue.Delivery) error { return s.Ack(ctx, ds...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c, tries := t.Context(), luatomictest.Client(t), 0
			s := lab.Must(queue.NewShards(c, luatomictest.Namespace(t), 1, nil))
			q := s.Queues()[0]
			lab.Push(t, q, queue.Job{ID: "lost"}, queue.Job{ID: "extended"})
			ds := lab.Must(q.Take(ctx, 2)).Deliveries
			require.NoError(t, c.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: 1e17, Member: "lost"}).Err())
			c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.AckScript), Do: func(run func() error) error {
				if tries++; tries > 1 {
					return refusal("NOPERM not now")
				}
				require.NoError(t, ds[1].Extend(ctx, time.Hour)) // so that its ack is made again
				return run()
			}})
			err := ack(ctx, s, ds...)
			require.Equal(t, 2, tries)
			var lost *queue.LeaseLostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, []string{"lost"}, lost.IDs)
			require.ErrorContains(t, err, "NOPERM not now")
			require.Equal(t, 2, stats(t, q).Leased)
		})
	}
}
