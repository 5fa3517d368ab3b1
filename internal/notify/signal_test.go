package notify_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestWaitIsNeverEarly(t *testing.T) {
	t.Parallel()
	s := notify.NewSignal(nil, "c")
	for _, d := range []time.Duration{
		50 * time.Microsecond, 700 * time.Microsecond, time.Millisecond, 1300 * time.Microsecond, 5 * time.Millisecond,
	} {
		for range 20 {
			start := time.Now()
			s.Wait(t.Context(), d)
			require.GreaterOrEqual(t, time.Since(start), d)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := notify.NewSignal(nil, "c")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	start := time.Now()
	s.Wait(ctx, time.Hour)
	require.Less(t, time.Since(start), time.Minute)
}

// A signal follows the slot of its channel to another node, in the background.
func TestSignalFollowsItsSlot(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	s := notify.NewSignal(c, "{q}:w:one")
	s.Start(ctx)
	defer s.Stop()
	for range 3 {
		slot, err := cluster.Slot(ctx, "{q}")
		require.NoError(t, err)
		owner, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		luatomictest.Eventually(t, 30*time.Second, "the owner of the slot counts it", func() bool {
			c.ReloadState(ctx)
			return s.Confirmed(ctx) && cluster.Nodes()[owner].Client().Publish(ctx, "{q}:w:one", "").Val() == 1
		})
		<-s.Received()
		m, err := cluster.MigrateSlot(ctx, slot, owner, (owner+1)%3)
		require.NoError(t, err)
		require.NoError(t, m.Finish(ctx))
	}
}

// A hint is given the messages of its channel, and ends no wait.
func TestHintEndsNoWait(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	channel := "{" + luatomictest.Namespace(t) + "}"
	s := notify.NewSignal(c, channel+":w")
	hints := make(chan string, 1)
	s.Hint(channel+":l", func(message string) { hints <- message })
	s.Start(t.Context())
	defer s.Stop()
	<-s.Received() // the confirmation of the other channel
	luatomictest.Eventually(t, 20*time.Second, "the hint arrives", func() bool {
		return c.Publish(t.Context(), channel+":l", "id").Val() == 1
	})
	require.Equal(t, "id", <-hints)
	require.Empty(t, s.Received())
	require.True(t, s.Confirmed(t.Context()))
	require.NoError(t, c.Publish(t.Context(), channel+":w", "").Err())
	<-s.Received()
}
