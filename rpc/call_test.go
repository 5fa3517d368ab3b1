package rpc_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// BenchmarkRPC measures calls beside PING and a bare request and reply by PUBLISH on
// the same kind of connection, each on one goroutine and on 256.
func BenchmarkRPC(b *testing.B) {
	c, name := luatomictest.Client(b), luatomictest.Namespace(b)
	lab.Serving(b, lab.Echo, c, name, &rpc.Options{Concurrency: 512}, func(_ context.Context, s string) (string,
		error) {
		return s, nil
	})
	caller := lab.OpenBus(b, c, name, nil)
	none := rpc.NewMethod[string, string]("none")
	raw := newPingPong(b, c, name)
	for _, bench := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"ping", func(ctx context.Context) error { return c.Ping(ctx).Err() }},
		{"raw-publish", raw.call},
		{"call", func(ctx context.Context) error {
			_, err := lab.Echo.Call(ctx, caller, "x", nil)
			return err
		}},
		{"no-responder", func(ctx context.Context) error {
			if _, err := none.Call(ctx, caller, "x", nil); err == nil {
				return context.Canceled
			}
			return nil
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lab.Fatal(b, bench.call(b.Context()))
			}
		})
		if bench.name == "ping" || bench.name == "no-responder" {
			continue
		}
		b.Run(bench.name+"/callers=256", func(b *testing.B) {
			b.SetParallelism(128)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := bench.call(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// pingPong is the least that two processes need to ask and answer by PUBLISH: nothing
// is stored, and what is lost is lost.
type pingPong struct {
	c        *redis.Client
	mu       sync.Mutex
	n        int
	waiting  map[string]chan struct{}
	channels [2]string
}

func newPingPong(b *testing.B, c *redis.Client, name string) *pingPong {
	p := &pingPong{c: c, waiting: make(map[string]chan struct{}), channels: [2]string{name + "-ask", name + "-answer"}}
	listen := func(channel string, f func(string)) {
		ps := c.Subscribe(b.Context(), channel)
		if _, err := ps.Receive(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = ps.Close() })
		go func() {
			for {
				m, err := ps.ReceiveMessage(context.Background())
				if err != nil {
					return
				}
				f(m.Payload)
			}
		}()
	}
	listen(p.channels[0], func(id string) { go p.c.Publish(context.Background(), p.channels[1], id) })
	listen(p.channels[1], func(id string) {
		p.mu.Lock()
		w := p.waiting[id]
		delete(p.waiting, id)
		p.mu.Unlock()
		if w != nil {
			close(w)
		}
	})
	return p
}

func (p *pingPong) call(ctx context.Context) error {
	w := make(chan struct{})
	p.mu.Lock()
	p.n++
	id := strconv.Itoa(p.n)
	p.waiting[id] = w
	p.mu.Unlock()
	if err := p.c.Publish(ctx, p.channels[0], id).Err(); err != nil {
		return err
	}
	<-w
	return nil
}

func TestCallAndReply(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, nil)
	out, err := lab.Echo.Call(t.Context(), caller, "hello", nil)
	require.NoError(t, err)
	require.Equal(t, "HELLO", out)
}

// Only one of the nodes runs a call, and the load spreads over them.
func TestCallReachesOneNode(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var ran [3]atomic.Int64
	for i := range ran {
		lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
			ran[i].Add(1)
			return "", nil
		})
	}
	caller := lab.OpenBus(t, c, name, nil)
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			for range 10 {
				_, err := lab.Echo.Call(t.Context(), caller, "", nil)
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for i := range ran {
		total += ran[i].Load()
		require.Positive(t, ran[i].Load(), "node %d", i)
	}
	require.Equal(t, int64(300), total)
}

func TestNoResponderIsAnAnswerAndNotATimeout(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	_, err := lab.Echo.Call(ctx, caller, "", nil) // connects
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	asked := countScripts(c, &rpcscript.FindScript, &rpcscript.CallScript, &rpcscript.DecideScript)
	_, err = lab.Echo.Call(ctx, caller, "", nil)
	require.ErrorContains(t, err, "no node serves it")
	require.Equal(t, []int64{1, 0, 0}, asked(), "one round trip, and nothing waits for the time-out of a minute")

	// The three reasons, with the records that lead to them.
	methods, nodes := "rpc:{"+name+"}:methods", "rpc:{"+name+"}:nodes"
	require.NoError(t, c.ZAdd(ctx, methods, redis.Z{Member: "echo\x00ghost"}).Err())
	_, err = lab.Echo.Call(ctx, caller, "", nil)
	require.ErrorContains(t, err, "no lease")
	require.Zero(t, c.ZCard(ctx, methods).Val(), "a node without a lease is forgotten")
	require.NoError(t, c.ZAdd(ctx, methods, redis.Z{Member: "echo\x00unreachable"}).Err())
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Member: "unreachable", Score: lab.Future}).Err())
	_, err = lab.Echo.Call(ctx, caller, "", nil)
	require.ErrorContains(t, err, "no subscriber")
	const few = 20 // by each script, for the three calls
	require.Less(t, slices.Max(asked()), int64(few), "%v", asked())
	require.Empty(t, lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result()), "a call that was not sent leaves no record")
}

