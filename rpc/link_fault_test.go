package rpc_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The ways in which a connection can be half-open.
const (
	writesVanish = iota + 1 // the server gets no request, its messages arrive
	readsVanish             // the server gets requests, nothing of it arrives
)

// halfOpen makes the open subscriptions of a client half-open. Later connections are whole.
type halfOpen struct {
	mu    sync.Mutex
	conns []*halfOpenConn
}

type halfOpenConn struct {
	net.Conn
	subscribes atomic.Bool
	lost       atomic.Int32
}

func (c *halfOpenConn) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("subscribe")) {
		c.subscribes.Store(true)
	}
	if c.lost.Load() == writesVanish {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *halfOpenConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || c.lost.Load() != readsVanish {
			return n, err
		}
	}
}

func (h *halfOpen) client(t *testing.T) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	network, addr := opts.Network, opts.Addr
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		c := &halfOpenConn{Conn: conn}
		h.conns = append(h.conns, c)
		return c, nil
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// begin makes the subscriptions half-open. It returns how many there are.
func (h *halfOpen) begin(how int32) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		if c.subscribes.Load() {
			c.lost.Store(how)
			n++
		}
	}
	return n
}

// The link of a node or of a caller becomes half-open, in either direction. It is noticed within 5 s, whatever the
// lease, and the call that was under way has its answer then.
func TestHalfOpenLinkIsNoticedWithin5s(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	for name, how := range map[string]int32{"writes vanish": writesVanish, "reads vanish": readsVanish} {
		for _, side := range []string{"node", "caller"} {
			t.Run(side+", "+name, func(t *testing.T) {
				t.Parallel()
				halfOpenLink(t, side, how)
			})
		}
	}
}

func halfOpenLink(t *testing.T, side string, how int32) {
	ctx, name := t.Context(), luatomictest.Namespace(t)
	noticed := make(chan time.Time, 1)
	opts := func(which string) *rpc.Options { // the lease is so long that no echo and no check reveals it
		o := &rpc.Options{Lease: 5 * time.Minute, Timeout: time.Minute}
		if which == side {
			o.OnError = func(err error) {
				if strings.Contains(err.Error(), "does not answer a PING") {
					select {
					case noticed <- time.Now():
					default:
					}
				}
			}
		}
		return o
	}
	var h halfOpen
	clients := map[string]redis.UniversalClient{"node": luatomictest.Client(t), "caller": luatomictest.Client(t)}
	clients[side] = h.client(t)
	lab.Serving(t, lab.Echo, clients["node"], name, opts("node"), lab.Upper)
	caller := lab.OpenBus(t, clients["caller"], name, opts("caller"))
	_, err := lab.Echo.Call(ctx, caller, "before", nil)
	require.NoError(t, err)

	require.Equal(t, 1, h.begin(how), "one connection for all subscriptions")
	began := time.Now()
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
	if how == readsVanish {
		require.Less(t, time.Since(began), 10*time.Second, "not a check of the lease")
	}
	at := lab.Soon(t, 10*time.Second, "the silence is noticed", noticed)
	require.Less(t, at.Sub(began), 9*time.Second, "4.1 s, on a machine that has time for it")
	luatomictest.Eventually(t, 10*time.Second, "the link is back", func() bool {
		_, err := lab.Echo.Call(ctx, caller, "after", nil)
		return err == nil
	})
}

// A heartbeat whose reply takes long is no reason to give up a connection on which its echo has come.
func TestASlowHeartbeatKeepsTheLink(t *testing.T) {
	t.Parallel()
	const lease = 1200 * time.Millisecond
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	var slow atomic.Int64
	slow.Store(-1)
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		err := run()
		if slow.Add(-1) >= 0 {
			time.Sleep(lease * 11 / 12) // longer than an echo may be out
		}
		return err
	}})
	lab.Serving(t, lab.Echo, c, luatomictest.Namespace(t), &rpc.Options{Lease: lease}, lab.Upper)
	subscribed := func() int { return proxy.Executed(luatomictest.Command("SUBSCRIBE")) }
	require.Positive(t, subscribed())
	for range 5 { // an echo can be late as well; with the fault the link is replaced each time
		before := subscribed()
		slow.Store(3)
		luatomictest.Eventually(t, 20*time.Second, "three slow heartbeats and one more", func() bool {
			return slow.Load() < -1
		})
		if subscribed() == before {
			return
		}
	}
	t.Fatal("the link was replaced each time")
}
