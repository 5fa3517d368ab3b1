package queue_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// subscribers counts the connections of a server that are subscribed.
func subscribers(t *testing.T, c *redis.Client) int {
	t.Helper()
	list, err := c.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

// A thousand idle consumers and pollers of one client have one subscription connection in all and at most four
// goroutines each, send nothing but the ping of that connection and the report of the process, and each is woken by its
// own queue.
func TestAThousandConsumersShareAConnection(t *testing.T) {
	lab.Unmarked(t)
	const consumers, pollers = 1000, 100
	server := luatomictest.StartServer(t)
	client, admin := server.Client(), server.Client()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	before := runtime.NumGoroutine()
	got := make(chan string, consumers)
	queues := make([]*queue.Queue, consumers)
	for i := range queues {
		q, err := queue.New(client, fmt.Sprint("q", i), &queue.Options{Lease: time.Hour})
		require.NoError(t, err)
		queues[i] = q
		running.Go(func() {
			_, _ = q.Consume(ctx, &queue.ConsumeOptions{Idle: time.Hour},
				func(_ context.Context, d *queue.Delivery) error {
					got <- d.ID
					return nil
				})
		})
	}
	running.Go(func() { _ = queue.NewPoller(&queue.PollerOptions{Idle: time.Hour}, queues[:pollers]...).Run(ctx) })
	luatomictest.Eventually(t, time.Minute, "all wait", func() bool {
		waiting := 0
		for i := range queues {
			waiting += int(admin.ZCard(ctx, lab.Key(queues[i], "w")).Val())
		}
		return waiting == consumers+pollers
	})
	require.Equal(t, 1, subscribers(t, admin))
	require.LessOrEqual(t, runtime.NumGoroutine()-before, 4*consumers)
	t.Logf("%.2f goroutines a consumer", float64(runtime.NumGoroutine()-before)/consumers)
	luatomictest.Eventually(t, time.Minute, "none sends anything any more", func() bool {
		calls := lab.Calls(t, admin)["evalsha"]
		time.Sleep(time.Second)
		return lab.Calls(t, admin)["evalsha"] == calls
	})
	commands := func() int { return lab.Calls(t, admin)["ping"] + lab.Calls(t, admin)["evalsha"] }
	start := commands()
	time.Sleep(4 * time.Second)
	require.LessOrEqual(t, commands()-start, 20, "a ping every two seconds, a report every five; a poll of all is 1000")
	for _, q := range queues {
		_, err := queue.New(admin, q.Name(), nil)
		require.NoError(t, err)
		lab.Push(t, q, queue.Job{ID: q.Name()})
	}
	for range queues {
		select {
		case <-got:
		case <-time.After(soonAwake):
			t.Fatal("a consumer was not woken")
		}
	}
}
