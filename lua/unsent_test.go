package lua_test

import (
	"testing"
	"time"

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

// An AutoPipeliner that does not wait returns before the command has a reply.
func TestACallOnAnAsyncAutoPipelinerHasItsReply(t *testing.T) {
	t.Parallel()
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	pipeliner, err := client.AsyncAutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipeliner.Close() })
	s, ctx := coldCount(t, lua.RetryNever), within(t, 10*time.Second)
	for want := range 2 {
		n, err := runInt(ctx, pipeliner, s, key)
		require.NoError(t, err)
		require.EqualValues(t, want+1, n)
	}
	require.NoError(t, client.Del(ctx, key).Err())
	require.NoError(t, client.RPush(ctx, key, "x").Err())
	_, err = runInt(ctx, pipeliner, s, key)
	require.ErrorIs(t, err, lua.ErrWrongType)
}
