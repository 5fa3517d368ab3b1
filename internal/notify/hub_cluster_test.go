package notify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/luatomictest"
)

// A sharded subscription whose slot moves is reported as lost, and follows the slot. What else is subscribed on the
// connection stays.
func TestShardedSubscriptionFollowsItsSlot(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	lost, messages := make(chan error, 100), make(chan string, 100)
	h := notify.NewHub(c)
	h.Shard = true
	h.Message = func(_, message string) { messages <- message }
	h.Confirmed = func(string, bool) {}
	h.Lost = func(_ string, err error) { lost <- err }
	t.Cleanup(h.Close)
	require.NoError(t, h.Subscribe(ctx, "{link}:a"))
	slot, err := cluster.Slot(ctx, "{link}")
	require.NoError(t, err)
	plain := record(t, c) // a subscription of the server that the slot leaves
	require.NoError(t, plain.Subscribe(ctx, "{link}:plain"))
	for range 3 {
		from, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		at := h.Server("{link}:a")
		require.Equal(t, cluster.Nodes()[from].Addr(), at)
		m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
		require.NoError(t, err)
		require.NoError(t, m.Finish(ctx))
		select {
		case err := <-lost:
			require.ErrorContains(t, err, "moved to another server")
		case <-time.After(20 * time.Second):
			t.Fatal("the end of the subscription is not reported")
		}
		luatomictest.Eventually(t, 20*time.Second, "it follows", func() bool {
			return h.Subscribed("{link}:a") && h.Server("{link}:a") != at
		})
		require.NoError(t, c.SPublish(ctx, "{link}:a", "hi").Err())
		select {
		case m := <-messages:
			require.Equal(t, "hi", m)
		case <-time.After(20 * time.Second):
			t.Fatal("the message does not arrive")
		}
	}
	require.True(t, plain.Subscribed("{link}:plain"))
	require.Zero(t, plain.again.Load(), "no connection was replaced")
	require.Empty(t, lost)
}
