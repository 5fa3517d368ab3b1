package notify_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/luatomictest"
)

// A process that stood still finds the answers of that time, and keeps its connection.
func TestAnAnswerThatWasThereAllTheTimeIsNotLate(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	ps := server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute }).Subscribe(ctx, "c")
	t.Cleanup(func() { _ = ps.Close() })
	_, err := ps.Receive(ctx)
	require.NoError(t, err)
	next, other := notify.Overdue(ps), server.Client()
	for range 2 {
		require.NoError(t, ps.Ping(ctx))
		for range 2 { // the server has answered the subscription's, then
			require.NoError(t, other.Ping(ctx).Err())
		}
		m, err := next(ctx)
		require.NoError(t, err)
		require.IsType(t, (*redis.Pong)(nil), m)
	}

	server.Pause()
	t.Cleanup(server.Resume)
	require.NoError(t, ps.Ping(ctx))
	began := time.Now()
	_, err = next(ctx)
	require.ErrorContains(t, err, "does not answer a PING")
	require.Less(t, time.Since(began), 30*time.Second)
}
