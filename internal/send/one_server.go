package send

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// OneServer reports whether the client reaches one server, which has all keys and channels. Only a Client has a method
// for a connection of its own, and so has a struct of the caller with a Client in it.
func OneServer(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case interface{ Conn() *redis.Conn }:
		return true
	case *redis.AutoPipeliner:
		return piped(c)
	}
	return false
}

// piped asks an AutoPipeliner, which does not say what it stands before, for a transaction of no key. Only a Client
// runs one, and sends nothing.
func piped(c *redis.AutoPipeliner) (one bool) {
	_ = c.Watch(context.Background(), func(*redis.Tx) error {
		one = true
		return nil
	})
	return one
}
