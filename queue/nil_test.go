package queue_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// Consumers and pollers subscribe and report in goroutines of their own, where a panic ends the process.
func TestAQueueRefusesANilClient(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]lua.Client{"nil": nil, "a nil Client": (*redis.Client)(nil)} {
		_, err := queue.New(client, "q", nil)
		require.EqualError(t, err, "luatomic: queue \"q\": the client is nil: make it before its first call", name)
		_, err = queue.NewShards(client, "q", 2, nil)
		require.ErrorContains(t, err, "the client is nil", name)
	}
}
