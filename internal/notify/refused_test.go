package notify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// A server that cannot save its data refuses PING. It answers, so the subscription stays, and nothing is reported.
func TestAServerThatCannotSaveKeepsItsSubscriptions(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t, "--save", "3600 1")
	admin, client := server.Client(), server.Client()
	lab.FailSnapshot(t, admin)
	require.True(t, redis.HasErrorPrefix(admin.Ping(ctx).Err(), "MISCONF"))
	require.NoError(t, admin.ConfigResetStat(ctx).Err())
	h := record(t, client)
	h.Lost = func(channel string, err error) { t.Errorf("lost %q: %v", channel, err) }
	require.NoError(t, h.Subscribe(ctx, "c"))
	luatomictest.Eventually(t, 20*time.Second, "two PINGs are refused", func() bool {
		return strings.Contains(admin.Info(ctx, "errorstats").Val(), "errorstat_MISCONF:count=2")
	})
	require.Equal(t, int64(1), admin.Publish(ctx, "c", "").Val())
	luatomictest.Eventually(t, 10*time.Second, "the message comes", func() bool { return h.messages.Load() == 1 })
	require.Zero(t, h.again.Load())
}
