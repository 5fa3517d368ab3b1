package ready_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/internal/ready"
)

// What other tests would notice is refused; what a test of its own keys does is not.
func TestARestrictedServerRefusesWhatOthersWouldNotice(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	options, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	require.NoError(t, ready.Restrict(t.Context(), options))
	c := server.Client()
	for _, words := range [][]any{
		{"FLUSHALL"}, {"FLUSHDB"}, {"CONFIG", "SET", "maxmemory", "1mb"}, {"CONFIG", "RESETSTAT"}, {"SCRIPT", "FLUSH"},
		{"CLIENT", "PAUSE", "1"}, {"REPLICAOF", "NO", "ONE"}, {"SHUTDOWN", "NOSAVE"},
		{"ACL", "DELUSER", "nobody"},
	} {
		require.True(t, redis.HasErrorPrefix(c.Do(t.Context(), words...).Err(), "NOPERM"), "%v", words)
	}
	for _, words := range [][]any{
		{"SET", "k", "v"}, {"CONFIG", "GET", "maxmemory"}, {"SCRIPT", "LOAD", "return 1"}, {"INFO"},
		{"ACL", "SETUSER", "mine", "on"}, {"CLIENT", "ID"},
	} {
		require.NoError(t, c.Do(t.Context(), words...).Err(), "%v", words)
	}
}
