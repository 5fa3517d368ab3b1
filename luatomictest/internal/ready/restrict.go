package ready

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// others lists what would disturb the other tests of a shared server.
var others = []any{"-flushall", "-flushdb", "-swapdb", "-shutdown", "-debug", "-failover", "-replicaof", "-slaveof",
	"-config|set", "-config|resetstat", "-config|rewrite", "-script|flush", "-script|kill", "-function|flush",
	"-client|pause", "-client|unpause", "-latency|reset", "-slowlog|reset", "-acl|load", "-acl|deluser"}

// Restrict takes the rights from the clients of a shared server to do what other tests of it would notice: such a test
// fails, alone too, and starts a server of its own.
func Restrict(ctx context.Context, options *redis.Options) error {
	client := redis.NewClient(options)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	defer func() { _ = client.Close() }()
	if err := client.Do(ctx, append([]any{"ACL", "SETUSER", "default"}, others...)...).Err(); err != nil {
		return fmt.Errorf("the rights of the shared server's tests: %w", err)
	}
	return nil
}
