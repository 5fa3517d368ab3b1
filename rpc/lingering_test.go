package rpc_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// lingering is a connection whose first request for a call leaves the client, is held somewhere, and reaches the server
// later, when the client has long lost the connection.
type lingering struct {
	net.Conn
	h *heldUp
}

// heldUp holds the first write that has the digest, and delivers it after a time.
type heldUp struct {
	digest  []byte
	after   time.Duration
	once    sync.Once
	dial    func() (net.Conn, error)
	arrived chan struct{}

	// With holds, it is delivered by a write that has the digest of ahead, or after the time where there is none.
	holds, delivers func()
	ahead           []byte
	held            atomic.Pointer[[]byte]
}

func (l *lingering) Write(p []byte) (int, error) {
	if bytes.Contains(p, l.h.digest) {
		l.h.once.Do(func() {
			held := slices.Clone(p)
			_ = l.Close()
			if l.h.holds != nil {
				l.h.holds()
			}
			if len(l.h.ahead) > 0 {
				l.h.held.Store(&held)
				return
			}
			time.AfterFunc(l.h.after, func() { l.h.deliver(held) })
		})
	}
	if len(l.h.ahead) > 0 && bytes.Contains(p, l.h.ahead) {
		if held := l.h.held.Swap(nil); held != nil {
			l.h.delivers()
			l.h.deliver(*held)
		}
	}
	return l.Conn.Write(p)
}

func (h *heldUp) deliver(held []byte) {
	defer close(h.arrived)
	conn, err := h.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write(held)
	_, _ = conn.Read(make([]byte, 4096))
}

func holdUp(t *testing.T, after time.Duration) (*redis.Client, *heldUp) {
	t.Helper()
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	opts.Protocol = 2 // the bytes that are held need no greeting
	network, addr := opts.Network, opts.Addr
	h := &heldUp{digest: []byte(lab.Digest(&gen.RPCCallScript)), after: after, arrived: make(chan struct{})}
	h.dial = func() (net.Conn, error) { return net.Dial(network, addr) }
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := h.dial()
		if err != nil {
			return nil, err
		}
		return &lingering{conn, h}, nil
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c, h
}
