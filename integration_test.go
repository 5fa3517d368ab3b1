//go:build container

package luatomic_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/container"
)

// containerClient is a client of a fresh container, which ends with the test. Without an engine the test fails.
func containerClient(t *testing.T) *redis.Client {
	t.Helper()
	server, err := container.Start(t.Logf)
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	options, err := redis.ParseURL(server.URL)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	t.Log(server.From)
	return client
}

// The four doors work on a container of the image: jobs now and later, a lock, a call.
func TestIntegrationOfTheDoorsOnAContainer(t *testing.T) {
	t.Parallel()
	client := containerClient(t)
	require.NoError(t, lua.Preload(t.Context(), client, luatomic.Scripts()...))
	for _, s := range luatomic.Scripts() {
		there, err := client.ScriptExists(t.Context(), s.SHA).Result()
		require.NoError(t, err)
		require.Equal(t, []bool{true}, there, s.Name)
	}
	t.Run("queue", func(t *testing.T) { jobsOnContainer(t, client) })
	t.Run("lock", func(t *testing.T) { lockOnContainer(t, client) })
	t.Run("call", func(t *testing.T) { callOnContainer(t, client) })
}

func jobsOnContainer(t *testing.T, client *redis.Client) {
	q, err := luatomic.NewQueue(client, "mail", nil)
	require.NoError(t, err)
	_, err = q.Push(t.Context(),
		luatomic.Job{Body: []byte("now")}, luatomic.Job{Body: []byte("later"), Delay: time.Second})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	got := make(chan string, 2)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Consume(ctx, nil, func(_ context.Context, d *luatomic.Delivery) error {
			got <- string(d.Body)
			return nil
		})
		ended <- err
	}()
	require.Equal(t, "now", <-got)
	require.Equal(t, "later", <-got)
	luatomictest.Eventually(t, 10*time.Second, "both jobs are acked", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Leased+stats.Ready+stats.Scheduled == 0
	})
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func lockOnContainer(t *testing.T, client *redis.Client) {
	locks := luatomic.NewLocker(client, nil)
	defer func() { require.NoError(t, locks.Close()) }()
	require.NoError(t, locks.Do(t.Context(), "report", func(_ context.Context, _ *luatomic.Lease) error {
		_, err := locks.Try(t.Context(), "report")
		require.ErrorIs(t, err, luatomic.ErrHeld)
		return nil
	}))
	lease, err := locks.Try(t.Context(), "report")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

func callOnContainer(t *testing.T, client *redis.Client) {
	bus, err := luatomic.NewBus(client, "math", nil)
	require.NoError(t, err)
	double := luatomic.NewMethod[int, int]("double")
	require.NoError(t, double.Serve(bus, func(_ context.Context, n int) (int, error) { return 2 * n, nil }, nil))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bus.Run(ctx) }()
	var got int
	luatomictest.Eventually(t, 10*time.Second, "the node answers", func() bool {
		got, err = double.Call(t.Context(), bus, 21, nil)
		return err == nil
	})
	require.Equal(t, 42, got)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
