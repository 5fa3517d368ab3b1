package rpc_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A request whose connection breaks is sent again, and no node can take it then. The first copy arrives when one can:
// it does not run where the call was refused. Where it is ahead of the mark that refuses copies, the call goes on;
// where others may wait for it, there is no mark, and the outcome is unknown.
func TestNoCallIsRefusedWhileACopyIsOnItsWay(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]struct {
		opts  rpc.CallOptions
		ahead bool
	}{
		"any node": {}, "named": {opts: rpc.CallOptions{Node: "a"}}, "with a key": {opts: rpc.CallOptions{Key: "k"}},
		"ahead of the mark": {ahead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c, name, opts := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t), is.opts
			var ran atomic.Int64
			b := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute},
				func(context.Context, string) (string, error) {
					ran.Add(1)
					return "", nil
				})
			if opts.Node != "" {
				opts.Node = b.Node()
			}
			client, h := lab.HoldUp(t, &rpcscript.CallScript, 2*time.Second)
			caller := lab.OpenBus(t, client, name, &rpc.Options{Lease: time.Minute, Timeout: time.Minute})
			require.NoError(t, caller.Ready(ctx))
			lease, err := c.ZScore(ctx, "rpc:{"+name+"}:nodes", b.Node()).Result()
			require.NoError(t, err)
			until := func(score float64) {
				c.ZAdd(ctx, "rpc:{"+name+"}:nodes", redis.Z{Score: score, Member: b.Node()})
			}
			h.Holds, h.Delivers = func() { until(1) }, func() { until(lease) }
			if is.ahead {
				h.Ahead = &rpcscript.CancelScript
			}
			_, err = lab.Echo.Call(ctx, caller, "x", &opts)
			h.Delivers()
			<-h.Arrived
			_, again := lab.Echo.Call(ctx, caller, "y", &rpc.CallOptions{Node: b.Node()}) // behind the copy
			require.NoError(t, again)
			switch {
			case opts.Key != "":
				require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
				require.NotErrorIs(t, err, rpc.ErrNoResponders)
			case is.ahead:
				require.NoError(t, err)
				require.Equal(t, int64(2), ran.Load())
			default:
				require.ErrorIs(t, err, rpc.ErrNoResponders)
				require.Equal(t, int64(1), ran.Load(), "the copy ran")
			}
		})
	}
}

// lateEnd is a context that ends later than its deadline says.
type lateEnd struct {
	context.Context
	deadline time.Time
}

func (l lateEnd) Deadline() (time.Time, bool) { return l.deadline, true }

// The time of a call is over when it turns out that no node can take it, and a copy of its request is on the way:
// nothing refuses the copy any more. The error says both.
func TestACallThatIsOverWhileACopyIsOnItsWayTimesOut(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute}, lab.Upper)
	require.NoError(t, lua.Preload(ctx, c, &rpcscript.CallScript))
	client, h := lab.HoldUp(t, &rpcscript.CallScript, time.Millisecond)
	caller := lab.OpenBus(t, lua.Direct(client), name, &rpc.Options{Lease: time.Minute})
	require.NoError(t, caller.Ready(ctx))
	h.Holds = func() { c.ZAdd(ctx, "rpc:{"+name+"}:nodes", redis.Z{Score: 1, Member: b.Node()}) }
	deadline, attempts := time.Now().Add(2*time.Second), 0
	client.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.CallScript), Do: func(run func() error) error {
		err := run()
		if attempts++; attempts == 2 {
			time.Sleep(time.Until(deadline) + time.Millisecond)
		}
		return err
	}})
	_, err := lab.Echo.Call(lateEnd{ctx, deadline}, caller, "x", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "a copy of the request may still arrive")
}

// cutReply is a connection that delivers the request of a call, and breaks in place of the reply once cut is closed.
type cutReply struct {
	net.Conn
	by *breaking
	on atomic.Bool
}

// breaking is what the connections of a client have in common: the next request of a call breaks its connection.
type breaking struct {
	armed atomic.Bool
	cut   chan struct{}
}

func (c *cutReply) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(lab.Digest(&rpcscript.CallScript))) && c.by.armed.CompareAndSwap(true, false) {
		c.on.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *cutReply) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.on.Load() {
		<-c.by.cut
		return 0, net.ErrClosed
	}
	return n, err
}

// The refusal of the node that a call names is faster than the server's answer to the script, which is lost: the script
// runs again, and the node, which is idle by then, gets the request once more. The call ends as that does.
func TestARefusalIsNoOutcomeWhileTheCallIsSent(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b := lab.Serving(t, hold, c, name, &rpc.Options{Concurrency: 1, Lease: time.Minute},
		func(context.Context, string) (string, error) {
			close(entered)
			<-leave
			return "", nil
		})
	var ran atomic.Int64
	require.NoError(t, lab.Echo.Serve(b, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	}, nil))
	require.NoError(t, b.Ready(ctx))
	opts := *luatomictest.Client(t).Options()
	by, network, addr := &breaking{cut: make(chan struct{})}, opts.Network, opts.Addr
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &cutReply{Conn: conn, by: by}, err
	}
	client := redis.NewClient(&opts)
	t.Cleanup(func() { _ = client.Close() })
	caller := lab.OpenBus(t, client, name, &rpc.Options{Lease: time.Minute, Timeout: time.Minute})
	require.NoError(t, caller.Ready(ctx))
	held := startCall(t, hold, lab.OpenBus(t, c, name, nil), "")
	<-entered

	by.armed.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Node: b.Node()})
		done <- err
	}()
	record := "rpc:{" + name + "}:r:" + caller.Node() + ".1"
	luatomictest.Eventually(t, 20*time.Second, "the node refuses it", func() bool {
		return c.GetRange(ctx, record, 0, 0).Val() == "r"
	})
	close(leave)
	require.NoError(t, (<-held).err) // published after the refusal, which has arrived
	close(by.cut)
	err := <-done
	_, again := lab.Echo.Call(ctx, caller, "y", &rpc.CallOptions{Node: b.Node()}) // behind a request that runs yet
	require.NoError(t, again)
	require.NoError(t, err)
	require.Equal(t, int64(2), ran.Load())
}
