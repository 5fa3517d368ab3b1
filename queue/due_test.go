package queue_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/queue"
)

// No delay is short by a microsecond: the due time, which is in ms, is not before the server's clock and the delay.
func TestNoDelayIsShort(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	const delay = 10 * time.Second
	for name, call := range map[string]func() error{
		"push": func() error {
			_, err := q.Push(ctx, queue.Job{ID: "j", Delay: delay})
			return err
		},
		"push all": func() error {
			_, err := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: []queue.Job{{ID: "j", Delay: delay}}})
			return err
		},
		"nack": func() error {
			lab.Push(t, q, queue.Job{ID: "j"})
			return lab.TakeOne(t, q).Nack(ctx, delay, "why")
		},
		"reschedule": func() error {
			lab.Push(t, q, queue.Job{ID: "j", Delay: time.Hour})
			_, err := gen.QueueReschedule(ctx, c, gen.QueueRescheduleParams{
				Scheduled: lab.Key(q, "s"), Wake: lab.Key(q, "w"), Receipt: lab.Key(q, "i:"+rand.Text()), ID: "j",
				Due: -delay.Milliseconds(),
			})
			return err
		},
	} {
		for range 50 {
			before, err := c.Time(ctx).Result()
			require.NoError(t, err)
			require.NoError(t, call())
			after := lab.Must(c.Time(ctx).Result())
			due, err := c.ZScore(ctx, lab.Key(q, "s"), "j").Result()
			require.NoError(t, err)
			require.GreaterOrEqual(t, int64(due)*1000, before.Add(delay).UnixMicro(), name)
			require.LessOrEqual(t, int64(due), after.Add(delay).UnixMilli()+1, name)
			_, err = q.Cancel(ctx, "j")
			require.NoError(t, err)
		}
	}
}
