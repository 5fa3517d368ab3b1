// Package single knows the clients of one server.
package single

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Server reports whether the client reaches one server, which has all keys and channels. An AutoPipeliner does not say
// what it stands before: it is asked for a transaction of no key. Only a Client runs one, and sends nothing.
func Server(client redis.UniversalClient) (one bool) {
	switch c := client.(type) {
	case *redis.Client:
		return true
	case *redis.AutoPipeliner:
		_ = c.Watch(context.Background(), func(*redis.Tx) error {
			one = true
			return nil
		})
	}
	return one
}
