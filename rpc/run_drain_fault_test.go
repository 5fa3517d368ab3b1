package rpc_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// held holds what subscriptions receive while it is shut, and then lets it through slowly.
type held struct {
	mu   sync.Mutex
	shut chan struct{}
	slow atomic.Bool
}

func (h *held) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = make(chan struct{})
}

func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow.Store(true)
	close(h.shut)
	h.shut = nil
}

func (h *held) wait() {
	h.mu.Lock()
	shut := h.shut
	h.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

// heldConn is a connection whose subscription is held.
type heldConn struct {
	net.Conn
	by         *held
	subscribed atomic.Bool
}

func (c *heldConn) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("subscribe")) {
		c.subscribed.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *heldConn) Read(p []byte) (int, error) {
	if !c.subscribed.Load() {
		return c.Conn.Read(p)
	}
	if c.by.slow.Load() {
		time.Sleep(200 * time.Microsecond)
		p = p[:1]
	}
	n, err := c.Conn.Read(p)
	c.by.wait()
	return n, err
}

// A node that leaves waits for an echo, and what the server sent before that is received then. The echo of a heartbeat
// that is still on its way is another one: a request may be behind it.
func TestANodeThatLeavesTakesWhatIsBehindTheEchoOfAHeartbeat(t *testing.T) {
	t.Parallel()
	for !leavesBehindAnEcho(t) {
		t.Log("this machine stood still, and the silent subscription was replaced")
	}
}

// leavesBehindAnEcho reports whether the subscription was silent for less than the time after which it is replaced.
func leavesBehindAnEcho(t *testing.T) bool {
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	by, network, addr := &held{}, opts.Network, opts.Addr
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &heldConn{Conn: conn, by: by}, err
	}
	nodes := redis.NewClient(opts)
	t.Cleanup(func() { _ = nodes.Close() })
	b, err := rpc.New(nodes, name, &rpc.Options{Lease: 9 * time.Second, Grace: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: time.Minute})
	_, err = lab.Echo.Call(ctx, caller, "warm", nil)
	require.NoError(t, err)
	sent := c.Subscribe(ctx, "rpc:{"+name+"}:n:"+b.Node())
	t.Cleanup(func() { _ = sent.Close() })
	_, err = sent.Receive(ctx)
	require.NoError(t, err)
	next := func(kind string, echo bool) {
		for {
			m, err := sent.ReceiveMessage(ctx)
			require.NoError(t, err, kind)
			if (m.Payload[0] == byte(wire.Echo)) == echo {
				return
			}
		}
	}
	by.hold()
	began := time.Now()
	require.NoError(t, rpc.NewMethod[string, string]("next").Serve(b, lab.Upper, nil))
	next("the echo of the heartbeat that announces it", true)
	called := startCall(t, lab.Echo, caller, "x")
	next("the request", false)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	next("the echo of the end", true)
	by.release()
	silent := time.Since(began)
	out := lab.Soon(t, 30*time.Second, "the result", called)
	lab.Soon(t, 30*time.Second, "the end of Run", stopped)
	if silent >= 2*time.Second { // after which a PING without an answer ends a subscription
		return false
	}
	require.NoError(t, out.err)
	return true
}

// A notice of a request that arrives when the node takes none any more leaves nothing behind: the next Run of the bus
// ends when it is idle.
func TestANoticeThatIsTooLateLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b, err := rpc.New(luatomictest.Client(t), name, &rpc.Options{Grace: time.Second, Lease: 15 * time.Second})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, func(context.Context, string) (string, error) {
		close(entered)
		<-leave
		return "", nil
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: time.Minute})
	_ = startCall(t, lab.Echo, caller, "x")
	lab.Soon(t, 20*time.Second, "the handler", entered)
	node, stopped := b.Node(), make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	notice := wire.Notice{Kind: wire.RequestStored, Texts: []string{"answered.1"}}
	for range 60 { // the grace ends meanwhile: the node takes nothing, and its handler runs
		require.NoError(t, c.Publish(ctx, "rpc:{"+name+"}:n:"+node, notice.Encode()).Err())
		time.Sleep(50 * time.Millisecond)
	}
	close(leave)
	lab.Soon(t, 20*time.Second, "the end of Run", stopped)
	require.Zero(t, b.Waiting())
}

// slowPublish is a connection whose notices go out late.
type slowPublish struct{ net.Conn }

func (c slowPublish) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("$7\r\npublish\r\n")) {
		time.Sleep(missedNamed / 2) // the rest is for a busy machine
	}
	return c.Conn.Write(p)
}

const missedNamed = 500 * time.Millisecond // as in drain

// The subscription of a node that leaves breaks, and a request is missed. Its caller names it, and the node takes it.
func TestANodeThatLeavesTakesWhatABrokenSubscriptionMissed(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	nodes := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL())))
	t.Cleanup(func() { _ = nodes.Close() })
	b, err := rpc.New(nodes, name, &rpc.Options{Lease: time.Minute, Grace: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	opts := *luatomictest.Client(t).Options()
	network, addr := opts.Network, opts.Addr
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return slowPublish{conn}, err
	}
	client := redis.NewClient(&opts)
	t.Cleanup(func() { _ = client.Close() })
	caller := lab.OpenBus(t, client, name, &rpc.Options{Lease: time.Minute, Timeout: time.Minute})
	_, err = lab.Echo.Call(ctx, caller, "warm", nil)
	require.NoError(t, err)
	proxy.Blackhole(true)
	called := startCall(t, lab.Echo, caller, "x")
	record := "rpc:{" + name + "}:r:" + caller.Node() + ".2"
	luatomictest.Eventually(t, 20*time.Second, "the request is sent", func() bool {
		return luatomictest.Client(t).Exists(ctx, record).Val() == 1
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	proxy.CutAll()
	proxy.Blackhole(false)
	out := lab.Soon(t, 30*time.Second, "the result", called)
	require.NoError(t, out.err)
	require.Equal(t, "X", out.out)
	lab.Soon(t, 30*time.Second, "the end of Run", stopped)
}
