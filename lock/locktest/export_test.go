package locktest

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lock"
)

// NewBlind is New with a client that does not see that an idle connection was cut, as on a busy machine on
// which the end of a connection arrives late.
func NewBlind(t testing.TB, opts *lock.Options) *Locks {
	return newLocks(t, opts, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err
		}
	})
}
