package send

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// OneServer reports whether one server has all keys and channels of the client. Only a redis.Client, or a struct that
// embeds one, has the method Conn.
func OneServer(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case interface{ Conn() *redis.Conn }:
		return true
	case *redis.AutoPipeliner:
		return piped(c)
	}
	return false
}

// piped reports whether an AutoPipeliner, which does not name its client, wraps a redis.Client: only that runs a
// transaction without keys. It sends nothing.
func piped(c *redis.AutoPipeliner) (one bool) {
	_ = c.Watch(context.Background(), func(*redis.Tx) error {
		one = true
		return nil
	})
	return one
}
