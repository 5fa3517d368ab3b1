package sidekiq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// blocking counts the blocking commands of a client that are under way.
type blocking struct {
	mu        sync.Mutex
	now, most int
}

func (b *blocking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (b *blocking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *blocking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "blmove" {
			return next(ctx, cmd)
		}
		b.add(1)
		defer b.add(-1)
		return next(ctx, cmd)
	}
}

func (b *blocking) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now += n
	b.most = max(b.most, b.now)
}

// A client has fewer connections than its workers have queues. Two are left to all other calls, those of the producer
// too, and each queue is served.
func TestWorkersLeaveConnectionsToOtherCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pool, workers, most int }{{1, 1, 0}, {2, 1, 0}, {3, 1, 1}, {6, 2, 4}, {20, 1, 4}} {
		t.Run(fmt.Sprintf("%d workers, %d connections", c.workers, c.pool), func(t *testing.T) {
			t.Parallel()
			count := &blocking{}
			client := luatomictest.Client(t, func(o *redis.Options) { o.PoolSize = c.pool })
			client.AddHook(count)
			prefix := luatomictest.Namespace(t)
			d := lab.Must(sidekiq.New(client, &sidekiq.Options{Version: sidekiq.V7, Namespace: prefix}))
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan string, 100)
			var workers sync.WaitGroup
			var queues []string
			for w := range c.workers {
				var own []sidekiq.Queue
				for q := range 4 {
					own = append(own, sidekiq.Queue{Name: fmt.Sprint("q", w, q)})
					queues = append(queues, own[q].Name)
				}
				workers.Go(func() {
					opts := &sidekiq.WorkOptions{Queues: own}
					_, _ = d.Work(ctx, opts, func(_ context.Context, j *sidekiq.Delivery) error {
						done <- j.Queue
						return nil
					})
				})
			}
			defer workers.Wait()
			defer stop()
			for range 2 {
				for _, q := range queues {
					_, err := d.Push(ctx, sidekiq.Job{Class: "A", Queue: q})
					require.NoError(t, err)
					require.Equal(t, q, lab.Soon(t, 20*time.Second, "the job of "+q, done))
				}
			}
			count.mu.Lock()
			defer count.mu.Unlock()
			require.LessOrEqual(t, count.most, c.most)
			require.Equal(t, c.most > 0, count.most > 0)
		})
	}
}
