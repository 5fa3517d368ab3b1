package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// uncounted is a hook by which a server counts no subscriber.
type uncounted struct{}

func (uncounted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (uncounted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (uncounted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if n, ok := cmd.(*redis.MapStringIntCmd); ok {
			n.SetVal(map[string]int64{})
			return nil
		}
		return next(ctx, cmd)
	}
}

// The connection of a link can be replaced before a heartbeat tells the node that the server does not have the link.
// The link knows why it was down.
func TestAConnectionThatIsReplacedMovesTheLink(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	client.AddHook(uncounted{})
	b, err := New(client, luatomictest.Namespace(t), &Options{Lease: time.Hour, Grace: -1})
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = b.Run(ctx)
	}()
	defer func() {
		end()
		<-ran
	}()
	require.NoError(t, b.Ready(t.Context()))
	require.False(t, b.link.movedWithin(time.Hour))
	luatomictest.Eventually(t, 30*time.Second, "it has moved, and is up again", func() bool {
		return b.link.movedWithin(time.Hour) && !b.link.movedWithin(0)
	})
}

// Each heartbeat says whether the server has the link. A link that it has again has not moved: a missing subscriber of
// a node is news then.
func TestAHeartbeatCountsTheLink(t *testing.T) {
	t.Parallel()
	b, err := New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	for _, channel := range b.link.channels {
		b.link.confirm(channel, "", false)
	}
	b.noteReceivers(0, nil)
	require.True(t, b.link.movedWithin(0))
	b.noteReceivers(1, nil)
	require.False(t, b.link.movedWithin(time.Hour))
}
