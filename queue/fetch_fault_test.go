package queue_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// The subscription is cut when a job is pushed. The consumer takes again once it is subscribed.
func TestConsumerTakesAgainAfterACutSubscription(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	cut := redis.NewClient(opts)
	defer cut.Close()
	q, c := lab.NewQueue(t, nil)
	// A take whose reply is cut leaves its job leased; a short lease returns it soon.
	through, err := queue.New(cut, q.Name(), &queue.Options{Lease: 300 * time.Millisecond})
	require.NoError(t, err)
	got := make(chan struct{}, 100)
	idleConsumers(t, c, through, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for range 20 {
		proxy.CutAll()
		lab.Push(t, q, queue.Job{})
		select {
		case <-got:
		case <-time.After(soonAwake):
			t.Fatal("the consumer did not take a job")
		}
	}
}

// A push skips a waiter whose process is dead and notifies the next one, in the same script.
func TestDeadConsumersAreSkipped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	got := make(chan struct{}, 1)
	idleConsumers(t, c, q, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for _, ghost := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), redis.Z{Score: 1, Member: lab.Key(q, "w:ghost-"+ghost)}).Err())
	}
	lab.Push(t, q, queue.Job{})
	select {
	case <-got:
	case <-time.After(soonAwake):
		t.Fatal("no live consumer was notified")
	}
}

// A push notifies a live consumer behind a fleet of killed ones, whether the time of their wait is over or not.
func TestDeadFleetIsSkipped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	got := make(chan struct{}, 1)
	idleConsumers(t, c, q, 1, func(context.Context, *queue.Delivery) error {
		got <- struct{}{}
		return nil
	})
	for i := range 1000 {
		score := float64(1)
		if i < 40 {
			score = float64(c.Time(ctx).Val().UnixMilli() + 5000)
		}
		ghost := redis.Z{Score: score, Member: lab.Key(q, "w:ghost-"+strconv.Itoa(i))}
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "w"), ghost).Err())
	}
	lab.Push(t, q, queue.Job{})
	select {
	case <-got:
	case <-time.After(soonAwake):
		t.Fatal("the live consumer was not notified")
	}
}
