package lua_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// go-redis waits for an answer for a minute here. Exec does not: it returns at the end of its context. The caller may
// use the batch again, and the memory of its arguments, while the calls go on.
func TestExecReturnsAtTheEndOfItsContextWhateverTheServerDoes(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	t.Cleanup(server.Resume)
	client := server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute })
	s := newScript("set", "redis.call('SET', KEYS[1], ARGV[1]) return 1", lua.RetryNever)
	text := []byte("as it was")
	set := func(key string) *lua.Call {
		c := lua.NewCall(s, 1, 1)
		c.Key("key", key)
		c.EndKeys()
		c.Bytes(&text)
		return c
	}
	b := lua.NewBatch(client)
	warm := lua.Queue(b, set("warm"), decodeInt)
	require.NoError(t, b.Exec(t.Context()))
	_, err := warm.Get()
	require.NoError(t, err)
	server.Pause()
	b.Wait(1, 10*time.Millisecond)
	f := lua.Queue(b, set("key"), decodeInt)
	bad := lua.Queue(b, newCall(s, ""), decodeInt)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = b.Exec(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	copy(text, "changed by then")
	require.Less(t, time.Since(deadlineOf(t, ctx)), 30*time.Second)
	_, err = f.Get()
	requireOutcome(t, err, lua.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, f.Resent())
	_, err = bad.Get()
	require.ErrorIs(t, err, lua.ErrBadName, "it was never sent")
	n, err := b.Acked()
	require.Zero(t, n)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	server.Resume()
	again := lua.Queue(b, set("again"), decodeInt)
	require.NoError(t, b.Exec(within(t, time.Minute)))
	_, err = again.Get()
	require.NoError(t, err)
	_, err = f.Get()
	requireOutcome(t, err, lua.ErrOutcomeUnknown)
	luatomictest.Eventually(t, 20*time.Second, "the call that was left runs", func() bool {
		return server.Client().Get(t.Context(), "key").Val() == "as it was"
	})
}

func deadlineOf(t *testing.T, ctx context.Context) time.Time {
	t.Helper()
	end, ok := ctx.Deadline()
	require.True(t, ok)
	return end
}

// A reply that answers a repeat says so, of its own call alone.
func TestAFutureSaysThatItsCallWasRepeated(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	o, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	s := newScript("count", countSource, lua.RetrySafe)
	s2 := newScript("other", countSource+" ", lua.RetrySafe)
	b := lua.NewBatch(client)
	once := func() (first, second *lua.Future[int64]) {
		first, second = lua.Queue(b, newCall(s, "a"), decodeInt), lua.Queue(b, newCall(s2, "b"), decodeInt)
		require.NoError(t, b.Exec(within(t, time.Minute)))
		return first, second
	}
	first, second := once()
	require.False(t, first.Resent() || second.Resent(), "the scripts are loaded")
	proxy.Drop(1, func(args []string) bool { return len(args) > 1 && args[1] == s2.SHA })
	first, second = once()
	require.False(t, first.Resent())
	require.True(t, second.Resent())
}
