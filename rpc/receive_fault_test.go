package rpc_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C17: a gather and a stream whose callers never read on, and a handler that never
// returns, hold up no other call.
func TestRPCStalledConsumersHoldUpNoCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.NewBus(t, c, name, &rpc.Options{Timeout: 10 * time.Minute})
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	flood := rpc.NewStreamMethod[int, string]("flood")
	require.NoError(t, flood.Serve(b, func(ctx context.Context, n int, send func(string) error) error {
		for i := range n {
			if err := send(strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	still, stuck := make(chan string, 2), make(chan struct{})
	var consumers sync.WaitGroup
	consumers.Go(func() {
		for p := range flood.Call(ctx, b, 100_000) {
			still <- p
			<-stuck
			break
		}
	})
	consumers.Go(func() {
		for p := range lab.Echo.Gather(ctx, b, "x") {
			still <- p.Result
			<-stuck
			break
		}
	})
	require.ElementsMatch(t, []string{"0", "X"}, []string{<-still, <-still})
	var longest time.Duration
	for i := range 500 {
		start := time.Now()
		out, err := lab.Echo.Call(ctx, b, fmt.Sprint(i), nil)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), out)
		longest = max(longest, time.Since(start))
	}
	t.Logf("the longest of 500 calls took %v", longest)
	require.Less(t, longest, 30*time.Second, "far less than the time that the suspended ones have")
	close(stuck)
	consumers.Wait()
	luatomictest.Eventually(t, 20*time.Second, "the context of the stream's handler ends",
		func() bool { return b.Waiting() == 0 })
}

// laterConn changes the version of the requests that a process sends or reads: what a process of version 3 does that
// still reads version 2.
type laterConn struct{ net.Conn }

const requestOf2, requestOf3 = "Q\x02", "Q\x03"

func (c laterConn) Write(p []byte) (int, error) {
	_, err := c.Conn.Write(bytes.ReplaceAll(p, []byte(requestOf2), []byte(requestOf3)))
	return len(p), err
}

func (c laterConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], []byte(requestOf3), []byte(requestOf2)))
	return n, err
}

// laterClient is the client of a process of version 3.
func laterClient(t *testing.T) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(luatomictest.URL(t))
	require.NoError(t, err)
	network, addr := opts.Network, opts.Addr
	opts.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return laterConn{conn}, err
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A rolling upgrade: nodes of version 3, which read version 2, too, take the place of nodes of version 2 while callers
// of both make calls. No call of version 2 fails at any time, and none of version 3 from the first node on that reads
// it; before, it says what the nodes read.
func TestRollingUpgradeOfTwoVersions(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	opts := &rpc.Options{Timeout: time.Minute}
	start := func(client redis.UniversalClient) (stop func()) {
		b := lab.Must(rpc.New(client, name, opts))
		require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
		stop = lab.RunBus(t, b)
		require.NoError(t, b.Ready(ctx))
		return stop
	}
	old := []func(){start(c), start(c)}
	callers := []*rpc.Bus{lab.OpenBus(t, c, name, opts), lab.OpenBus(t, laterClient(t), name, opts)}
	_, err := lab.Echo.Call(ctx, callers[1], "x", nil)
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeVersion, remote.Code)
	require.ErrorContains(t, err, "a frame of version 3; this process reads version 2")

	call := func(from ...*rpc.Bus) {
		t.Helper()
		for range 30 {
			for i, b := range from {
				out, err := lab.Echo.Call(ctx, b, "x", nil)
				require.NoError(t, err, "caller %d", i)
				require.Equal(t, "X", out)
			}
		}
	}
	call(callers[0])
	for _, stop := range old {
		start(laterClient(t))
		stopped := make(chan struct{})
		call(callers...)
		go func() {
			stop()
			close(stopped)
		}()
		call(callers...)
		<-stopped
	}
	call(callers...)
}
