package luatomictest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// through returns a proxy before the shared server and a client behind it.
func through(t *testing.T, opts ...func(*redis.Options)) (*luatomictest.LossyProxy, *redis.Client) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	options, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	for _, opt := range opts {
		opt(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return proxy, client
}

func noRetry(o *redis.Options) { o.MaxRetries = -1 }

func TestLossyProxyDropsExactlyTheChosenReplies(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			proxy, client := through(t, noRetry, func(o *redis.Options) { o.Protocol = protocol })
			key, ctx := luatomictest.Namespace(t), t.Context()
			require.NoError(t, client.Incr(ctx, key).Err())

			proxy.Drop(2, luatomictest.Command("incr", key))
			require.NoError(t, client.Get(ctx, key).Err(), "another command is not touched")
			require.Error(t, client.Incr(ctx, key).Err())
			require.Error(t, client.Incr(ctx, key).Err())
			got, err := client.Incr(ctx, key).Result()
			require.NoError(t, err)
			require.EqualValues(t, 4, got, "each lost reply's command ran once")
			require.Equal(t, 4, proxy.Executed(luatomictest.Command("INCR", key)))
			require.Equal(t, 2, proxy.Stats().Lost)
			require.Equal(t, 3, proxy.Stats().Connections)
		})
	}
}

func TestLossyProxyShowsThatAClientRetries(t *testing.T) {
	t.Parallel()
	for lost := range 4 {
		t.Run(fmt.Sprintf("%d lost", lost), func(t *testing.T) {
			t.Parallel()
			proxy, client := through(t)
			key, ctx := luatomictest.Namespace(t), t.Context()
			proxy.Drop(lost, luatomictest.Command("INCR"))
			got, err := client.Incr(ctx, key).Result()
			require.NoError(t, err, "the caller sees success")
			require.EqualValues(t, lost+1, got, "and the command ran once for each lost reply more")
			require.Equal(t, lost+1, proxy.Executed(luatomictest.Command("INCR")))
		})
	}
}

func TestLossyProxyDropsAReplyInsideAPipeline(t *testing.T) {
	t.Parallel()
	proxy, client := through(t, noRetry)
	key, ctx := luatomictest.Namespace(t), t.Context()
	require.NoError(t, client.Ping(ctx).Err())
	proxy.Drop(1, func(args []string) bool { return args[0] == "rpush" && args[2] == "3" })

	pipe := client.Pipeline()
	var cmds []*redis.IntCmd
	for i := 1; i <= 5; i++ {
		cmds = append(cmds, pipe.RPush(ctx, key, i))
	}
	_, err := pipe.Exec(ctx)
	require.Error(t, err)
	require.EqualValues(t, []int64{1, 2}, []int64{cmds[0].Val(), cmds[1].Val()}, "replies before the lost one arrive")
	require.Error(t, cmds[2].Err())
	luatomictest.Eventually(t, 20*time.Second, "the third push is counted", func() bool {
		return proxy.Executed(luatomictest.Command("RPUSH", key, "3")) == 1
	})
	items, err := client.LRange(ctx, key, 0, -1).Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(items), 3)
	require.Equal(t, "3", items[2])
}

func TestLossyProxyPairsRepliesOfEveryShape(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			proxy, client := through(t, noRetry, func(o *redis.Options) { o.Protocol = protocol })
			key, ctx := luatomictest.Namespace(t), t.Context()
			big := string(bytes.Repeat([]byte("\r\n*$:x"), 200_000))

			pipe := client.TxPipeline()
			pipe.Set(ctx, key+"b", big, 0)
			pipe.HSet(ctx, key+"h", "a", "1", "b", "")
			body := pipe.Get(ctx, key+"b")
			absent := pipe.Get(ctx, key+"none")
			hash := pipe.HGetAll(ctx, key+"h")
			score := pipe.ZIncrBy(ctx, key+"z", 0.5, "m")
			member := pipe.SIsMember(ctx, key+"s", "m")
			nested := pipe.Eval(ctx, "return {1, {2, {false, 'x'}}, {}, ''}", nil)
			_, err := pipe.Exec(ctx)
			require.ErrorIs(t, err, redis.Nil)
			require.ErrorIs(t, absent.Err(), redis.Nil)
			require.Equal(t, big, body.Val())
			require.Equal(t, map[string]string{"a": "1", "b": ""}, hash.Val())
			require.InDelta(t, 0.5, score.Val(), 0)
			require.False(t, member.Val())
			require.Equal(t, []any{int64(1), []any{int64(2), []any{nil, "x"}}, []any{}, ""}, nested.Val())

			require.ErrorContains(t, client.Incr(ctx, key+"h").Err(), "WRONGTYPE")
			proxy.Drop(1, luatomictest.Command("PING"))
			require.Error(t, client.Ping(ctx).Err(), "requests and replies are still paired")
			require.NoError(t, client.Ping(ctx).Err())
		})
	}
}

