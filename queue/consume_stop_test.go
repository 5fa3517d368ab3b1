package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
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
