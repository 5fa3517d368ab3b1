package lua_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// After a failover a connection may lead to a replica. While a call that has met one is sent first and meets it again,
// the calls beside it are not sent: they have no reply, and are retried.
func TestACallBesideOneThatMeetsAReplicaHasNoReply(t *testing.T) {
	t.Parallel()
	server := startFake(t, func(_ string, nth int) string {
		if nth <= 3 {
			return "-READONLY You can't write against a read only replica."
		}
		return ":7"
	})
	client, s, ctx := server.client(t), coldCount(t, lua.RetryNever), within(t, 10*time.Second)
	met, too, beside := newCall(s, "a"), newCall(s, "b"), newCall(s, "c")
	for _, err := range lua.Attempt(ctx, client, met, too) {
		require.ErrorContains(t, requireOutcome(t, err, lua.ErrNotExecuted), "READONLY")
	}
	errs := lua.Attempt(ctx, client, met, too, beside)
	require.Equal(t, 3, server.count("EVALSHA"), "one call is sent first")
	require.ErrorContains(t, requireOutcome(t, errs[1], lua.ErrNotExecuted), "READONLY")
	require.NotContains(t, errs[1].Error(), "not sent", "what it met is more specific")
	require.ErrorContains(t, requireOutcome(t, errs[2], lua.ErrNotExecuted), "not sent")
	require.Equal(t, []error{nil, nil, nil}, lua.Attempt(ctx, client, met, too, beside))
}

// The error of a call whose context has ended has the cause, however the call came to know of the end.
func TestACallWhoseContextEndsTellsTheCause(t *testing.T) {
	t.Parallel()
	opts := *luatomictest.Client(t).Options()
	opts.DialTimeout, opts.DialerRetries = 50*time.Millisecond, 1 // go-redis goes on behind the call
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	shut := redis.NewClient(&opts)
	t.Cleanup(func() { _ = shut.Close() })
	s, cause := coldCount(t, lua.RetryNever), errors.New("the wait is over")
	for name, of := range map[string]struct {
		client lua.Client
		wait   time.Duration
	}{
		"over, shared":          {luatomictest.Client(t), 0},
		"over, alone":           {lua.Direct(luatomictest.Client(t)), 0},
		"no connection, shared": {shut, 30 * time.Millisecond},
		"no connection, alone":  {lua.Direct(shut), 30 * time.Millisecond},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), of.wait, cause)
		defer cancel()
		_, err := runInt(ctx, of.client, s, luatomictest.Namespace(t))
		require.ErrorIs(t, err, cause, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorIs(t, err, lua.ErrNotExecuted, name)
	}
}

// An AutoPipeliner that does not wait returns before the command has a reply.
func TestACallOnAnAsyncAutoPipelinerHasItsReply(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(lua.Client) lua.Client{
		"shared": func(c lua.Client) lua.Client { return c },
		"direct": lua.Direct,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, key := luatomictest.Client(t), luatomictest.Namespace(t)
			async, err := client.AsyncAutoPipeline()
			require.NoError(t, err)
			t.Cleanup(func() { _ = async.Close() })
			s, ctx, piped := coldCount(t, lua.RetryNever), within(t, 10*time.Second), by(async)
			for want := range 2 {
				n, err := runInt(ctx, piped, s, key)
				require.NoError(t, err)
				require.EqualValues(t, want+1, n)
			}
			require.NoError(t, client.Del(ctx, key).Err())
			require.NoError(t, client.RPush(ctx, key, "x").Err())
			_, err = runInt(ctx, piped, s, key)
			require.ErrorIs(t, err, lua.ErrWrongType)
		})
	}
}

// A program that forgot to make its client learns so from each call. It does not end by a panic in a goroutine of the
// runtime, which no caller can recover.
func TestANilClientIsAnError(t *testing.T) {
	t.Parallel()
	s := newScript("count", countSource, lua.RetrySafe)
	for name, client := range map[string]lua.Client{"nil": nil, "a nil Client": (*redis.Client)(nil),
		"a nil ClusterClient": (*redis.ClusterClient)(nil), "guarded": lua.Guard(nil, held{"lease", "tok"})} {
		const want = "count: the client is nil: make it before its first call"
		for range 2 {
			_, err := runInt(within(t, time.Minute), lua.Direct(client), withGuard(s), "k")
			require.EqualError(t, err, want, name)
			b := lua.NewBatch(client)
			f := lua.Queue(b, newCall(withGuard(s), "k"), decodeInt)
			require.ErrorContains(t, b.Exec(within(t, time.Minute)), want, name)
			_, err = f.Get()
			require.EqualError(t, err, want, name)
		}
	}
}
