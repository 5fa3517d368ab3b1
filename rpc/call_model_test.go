package rpc_test

import (
	"context"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

var callSeed = flag.Uint64("callseed", 0, "the seed of TestRPCManyCallsWithTimeoutsAndCuts; 0 for a new one")

// drill is one run of very many calls.
type drill struct {
	name         string
	calls        int
	node, caller *rpc.Bus
	nodeProxy    *luatomictest.LossyProxy
	callerProxy  *luatomictest.LossyProxy

	ran                                 []atomic.Int32 // how often each call ran
	results, timeouts, refused, foreign atomic.Int64
}

// drillWait is longer than anything that a cut costs.
const drillWait = 20 * time.Second

var plusOne = rpc.NewMethod[int, int]("plus-one")

// Very many calls, one in ten with a handler that is slower than the caller waits,
// while the connections of both sides are cut at random: each call ends in one definite
// outcome, none runs twice, and afterwards no key and no goroutine is left.
//
// A million calls in the drill.
func TestRPCManyCallsWithTimeoutsAndCuts(t *testing.T) {
	d := &drill{name: luatomictest.Namespace(t), calls: 10_000}
	between := 100 * time.Millisecond
	if os.Getenv("LUATOMIC_DRILL") != "" {
		d.calls, between = 1_000_000, time.Second
	}
	seed := *callSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-callseed=%d, %d calls", seed, d.calls)
	d.ran = make([]atomic.Int32, d.calls)
	nodeClient, nodeProxy := through(t)
	callerClient, callerProxy := through(t)
	d.nodeProxy, d.callerProxy = nodeProxy, callerProxy
	c := luatomictest.Client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	before := runtime.NumGoroutine()

	var err error
	d.node, err = rpc.New(nodeClient, d.name, &rpc.Options{Concurrency: 4096, Lease: 15 * time.Second})
	require.NoError(t, err)
	require.NoError(t, plusOne.Serve(d.node, d.handle, nil))
	stopNode := lab.RunBus(t, d.node)
	require.NoError(t, d.node.Ready(t.Context()))
	d.caller, err = rpc.New(callerClient, d.name, nil)
	require.NoError(t, err)
	stopCaller := lab.RunBus(t, d.caller)
	require.NoError(t, d.caller.Ready(t.Context()))

	start := time.Now()
	rnd := rand.New(rand.NewPCG(seed, 0))
	stopCuts := cutting(between, d.results.Load, func() {
		switch rnd.IntN(4) {
		case 0:
			nodeProxy.CutAll()
		case 1:
			callerProxy.CutAll()
		}
	})
	d.run(t, seed)
	stopCuts()
	t.Logf("%v: %d results, %d timeouts, %d times no responder; caller %+v, node %+v", time.Since(start),
		d.results.Load(), d.timeouts.Load(), d.refused.Load(), d.caller.Stats(), d.node.Stats())
	require.Zero(t, d.foreign.Load(), "outcomes that no call may have")
	require.Equal(t, int64(d.calls), d.results.Load()+d.timeouts.Load())
	for i := range d.ran {
		require.LessOrEqual(t, d.ran[i].Load(), int32(1), "call %d", i)
	}
	d.nothingIsLeft(t, stopNode, stopCaller, before)
}

// handle is slow for one call in ten.
func (d *drill) handle(ctx context.Context, n int) (int, error) {
	d.ran[n].Add(1)
	if n%10 == 0 {
		<-ctx.Done()
	}
	return n + 1, ctx.Err()
}

func (d *drill) run(t *testing.T, seed uint64) {
	const callers = 128
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		rnd := rand.New(rand.NewPCG(seed, uint64(i+1)))
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= d.calls {
					return
				}
				d.one(t, n, time.Duration(5+rnd.IntN(40))*time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// one makes call n until it was sent, and counts its outcome.
func (d *drill) one(t *testing.T, n int, short time.Duration) {
	wait := drillWait
	if n%10 == 0 {
		wait = short
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for {
		out, err := plusOne.Call(ctx, d.caller, n, nil)
		var remote *rpc.RemoteError
		switch {
		case err == nil && out == n+1 && n%10 != 0:
			d.results.Add(1)
		case errors.Is(err, rpc.ErrNoResponders) && ctx.Err() == nil:
			d.refused.Add(1)
			time.Sleep(time.Millisecond)
			continue
		case n%10 == 0 && (errors.Is(err, context.DeadlineExceeded) || errors.As(err, &remote) || ctx.Err() != nil):
			d.timeouts.Add(1)
		default:
			if d.foreign.Add(1) < 10 {
				t.Logf("call %d: %d, %v", n, out, err)
			}
		}
		return
	}
}

func (d *drill) nothingIsLeft(t *testing.T, stopNode, stopCaller func(), before int) {
	c := luatomictest.Client(t)
	luatomictest.Eventually(t, 30*time.Second, "no call is kept in the processes", func() bool {
		return d.node.Waiting() == 0 && d.caller.Waiting() == 0
	})
	// A record whose request was sent again, or whose end could not be sent to the server,
	// stays until the call's time is over. The mark of a call that was refused stays 10 s longer.
	left := lab.Must(c.Keys(t.Context(), "rpc:{"+d.name+"}:r:*").Result())
	t.Logf("%d records are left to expire", len(left))
	for _, record := range left {
		ttl := lab.Must(c.PTTL(t.Context(), record).Result())
		require.NotEqual(t, time.Duration(-1), ttl, "no TTL")
		require.LessOrEqual(t, ttl, drillWait+10*time.Second)
	}
	if os.Getenv("LUATOMIC_DRILL") != "" {
		luatomictest.Eventually(t, time.Minute, "no record is left", func() bool {
			return countKeys(t,
				d.name+"}:r:") == 0
		})
	} else if len(left) > 0 {
		require.NoError(t, c.Del(t.Context(), left...).Err())
	}
	luatomictest.Eventually(t, 20*time.Second, "the next announcement sets the calls in flight right", func() bool {
		_, fraction := math.Modf(c.ZScore(t.Context(), "rpc:{"+d.name+"}:nodes", d.node.Node()).Val())
		return fraction == 0
	})
	stopCaller()
	stopNode()
	nothingStays(t, c, d.name)
	d.nodeProxy.CutAll()
	d.callerProxy.CutAll()
	luatomictest.Eventually(t, 20*time.Second, "the goroutines end", func() bool {
		// Those of the clients' pools and of the proxies stay.
		return runtime.NumGoroutine() <= before+20
	})
}

// countKeys counts the keys whose names hold that, without blocking the server.
func countKeys(t *testing.T, part string) (n int) {
	t.Helper()
	c := luatomictest.Client(t)
	iter := c.Scan(t.Context(), 0, "*"+part+"*", 10_000).Iterator()
	for iter.Next(t.Context()) {
		n++
	}
	require.NoError(t, iter.Err())
	return n
}
