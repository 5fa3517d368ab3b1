package lab

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

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// HeldUp holds the first write of a script, whose connection breaks, and delivers it later: when its client has long
// sent the script again.
type HeldUp struct {
	// Arrived is closed when the server has it.
	Arrived chan struct{}
	// Holds runs when it is held. With Ahead, the first write of that script delivers it, after Delivers has run.
	Holds, Delivers func()
	Ahead           *lua.Script

	digest []byte
	after  time.Duration
	dial   func() (net.Conn, error)
	once   sync.Once
	held   atomic.Pointer[[]byte]
}

// HoldUp returns a client, and what it holds. It is delivered after that time, or by Arrive where the time is 0. With
// Ahead, neither counts.
func HoldUp(t testing.TB, script *lua.Script, after time.Duration) (*redis.Client, *HeldUp) {
	t.Helper()
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	network, addr := opts.Network, opts.Addr
	h := NewHeldUp(func() (net.Conn, error) { return net.Dial(network, addr) })
	h.digest, h.after = []byte(Digest(script)), after
	opts.Protocol = 2 // the bytes that are held need no greeting
	opts.Dialer = func(context.Context, string, string) (net.Conn, error) {
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

// NewHeldUp is for Deliver alone.
func NewHeldUp(dial func() (net.Conn, error)) *HeldUp {
	return &HeldUp{dial: dial, Arrived: make(chan struct{})}
}

// Arrive delivers what is held, and returns when the server has it.
func (h *HeldUp) Arrive(t testing.TB) {
	t.Helper()
	held := h.held.Swap(nil)
	require.NotNil(t, held, "nothing is held")
	h.Deliver(*held)
}

// Deliver writes what was held to a connection of its own, and waits for an answer.
func (h *HeldUp) Deliver(held []byte) {
	defer close(h.Arrived)
	conn, err := h.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write(held)
	_, _ = conn.Read(make([]byte, 4096))
}

// lingering is a connection whose first request leaves the client, is held somewhere, and reaches the server later,
// when the client has long lost the connection.
type lingering struct {
	net.Conn
	h *HeldUp
}

func (l *lingering) Write(p []byte) (int, error) {
	h := l.h
	if bytes.Contains(p, h.digest) {
		h.once.Do(func() {
			held := slices.Clone(p)
			_ = l.Close()
			if h.Holds != nil {
				h.Holds()
			}
			h.held.Store(&held)
			if h.Ahead == nil && h.after > 0 {
				time.AfterFunc(h.after, func() { h.Deliver(held) })
			}
		})
	}
	if h.Ahead != nil && bytes.Contains(p, []byte(Digest(h.Ahead))) {
		if held := h.held.Swap(nil); held != nil {
			h.Delivers()
			h.Deliver(*held)
		}
	}
	return l.Conn.Write(p)
}
