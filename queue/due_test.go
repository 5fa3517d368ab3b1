package queue_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
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
			_, err := queuescript.Reschedule(ctx, c, queuescript.RescheduleParams{
				Scheduled: lab.Key(q, "s"), Wake: lab.Key(q, "w"), Receipt: lab.Key(q, "i:"+rand.Text()), ID: "j",
				Due: -delay.Milliseconds(),
			})
			return err
		},
	} {
		for range 50 {
			require.NoError(t, c.Del(ctx, lab.Key(q, "f")).Err()) // j was there before
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

// A program's test on the embedded server or on a real one: what was pushed, and a retry of an hour, in a moment.
func TestAProgramTestsItsRetryOfAnHour(t *testing.T) {
	t.Parallel()
	for server, client := range map[string]lua.Client{
		"embedded": luatomictest.Embedded(t), "real": luatomictest.Client(t),
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q := lab.Must(queue.New(client, luatomictest.Namespace(t), nil))
			_, err := q.Push(ctx, queue.Job{ID: "order-1", Kind: "receipt", Body: []byte("42 EUR")})
			require.NoError(t, err)
			pushed := lab.Must(q.Peek(ctx, queue.Ready, 0, 10))
			require.Len(t, pushed, 1)
			require.Equal(t, []string{"order-1", "receipt", "42 EUR"},
				[]string{pushed[0].ID, pushed[0].Kind, string(pushed[0].Body)})

			attempts := 0
			send := func(context.Context, *queue.Delivery) error {
				if attempts++; attempts == 1 {
					return errors.New("smtp: 421")
				}
				return nil
			}
			once := &queue.ConsumeOptions{Drain: true, Backoff: func(int) time.Duration { return time.Hour }}
			running, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() {
				_, err := q.Consume(running, once, send)
				ended <- err
			}()
			luatomictest.Eventually(t, 20*time.Second, "it failed, and is due in an hour", func() bool {
				found := lab.Must(q.Find(ctx, "order-1"))
				return found[0].State == queue.Scheduled && found[0].Failures == 1
			})
			moved := lab.Must(q.Reschedule(ctx, "order-1", time.Now().Add(-time.Hour)))
			require.True(t, moved.Found, "the hour is over")
			require.NoError(t, <-ended, "a drain ends when the queue is empty")
			stop()
			require.Equal(t, 2, attempts)
			require.Equal(t, queue.Absent, lab.Must(q.Find(ctx, "order-1"))[0].State)
		})
	}
}
