package queue_test

import (
	"context"
	"errors"
	"sync"
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

// A server that does not answer delays the end of a consumer by 5 s after its handlers, and by the ReadTimeout of a
// call that is on its way then, however many queues it has and whatever became of their jobs.
func TestStopWithoutAServerIsBounded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*luatomictest.Server){
		"hung": (*luatomictest.Server).Pause, "killed": (*luatomictest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			qs := lab.Tagged(t, server.Client(), "t", 3)
			from := make([]queue.Source, len(qs))
			for i, q := range qs {
				from[i].Queue = q
				lab.Push(t, q, queue.Job{ID: "fine"}, queue.Job{ID: "fails"})
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var begun sync.WaitGroup
			begun.Add(2 * len(qs))
			over := make(chan struct{})
			done := make(chan queue.Consumed)
			go func() {
				out, _ := queue.ConsumeAll(ctx, nil, func(_ context.Context, d *queue.Delivery) error {
					begun.Done()
					<-over
					if d.ID == "fails" {
						return queue.Discard(errors.New("no"))
					}
					return nil
				}, from...)
				done <- out
			}()
			begun.Wait()
			end(server)
			stop()
			close(over)
			require.Zero(t, lab.Soon(t, 13*time.Second, "the end", done))
		})
	}
}

// A server that is slow delays the end of a consumer, which returns the jobs of a take without a reply, counts its last
// jobs and passes on its last notification all the same.
func TestASlowServerLosesNothingOfAStop(t *testing.T) {
	t.Parallel()
	slowly := func(run func() error) error {
		time.Sleep(1500 * time.Millisecond)
		return run()
	}
	t.Run("a take", func(t *testing.T) {
		t.Parallel()
		inOneOfFive(t, func(t *testing.T) bool { return stopAfterALostTake(t, 1, slowly) })
	})
	t.Run("the counts", func(t *testing.T) {
		t.Parallel()
		c, name := luatomictest.Client(t), luatomictest.Namespace(t)
		var ran atomic.Bool
		c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ReportScript), Do: func(run func() error) error {
			if ran.Load() {
				return slowly(run)
			}
			return run()
		}})
		q := lab.Must(queue.New(lua.Direct(c), name, nil))
		lab.Push(t, q, queue.Job{})
		out, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true},
			func(context.Context, *queue.Delivery) error {
				ran.Store(true)
				return nil
			})
		require.NoError(t, err)
		require.Equal(t, queue.Consumed{Acked: 1}, out)
		days, err := q.Counts(t.Context(), 2) // midnight may be now
		require.NoError(t, err)
		require.EqualValues(t, 1, days[0].Processed+days[1].Processed)
	})
	t.Run("a notification", func(t *testing.T) {
		t.Parallel()
		c, name := luatomictest.Client(t), luatomictest.Namespace(t)
		q, stops := lab.Must(queue.New(luatomictest.Client(t), name, nil)), lab.Must(queue.New(c, name, nil))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := stops.Consume(ctx, &queue.ConsumeOptions{Idle: time.Hour}, acks); ended <- err }()
		others := luatomictest.Client(t)
		luatomictest.Eventually(t, 20*time.Second, "it waits", waitersAre(t, others, q, 1))
		c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.PromoteScript), Do: slowly})
		name = others.ZRange(t.Context(), lab.Key(q, "w"), 0, 0).Val()[0]
		got := make(chan string, 1)
		idleConsumers(t, others, q, 1, func(_ context.Context, d *queue.Delivery) error {
			got <- d.ID
			return nil
		})
		luatomictest.Eventually(t, 20*time.Second, "both wait", waitersAre(t, others, q, 2))
		require.NoError(t, others.HSet(t.Context(), lab.Key(q, "b"), "notified", "").Err())
		require.NoError(t, others.RPush(t.Context(), lab.Key(q, "r"), "1:notified").Err())
		require.NoError(t, others.ZRem(t.Context(), lab.Key(q, "w"), name).Err()) // as a push does that notifies it
		stop()
		require.Equal(t, "notified", lab.Soon(t, 20*time.Second, "the notification that is passed on", got))
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end", ended), context.Canceled)
	})
}
