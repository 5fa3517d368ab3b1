package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A consumer whose acks are refused takes no more jobs than it can have in hand: the others are for consumers that can
// ack. It goes on when its acks are accepted.
func TestRefusedAcksHoldUpTheTakes(t *testing.T) {
	t.Parallel()
	const n = 5000
	direct, _ := lab.NewQueue(t, nil)
	for range n / 1000 {
		lab.Push(t, direct, lab.Bodies(1000)...)
	}
	client := luatomictest.Client(t)
	var accepted atomic.Bool
	var attempts atomic.Int32
	client.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.AckScript), Do: func(run func() error) error {
		if !accepted.Load() {
			attempts.Add(1)
			return refusal("NOPERM not now")
		}
		return run()
	}})
	q := lab.Must(queue.New(client, direct.Name(), nil))
	done := make(chan queue.Consumed, 1)
	go func() {
		out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Concurrency: 5, Drain: true},
			func(context.Context, *queue.Delivery) error { return nil })
		if err == nil {
			done <- out
		}
	}()
	luatomictest.Eventually(t, time.Minute, "seven acks are refused", func() bool { return attempts.Load() >= 7 })
	require.Less(t, stats(t, direct).Leased, n/2)
	accepted.Store(true)
	out := lab.Soon(t, time.Minute, "the queue is drained", done)
	require.Equal(t, n, out.Acked)
}

// A failure that no retry can cure ends a consumer also where only an ack meets it.
func TestAKeyOfTheWrongTypeThatOnlyAnAckReadsEndsTheConsumer(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, lab.Bodies(1000)...)
	require.NoError(t, c.Set(t.Context(), lab.Key(q, "u"), "x", 0).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := q.Consume(ctx, nil, func(context.Context, *queue.Delivery) error { return nil })
	require.ErrorIs(t, err, lua.ErrWrongType)
}
