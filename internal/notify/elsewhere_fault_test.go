package notify_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// A server that is replaced while it lives on keeps the subscriptions. They follow the commands of their client.
func TestSubscriptionsFollowTheirClient(t *testing.T) {
	t.Parallel()
	before, after := luatomictest.StartServer(t), luatomictest.StartServer(t)
	var address atomic.Value
	address.Store(before.Addr())
	client := before.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address.Load().(string))
		}
	})
	h := record(t, client)
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	require.Zero(t, client.Exists(t.Context(), "c").Val())
	address.Store(after.Addr())
	require.NoError(t, before.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	replaced := time.Now()
	luatomictest.Eventually(t, 30*time.Second, "it is subscribed at the new server", func() bool {
		return after.Client().PubSubNumSub(t.Context(), "c").Val()["c"] == 1
	})
	t.Logf("after %v", time.Since(replaced))
	luatomictest.Eventually(t, 10*time.Second, "the waiter was notified of the gap", func() bool {
		return h.again.Load() == 1 && h.Subscribed("c")
	})
	require.Zero(t, before.Client().PubSubNumSub(t.Context(), "c").Val()["c"])
}

// So do those of a client that knows its servers by name, without a waiter that looks.
func TestSubscriptionsFollowTheSlotsOfTheirClient(t *testing.T) {
	t.Parallel()
	before, after := luatomictest.StartServer(t), luatomictest.StartServer(t)
	var address atomic.Value
	address.Store(before.Addr())
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			nodes := []redis.ClusterNode{{Addr: address.Load().(string)}}
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: nodes}}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	h := record(t, client)
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	require.EqualValues(t, 1, before.Client().Publish(t.Context(), "c", "").Val())
	address.Store(after.Addr())
	client.ReloadState(t.Context())
	luatomictest.Eventually(t, 30*time.Second, "it is subscribed at the new server alone", func() bool {
		return after.Client().PubSubNumSub(t.Context(), "c").Val()["c"] == 1 && h.again.Load() == 1 &&
			before.Client().PubSubNumSub(t.Context(), "c").Val()["c"] == 0
	})
}

// asked is a hook that answers NUMSUB, and counts how often it was asked.
type asked struct {
	times   atomic.Int32
	answers func(cmd *redis.MapStringIntCmd, channel string)
}

func (*asked) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n, ok := cmd.(*redis.MapStringIntCmd)
		if !ok {
			return next(ctx, cmd)
		}
		a.answers(n, cmd.Args()[2].(string))
		a.times.Add(1)
		return cmd.Err()
	}
}

func noSubscriber(cmd *redis.MapStringIntCmd, channel string) {
	cmd.SetVal(map[string]int64{channel: 0})
}

// Where a new connection does not help, as behind a proxy that counts no subscriber, the next one comes later each
// time: messages are lost while it is made.
func TestSubscriptionsAreNotReplacedInVain(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t).Client()
	none := &asked{answers: noSubscriber}
	client.AddHook(none)
	h := record(t, client)
	begun := time.Now()
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	luatomictest.Eventually(t, 30*time.Second, "the connection is replaced twice", func() bool {
		return h.again.Load() == 2
	})
	require.Greater(t, time.Since(begun), 6*time.Second, "after 2 s and after 4 s")
	require.EqualValues(t, 2, none.times.Load())
}

// A connection stays where its server does not answer the question, and where the channel was left before the answer.
func TestOnlyAMissingSubscriptionReplacesAConnection(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]func(h *recorder, cmd *redis.MapStringIntCmd, channel string){
		"error": func(_ *recorder, cmd *redis.MapStringIntCmd, _ string) { cmd.SetErr(errors.New("LOADING")) },
		"left": func(h *recorder, cmd *redis.MapStringIntCmd, channel string) {
			h.Unsubscribe(channel)
			_ = h.Subscribe(t.Context(), channel)
			noSubscriber(cmd, channel)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := luatomictest.StartServer(t).Client()
			h := record(t, client)
			a := &asked{answers: func(cmd *redis.MapStringIntCmd, channel string) { answers(h, cmd, channel) }}
			client.AddHook(a)
			require.NoError(t, h.Subscribe(t.Context(), "c"))
			luatomictest.Eventually(t, 30*time.Second, "it asks twice", func() bool { return a.times.Load() == 2 })
			require.Zero(t, h.again.Load())
			require.EqualValues(t, 1, client.Publish(t.Context(), "c", "").Val())
		})
	}
}

// A connection of a user who may not ask does so once, and not every two seconds: the server logs each refusal.
func TestAUserWhoMayNotCountSubscribersAsksOnce(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "some", "on", ">pw", "~*", "&*", "+@all",
		"-pubsub").Err())
	h := record(t, server.Client(func(o *redis.Options) { o.Username, o.Password = "some", "pw" }))
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	before := lab.Calls(t, admin)["ping"]
	luatomictest.Eventually(t, 30*time.Second, "the connection is pinged three times", func() bool {
		return lab.Calls(t, admin)["ping"] >= before+3
	})
	refused, err := admin.ACLLog(t.Context(), 100).Result()
	require.NoError(t, err)
	require.Len(t, refused, 1)
	require.EqualValues(t, 1, refused[0].Count)
	require.True(t, h.Subscribed("c"))
	require.Zero(t, h.again.Load())
}
