package rpc_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/rpc"
)

// A bus subscribes in a goroutine of its own, where a panic ends the process.
func TestABusRefusesANilClient(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]lua.Client{"nil": nil, "a nil Client": (*redis.Client)(nil),
		"a nil ClusterClient": (*redis.ClusterClient)(nil), "guarded": lua.Guard((*redis.Client)(nil), nil)} {
		_, err := rpc.New(client, "b", nil)
		require.EqualError(t, err, "luatomic: bus \"b\": the client is nil: make it before its first call", name)
	}
}

// A name that no method can have would be withdrawn again with each heartbeat, and a large one would fail each.
func TestUnserveRefusesABadName(t *testing.T) {
	t.Parallel()
	b, err := rpc.New(new(redis.Client), "b", nil)
	require.NoError(t, err)
	for _, name := range []string{"", "a{b", strings.Repeat("a", 2<<20)} {
		err = rpc.NewMethod[int, int](name).Unserve(t.Context(), b)
		require.ErrorIs(t, err, lua.ErrBadName)
	}
}
