package notify_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/luatomictest"
)

// A link in a cluster connects to the owner of the slot, and reports when the owner changes.
func TestLinkFollowsItsSlot(t *testing.T) {
	t.Parallel()
	ctx, cluster := t.Context(), luatomictest.StartCluster(t)
	c := cluster.Client()
	ups, downs, messages := make(chan bool, 100), make(chan error, 1000), make(chan string, 100)
	l := &notify.Link{
		Channels: []string{"{link}:a", "{link}:b"}, Shard: true,
		Up: func() { ups <- true }, Down: func(err error) { downs <- err }, Message: func(m string) { messages <- m },
	}
	require.True(t, l.Moved(0), "it leads nowhere")
	require.Zero(t, l.Confirmed())
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(running, c)
	}()
	defer func() {
		stop()
		<-ended
	}()
	up := func() {
		t.Helper()
		select {
		case <-ups:
		case <-time.After(30 * time.Second):
			t.Fatal("the link is not subscribed")
		}
		require.Positive(t, l.Confirmed())
		slot, err := cluster.Slot(ctx, "{link}")
		require.NoError(t, err)
		owner, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		for i, node := range cluster.Nodes() {
			want := 0
			if i == owner {
				want = 2
			}
			luatomictest.Eventually(t, 20*time.Second, fmt.Sprint(want, " channels at node ", i), func() bool {
				n, err := node.Client().PubSubShardChannels(ctx, "*").Result()
				require.NoError(t, err)
				return len(n) == want
			})
		}
		require.NoError(t, c.SPublish(ctx, "{link}:b", "hi").Err())
		require.Equal(t, "hi", <-messages)
	}
	up()
	require.False(t, l.Moved(time.Hour), "it is where it began")
	for range 4 {
		slot, err := cluster.Slot(ctx, "{link}")
		require.NoError(t, err)
		from, err := cluster.Owner(ctx, slot)
		require.NoError(t, err)
		m, err := cluster.MigrateSlot(ctx, slot, from, (from+1)%3)
		require.NoError(t, err)
		require.NoError(t, m.Finish(ctx))
		up()
		require.True(t, l.Moved(time.Hour))
		require.False(t, l.Moved(0))
		require.ErrorContains(t, <-downs, "moved to another server")
		for len(downs) > 0 { // MOVED, until the client reloads the slots
			<-downs
		}
	}
	// A connection that breaks, and one that is reset: the link reconnects to the same server.
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
	}
	up()
	require.Error(t, <-downs)
	for len(downs) > 0 {
		<-downs
	}
	l.Reset()
	up()
	require.Empty(t, downs)

	stop()
	<-ended
	require.True(t, l.Moved(0))
	bad := &notify.Link{Channels: l.Channels, Shard: true, Up: func() {}, Message: l.Message, Down: func(err error) {
		select {
		case downs <- err:
		default:
		}
	}}
	for _, node := range cluster.Nodes() {
		node.Kill()
	}
	running, stop = context.WithTimeout(ctx, time.Minute)
	defer stop()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		bad.Run(running, c)
	}()
	require.Error(t, <-downs)
	stop()
	<-ended
	require.True(t, errors.Is(running.Err(), context.Canceled))
}