// countScripts counts the round trips of scripts on a client from now on.
func countScripts(c *redis.Client, scripts ...*lua.Script) func() []int64 {
	counts := make([]atomic.Int64, len(scripts))
	for i, s := range scripts {
		c.AddHook(&lab.Around{Sha: lab.Digest(s), Do: func(run func() error) error {
			counts[i].Add(1)
			return run()
		}})
	}
	return func() []int64 {
		out := make([]int64, len(counts))
		for i := range counts {
			out[i] = counts[i].Load()
		}
		return out
	}
}

// A node without a subscriber does not hide a live one with more load.
func TestCallPassesOverUnreachableNodes(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	for i := range 20 {
		node := fmt.Sprint("unreachable", i)
		require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:methods", redis.Z{Member: "echo\x00" + node}).Err())
		require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:nodes", redis.Z{Member: node, Score: lab.Future}).Err())
	}
	out, err := lab.Echo.Call(ctx, b, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
}

// Sizes at their limits, on both sides: what fits arrives whole, and one byte more is
// refused by name, a request before anything is sent.
func TestRPCSizesAtTheirLimits(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	const most = queue.MaxBatchBytes - 2048 - 2 // two quotes of JSON
	node := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		if n, err := strconv.Atoi(s); err == nil {
			return strings.Repeat("x", n), nil
		}
		return strconv.Itoa(len(s)), nil
	})
	out, err := lab.Echo.Call(ctx, node, strconv.Itoa(most), nil)
	require.NoError(t, err)
	require.Len(t, out, most)
	var remote *rpc.RemoteError
	_, err = lab.Echo.Call(ctx, node, strconv.Itoa(most+1), nil)
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeTooLarge, remote.Code)

	out, err = lab.Echo.Call(ctx, node, strings.Repeat("x", most), nil)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(most), out)
	handled := node.Stats().Handled
	_, err = lab.Echo.Call(ctx, node, strings.Repeat("x", queue.MaxBatchBytes-1), nil)
	require.ErrorIs(t, err, lua.ErrTooLarge)
	for _, err = range lab.Echo.Gather(ctx, node, strings.Repeat("x", queue.MaxBatchBytes)) {
		require.ErrorIs(t, err, lua.ErrTooLarge)
	}
	require.ErrorIs(t, lab.Echo.Cast(ctx, node, strings.Repeat("x", 64<<10)), lua.ErrTooLarge)
	require.Equal(t, handled, node.Stats().Handled)
}

// Bodies of every size: those from 8 KiB on travel beside the scripts, and leave nothing behind.
func TestRPCLargeBodies(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	for _, n := range []int{0, 1, 8_189, 8_190, 8_191, 60_000, 65_400, 65_500, 70_000, 500_000, 1_000_000} {
		out, err := lab.Echo.Call(t.Context(), caller, strings.Repeat("x", n), nil)
		require.NoError(t, err, n)
		require.Equal(t, strings.Repeat("X", n), out)
	}
	_, err := lab.Echo.Call(t.Context(), caller, strings.Repeat("x", 100_000), &rpc.CallOptions{Key: "k"})
	require.NoError(t, err)
	out, err := lab.Echo.Call(t.Context(), node, strings.Repeat("x", 100_000), &rpc.CallOptions{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("X", 100_000), out, "the kept result, for another process")
	_, err = lab.Echo.Call(t.Context(), caller, strings.Repeat("y", 100_000), &rpc.CallOptions{Key: "k"})
	require.ErrorIs(t, err, rpc.ErrKeyReused)
	luatomictest.Eventually(t, 30*time.Second, "the bodies are removed, but for that of the key and its request",
		func() bool {
			return len(lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:b:*").Result())) <= 2
		})
}
