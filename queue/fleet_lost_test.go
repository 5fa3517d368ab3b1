package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// A process finds that the server does not have its reports: none of them, or only older ones, as from an old snapshot.
// One that left the list because it was silent finds nothing of that kind.
func TestALossOfDataIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose  func(t *testing.T, prefix string)
		found bool
	}{
		"nothing is lost": {func(*testing.T, string) {}, false},
		"it left the list": {func(t *testing.T, prefix string) {
			about := keys.NewFleet(prefix).About
			for _, field := range luatomictest.Client(t).HKeys(t.Context(), about).Val() {
				if field != "" {
					require.NoError(t, luatomictest.Client(t).HDel(t.Context(), about, field).Err())
				}
			}
		}, false},
		"all is lost": {func(t *testing.T, prefix string) {
			fleet := keys.NewFleet(prefix)
			require.NoError(t, luatomictest.Client(t).Del(t.Context(), fleet.About, fleet.Workers, fleet.Queues).Err())
		}, true},
		"all is lost, and another process came first": {func(t *testing.T, prefix string) {
			require.NoError(t, luatomictest.Client(t).Del(t.Context(), keys.NewFleet(prefix).About).Err())
			_, report := queue.Reporter(luatomictest.Client(t), prefix)
			report(t.Context())
		}, true},
		"an old snapshot": {func(t *testing.T, prefix string) {
			c, about := luatomictest.Client(t), keys.NewFleet(prefix).About
			for field, text := range c.HGetAll(t.Context(), about).Val() {
				if field != "" {
					_, rest, _ := strings.Cut(text, " ")
					require.NoError(t, c.HSet(t.Context(), about, field, "1 "+rest).Err())
				}
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
			_, report := queue.Reporter(c, prefix)
			report(ctx)
			report(ctx)
			require.Zero(t, lab.Must(queue.ReadHistory(ctx, c, prefix)).Lost)
			test.lose(t, prefix)
			report(ctx)
			at := lab.Must(queue.ReadHistory(ctx, c, prefix)).Lost
			require.Equal(t, test.found, !at.IsZero())
			report(ctx)
			require.Equal(t, at, lab.Must(queue.ReadHistory(ctx, c, prefix)).Lost, "a loss is found once")
		})
	}
}

// A consumer learns that its server came back empty, and its queue is on the list again at once.
func TestAConsumerLearnsOfALossOfData(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	c := server.Client()
	q := lab.Must(queue.New(c, "mail", nil))
	var mu sync.Mutex
	var lost []error
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(ctx, &queue.ConsumeOptions{
			OnError: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, queue.ErrDataLost) {
					lost = append(lost, err)
				}
			},
		}, func(context.Context, *queue.Delivery) error { return nil })
		ended <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "it is listed", func() bool {
		return len(lab.Must(queue.Workers(t.Context(), c, ""))) == 1
	})
	require.NoError(t, c.FlushAll(t.Context()).Err())
	luatomictest.Eventually(t, 20*time.Second, "the loss is found, and the queue listed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(lost) == 1 && lab.Must(q.Listed(t.Context()))
	})
	require.ErrorContains(t, lost[0], `of "mail"`)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A server that was restarted with its data is younger than its list of processes. One that made the list is not.
func TestARestartWithDataIsFound(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	c, ctx := server.Client(), t.Context()
	require.Equal(t, queue.History{}, lab.Must(queue.ReadHistory(ctx, c, "")), "there is no list")
	_, report := queue.Reporter(c, "")
	report(ctx)
	was := lab.Must(queue.ReadHistory(ctx, c, ""))
	require.False(t, was.Restarted)
	require.WithinDuration(t, was.Now, was.Started, time.Minute)
	// The list is made older, so that the test need not wait for a later start.
	about := keys.NewFleet("").About
	made := fmt.Sprint(was.Now.Add(-time.Hour).UnixMicro(), " 0")
	require.NoError(t, c.HSet(ctx, about, "", made).Err())
	server.Restart()
	was = lab.Must(queue.ReadHistory(ctx, c, ""))
	require.True(t, was.Restarted)
	require.Zero(t, was.Lost)
	require.WithinDuration(t, was.Now, was.Started, time.Minute)
}

// A server that lost the list of queues has every queue in use on it again, whatever uses it and whatever else is lost.
func TestALostListHasEachQueueInUseAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, c *redis.Client){
		"FLUSHALL": func(t *testing.T, c *redis.Client) { require.NoError(t, c.FlushAll(t.Context()).Err()) },
		"an eviction": func(t *testing.T, c *redis.Client) {
			require.NoError(t, c.Del(t.Context(), keys.NewFleet("").Queues).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := luatomictest.StartServer(t).Client()
			open := func(name string) *queue.Queue { return lab.Must(queue.New(c, name, nil)) }
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			consume := func(name string, handle queue.Handler) {
				running.Go(func() { _, _ = open(name).Consume(ctx, nil, handle) })
			}
			consume("idle", acks)
			busy, works := open("busy"), make(chan struct{}, 1)
			consume("busy", func(ctx context.Context, _ *queue.Delivery) error {
				works <- struct{}{}
				<-ctx.Done()
				return nil
			})
			running.Go(func() { _ = queue.NewPoller(nil, open("polled")).Run(ctx) })
			pushed, all := open("pushed"), open("batched")
			push := func() {
				lab.Push(t, pushed, queue.Job{})
				pushAll(t, queue.Batch{Queue: all, Jobs: lab.Bodies(1)})
			}
			push()
			lab.Push(t, busy, queue.Job{})
			lab.Soon(t, 20*time.Second, "the job", works)
			inUse := []string{"/batched", "/busy", "/idle", "/polled", "/pushed"}
			listed := func() bool { return slices.Equal(inUse, names(t, c, "")) }
			luatomictest.Eventually(t, 20*time.Second, "they are listed", listed)
			for range 2 { // a process does not rely on one loss
				lose(t, c)
				push()
				luatomictest.Eventually(t, 20*time.Second, "they are listed again", listed)
			}
		})
	}
}
