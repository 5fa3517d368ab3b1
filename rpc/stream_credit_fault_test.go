package rpc_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// sendAll sends n numbers.
func sendAll(_ context.Context, n int, send func(int) error) error {
	for i := range n {
		if err := send(i); err != nil {
			return err
		}
	}
	return nil
}

// A panic in the loop over a stream ends the stream, as leaving the loop does.
func TestAPanicInTheLoopEndsTheStream(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.OpenBus(t, c, name, &rpc.Options{Lease: 15 * time.Second, Timeout: 10 * time.Minute})
	ended := make(chan error, 1)
	require.NoError(t, countTo.Serve(b, func(ctx context.Context, _ int, send func(int) error) error {
		_ = send(1)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	}))
	require.NoError(t, b.Ready(t.Context()))
	require.Panics(t, func() {
		for range countTo.Call(t.Context(), b, 1) {
			panic("of the loop")
		}
	})
	require.Error(t, lab.Soon(t, time.Minute, "the end of the handler", ended))
	luatomictest.Eventually(t, 20*time.Second, "nobody waits", func() bool { return b.Waiting() == 0 })
}

// The server refuses for a while to remove what was read. The parts that it keeps are removed later: the stream goes
// on.
func TestAStreamGoesOnAfterReadPartsCouldNotBeRemoved(t *testing.T) {
	t.Parallel()
	const parts = 1000
	server, name := luatomictest.StartServer(t), "bus"
	admin, ctx := server.Client(), t.Context()
	b := lab.OpenBus(t, server.Client(), name, &rpc.Options{Lease: time.Minute})
	require.NoError(t, countTo.Serve(b, sendAll))
	require.NoError(t, b.Ready(ctx))
	refused := make(chan error, 100)
	caller := lab.OpenBus(t, server.Client(), name, &rpc.Options{Lease: time.Minute, OnError: func(err error) {
		select {
		case refused <- err:
		default:
		}
	}})
	require.NoError(t, caller.Ready(ctx))
	allowed := make(chan struct{})
	go func() {
		defer close(allowed)
		for err := range refused {
			if strings.Contains(err.Error(), "remove parts") {
				time.Sleep(time.Second) // a caller that gave up would read the whole window meanwhile
				assert.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "default", "+hdel").Err())
				return
			}
		}
	}()
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n := 0
	for _, err := range countTo.Call(bounded, caller, parts) {
		require.NoError(t, err, n)
		if n++; n == 1 {
			require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "default", "-hdel").Err())
		}
	}
	require.Equal(t, parts, n)
	lab.Soon(t, time.Second, "a refusal", allowed)
}

// A handler whose window is full and whose server does not answer gets the end of its context in time.
func TestSendReturnsAtTheEndOfItsContextOnAServerThatHangs(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	server, name := luatomictest.StartServer(t), "bus"
	client, proxy := server.Client(), luatomictest.NewLossyProxy(t, server.URL())
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	opts.ReadTimeout = time.Minute
	through := redis.NewClient(opts)
	t.Cleanup(func() { _ = through.Close() })
	b := lab.OpenBus(t, through, name, &rpc.Options{Lease: 3 * time.Second, Grace: -1})
	returned, full := make(chan time.Duration, 1), make(chan struct{})
	require.NoError(t, countTo.Serve(b, func(ctx context.Context, n int, send func(int) error) error {
		for i := range n {
			if i == 255 {
				close(full)
			}
			if err := send(i); err != nil {
				end, _ := ctx.Deadline()
				returned <- time.Since(end)
				return err
			}
		}
		return nil
	}))
	require.NoError(t, b.Ready(t.Context()))
	caller := lab.OpenBus(t, client, name, nil)
	require.NoError(t, caller.Ready(t.Context()))
	short, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	for range countTo.Call(short, caller, 1000) {
		lab.Soon(t, 20*time.Second, "a full window", full)
		time.Sleep(100 * time.Millisecond) // the last send is on its way
		proxy.Blackhole(true)
		late := lab.Soon(t, 90*time.Second, "the return of send", returned)
		proxy.Blackhole(false)
		require.Less(t, late, 20*time.Second, "go-redis itself waits for a minute")
		break
	}
}

// The server refuses to remove the parts that were read, for good. A stream whose reply has come ends all the same: no
// handler waits for that.
func TestAStreamEndsAlthoughItsPartsCannotBeRemoved(t *testing.T) {
	t.Parallel()
	ctx, name, own := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t)
	b := lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, lab.Upper)
	serveCountTo(t, b)
	require.NoError(t, b.Ready(ctx))
	lua.Direct(own) // the hook sees no shared round trip
	caller := lab.OpenBus(t, own, name, &rpc.Options{Lease: time.Hour})
	var refused atomic.Int64
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.ReadScript), Do: func(func() error) error {
		refused.Add(1)
		return refusal("NOPERM this user has no permissions to run the 'hdel' command")
	}})
	long, cancel := context.WithTimeout(ctx, time.Hour)
	t.Cleanup(cancel) // before the bus stops, which waits for handlers
	read := make(chan int, 1)
	go func() {
		n := 0
		for part, err := range countTo.Call(long, caller, 100) {
			if err == nil && part == n {
				n++
			}
		}
		read <- n
	}()
	require.Equal(t, 100, lab.Soon(t, 20*time.Second, "the end of the stream", read))
	require.Positive(t, refused.Load())
}

// The words of a caller that it has read parts are lost, and late copies of these parts arrive. The node asks the
// server what was read, and sends the rest.
func TestLateCopiesOfPartsDoNotHoldUpTheirStream(t *testing.T) {
	t.Parallel()
	ctx, name, nodes, own := t.Context(), luatomictest.Namespace(t), luatomictest.Client(t), luatomictest.Client(t)
	lua.Direct(nodes) // the hooks see no shared round trips
	lua.Direct(own)
	sent := make(chan []any, 20)
	nodes.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			if digest := lab.Digest(&rpcscript.ChunkScript); lab.OfScript(cmd, digest) {
				words := slices.Clone(cmd.Args())
				words[1] = digest // what stands there notes that the call is sent
				sent <- words
			}
		}
	}))
	own.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			if lab.OfScript(cmd, lab.Digest(&rpcscript.ReadScript)) {
				cmd.Args()[7] = "" // the notice
			}
		}
	}))
	node := lab.OpenBus(t, nodes, name, &quick)
	serveCount(t, node, 400_000)
	require.NoError(t, node.Ready(ctx))
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	parts, copies := 0, luatomictest.Client(t)
	for _, err := range count.Call(bounded, lab.OpenBus(t, own, name, nil), 6) {
		require.NoError(t, err, parts)
		parts++
		require.NoError(t, copies.Do(ctx, <-sent...).Err())
	}
	require.Equal(t, 6, parts)
}
