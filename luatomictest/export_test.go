package luatomictest

import (
	"context"
	"net"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lock"
)

// Remove ends the server before its test does.
func Remove(s *Server) { s.remove() }

// Reserve reports whether a server could take the address now.
func Reserve(addr string) error {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	reserved, err := reserve(port)
	if err != nil {
		return err
	}
	return reserved.Close()
}

// NewLocksBlind is NewLocks with a client that does not see that an idle connection was cut, as on a busy machine on
// which the end of a connection arrives late.
func NewLocksBlind(t testing.TB, opts *lock.Options) *Locks {
	return newLocks(t, opts, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return struct{ net.Conn }{conn}, err
		}
	})
}

// WatchedBy is a Sentinel of servers that run already.
func WatchedBy(t testing.TB, sentinel *Server, servers ...*Server) *Sentinel {
	return newSentinel(t, sentinel, servers...)
}