func TestLossyProxyPassesPubSub(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			proxy, client := through(t, func(o *redis.Options) { o.Protocol = protocol })
			ns, ctx := luatomictest.Namespace(t), t.Context()
			sub := client.Subscribe(ctx, ns+"a", ns+"b", ns+"c")
			t.Cleanup(func() { _ = sub.Close() })
			for range 3 {
				confirmed, err := sub.ReceiveTimeout(ctx, 20*time.Second)
				require.NoError(t, err)
				require.IsType(t, &redis.Subscription{}, confirmed)
			}
			for i := range 20 {
				require.NoError(t, client.Publish(ctx, ns+"b", i).Err())
			}
			require.NoError(t, sub.Ping(ctx))
			for i := 0; i < 21; i++ {
				got, err := sub.ReceiveTimeout(ctx, 20*time.Second)
				require.NoError(t, err)
				if m, ok := got.(*redis.Message); ok {
					require.Equal(t, fmt.Sprint(i), m.Payload)
				} else {
					require.Equal(t, 20, i, "the PONG comes last")
				}
			}
			require.Equal(t, 1, proxy.Executed(luatomictest.Command("SUBSCRIBE")))

			proxy.Drop(1, luatomictest.Command("SUBSCRIBE"))
			require.NoError(t, sub.Subscribe(ctx, ns+"d"))
			luatomictest.Eventually(t, 30*time.Second, "the client subscribes again after the cut", func() bool {
				_, _ = sub.ReceiveTimeout(ctx, 50*time.Millisecond)
				return proxy.Executed(luatomictest.Command("SUBSCRIBE")) >= 3
			})
			require.Equal(t, 1, proxy.Stats().Lost)
		})
	}
}

func TestLossyProxyDropRequest(t *testing.T) {
	t.Parallel()
	proxy, client := through(t, noRetry)
	key, ctx := luatomictest.Namespace(t), t.Context()
	proxy.DropRequest(1, luatomictest.Command("INCR"))
	require.Error(t, client.Incr(ctx, key).Err())
	got, err := client.Incr(ctx, key).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, got, "the server never saw the first one")
	require.Equal(t, 1, proxy.Stats().Refused)
}

func TestLossyProxyCutAll(t *testing.T) {
	t.Parallel()
	proxy, client := through(t, noRetry)
	key, ctx := luatomictest.Namespace(t), t.Context()
	popped := make(chan error, 1)
	go func() { popped <- client.BLPop(ctx, 30*time.Second, key).Err() }()
	luatomictest.Eventually(t, 20*time.Second, "the blocking pop is at the server", func() bool {
		return proxy.Stats().Requests > proxy.Stats().Executed
	})
	proxy.CutAll()
	select {
	case err := <-popped:
		require.Error(t, err)
		require.NotErrorIs(t, err, redis.Nil)
	case <-time.After(25 * time.Second):
		t.Fatal("the cut did not end the blocking pop")
	}
	require.NoError(t, client.Ping(ctx).Err(), "the proxy still serves")
}

func TestLossyProxyRedirect(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first, second := luatomictest.StartServer(t), luatomictest.StartServer(t)
	require.NoError(t, first.Client().Set(ctx, "name", "first", 0).Err())
	require.NoError(t, second.Client().Set(ctx, "name", "second", 0).Err())
	proxy := luatomictest.NewLossyProxy(t, first.URL())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	for i, server := range []*luatomictest.Server{first, second, first} {
		proxy.Redirect(t, server.URL())
		require.Equal(t, []string{"first", "second"}[i%2], client.Get(ctx, "name").Val())
	}
	require.GreaterOrEqual(t, proxy.Stats().Connections, 3)
}

func TestLossyProxyBlackhole(t *testing.T) {
	t.Parallel()
	proxy, client := through(t, noRetry, func(o *redis.Options) { o.ReadTimeout = 5 * time.Second })
	key, ctx := luatomictest.Namespace(t), t.Context()
	require.NoError(t, client.Ping(ctx).Err())
	before := proxy.Stats().Requests

	proxy.Blackhole(true)
	var timeout net.Error
	err := client.Incr(ctx, key).Err()
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "silence, not a cut: %v", err)
	require.Equal(t, before, proxy.Stats().Requests)

	proxy.Blackhole(false)
	luatomictest.Eventually(t, 20*time.Second, "the held request runs after its caller gave up", func() bool {
		n, err := luatomictest.Client(t).Get(ctx, key).Int()
		return err == nil && n == 1
	})
	luatomictest.Eventually(t, 20*time.Second, "the proxy serves again", func() bool {
		return client.Ping(ctx).Err() == nil
	})
}

func TestLossyProxyWhoseServerIsGone(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, "redis://user:pa%20ss@127.0.0.1:1/5")
	require.True(t, strings.HasSuffix(proxy.URL(), "/5"))
	options, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	require.Equal(t, "pa ss", options.Password)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = client.Ping(ctx).Err()
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded), "an error at once, not a wait")
}
