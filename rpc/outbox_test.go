package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// The guards of rpc_cancel: a request whose outcome the caller does not know may be sent
// once more after it was given up, whatever has become of the first one. It finds the
// mark and does not run.
func TestRPCGivenUpRequestIsNotSentAgain(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	p := "{" + name + "}:"
	ps := c.Subscribe(ctx, name+"n")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
	cancel := func() rpcscript.CancelResult {
		return lab.Must(rpcscript.Cancel(ctx, c, rpcscript.CancelParams{Record: p + "r:1", Outbox: name,
			Notice: []byte("X"), Mark: time.Minute}))
	}
	cancelAbsent := func() rpcscript.CancelResult {
		return lab.Must(rpcscript.Cancel(ctx, c, rpcscript.CancelParams{Record: p + "r:1", Outbox: name,
			Notice: []byte("X"), Mark: time.Minute, Absent: true}))
	}
	call := func() rpcscript.DecideOutcome {
		return lab.Must(rpcscript.Decide(ctx, c, scriptcase.GivenTo(name, "n"))).Outcome
	}
	for record, want := range map[string]rpcscript.CancelResult{
		"":                                 rpcscript.CancelResultMissing,
		"p1 n\n\t" + name + "\nf":          rpcscript.CancelResultCancelled,
		"d1 n\n\nreply":                    rpcscript.CancelResultDone,
		"l1 n\n\n":                         rpcscript.CancelResultDone,
		"r1 n\n\t" + name + "\nf":          rpcscript.CancelResultMissing,
		"p2 other\n\t" + name + "\tb\nf\n": rpcscript.CancelResultCancelled,
	} {
		require.NoError(t, scriptcase.Announced(ctx, c, name))
		require.NoError(t, c.Del(ctx, p+"r:1").Err())
		if record != "" {
			require.NoError(t, c.Set(ctx, p+"r:1", record, time.Hour).Err())
		}
		if absent := cancelAbsent(); want != rpcscript.CancelResultMissing {
			require.Equal(t, want, absent, "%q", record)
			require.Equal(t, record, c.Get(ctx, p+"r:1").Val(), "it is not changed")
		} else {
			require.Equal(t, want, absent, "%q", record)
			require.Equal(t, "x0", c.Get(ctx, p+"r:1").Val())
		}
		require.Equal(t, want, cancel(), "%q", record)
		require.Equal(t, rpcscript.DecideOutcomeCancelled, call(), "%q", record)
		require.Equal(t, fmt.Sprintf("x%d", want), c.Get(ctx, p+"r:1").Val())
		require.Equal(t, want, cancel(), "a repeat of %q", record)
		require.InDelta(t, time.Minute, c.PTTL(ctx, p+"r:1").Val(), float64(10*time.Second))
		reply := lab.Must(rpcscript.Reply(ctx, c, rpcscript.ReplyParams{Record: p + "r:1", Node: "n",
			Attempt: 1, State: "d", Frame: []byte("f"), Outbox: name, Keep: time.Minute}))
		require.Equal(t, rpcscript.ReplyResultMissing, reply, "no caller reads it")
	}
}

// The node that works on it is notified.
func TestRPCCancelNotifiesTheNodeThatHasIt(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Asked(ctx, c, name))
	ps := c.Subscribe(ctx, name+"n")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
	out := lab.Must(rpcscript.Cancel(ctx, c, rpcscript.CancelParams{Record: "{" + name + "}:r:1",
		Outbox: name, Notice: []byte("X1"), Mark: time.Minute}))
	require.Equal(t, rpcscript.CancelResultCancelled, out)
	m, err := ps.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "X1", m.Payload)
}

// C7: what timed out leaves nothing behind.
func TestRPCTimeoutsLeaveNothing(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	const calls = 1000
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node, err := rpc.New(c, name, &rpc.Options{Concurrency: 1024, Lease: 15 * time.Second})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(node, func(ctx context.Context, s string) (string, error) {
		if s == "slow" {
			<-ctx.Done()
		}
		return "", ctx.Err()
	}, nil))
	stop := lab.RunBus(t, node)
	require.NoError(t, node.Ready(ctx))
	caller, err := rpc.New(c, name, nil)
	require.NoError(t, err)
	stopCaller := lab.RunBus(t, caller)
	require.NoError(t, caller.Ready(ctx))
	var wg sync.WaitGroup
	var timeouts atomic.Int64
	for i := range 100 {
		wg.Go(func() {
			for j := range calls / 100 {
				in, d := "", 15*time.Second
				if (i+j)%10 == 0 {
					in, d = "slow", 20*time.Millisecond
				}
				ctx, cancel := context.WithTimeout(ctx, d)
				_, err := lab.Echo.Call(ctx, caller, in, nil)
				cancel()
				if in == "" {
					require.NoError(t, err)
					continue
				}
				require.Error(t, err)
				timeouts.Add(1)
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(calls/10), timeouts.Load())
	luatomictest.Eventually(t, 30*time.Second, "no call is kept in the processes", func() bool {
		return node.Waiting() == 0 && caller.Waiting() == 0
	})
	luatomictest.Eventually(t, time.Minute, "no record is left", func() bool {
		return len(lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result())) == 0
	})
	// A heartbeat may carry what was in flight a moment ago; the next one corrects it.
	luatomictest.Eventually(t, 20*time.Second, "no calls are in flight", func() bool {
		_, fraction := math.Modf(c.ZScore(ctx, "rpc:{"+name+"}:nodes", node.Node()).Val())
		return fraction == 0
	})
	stopCaller()
	stop()
	nothingStays(t, c, name)
}

// The large body of a call that is given up goes at once, and not at the end of its time.
func TestTheBodyOfACallThatIsGivenUpIsRemoved(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered := make(chan struct{})
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		close(entered)
		<-ctx.Done()
		return "", ctx.Err()
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 10 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, strings.Repeat("x", 10<<10), nil)
		called <- err
	}()
	lab.Soon(t, 20*time.Second, "the handler", entered)
	bodies := func() []string { return lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:b:*").Result()) }
	require.Len(t, bodies(), 1)
	cancel()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of the call", called), context.Canceled)
	luatomictest.Eventually(t, 20*time.Second, "no body is left", func() bool { return len(bodies()) == 0 })
}

// twoWays subscribes on another client.
type twoWays struct {
	*redis.Client
	sub *redis.Client
}

func (c *twoWays) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.sub.Subscribe(ctx, channels...)
}

// C14: the caller gives up at any moment. The handler's context ends soon, and there
// is one end.
func TestRPCCancel(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, told := make(chan struct{}, 1), make(chan time.Time, 1)
	// A cancelled call counts as in flight until the node has received that.
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1000, Lease: time.Minute},
		func(ctx context.Context, s string) (string, error) {
			if s == "now" {
				return s, nil
			}
			entered <- struct{}{}
			<-ctx.Done()
			told <- time.Now()
			return "", context.Cause(ctx)
		})
	caller := lab.OpenBus(t, c, name, nil)
	for range 20 {
		// Its deadline is long after all that a busy machine needs.
		bounded, end := context.WithTimeout(t.Context(), time.Minute)
		ctx, cancel := context.WithCancelCause(bounded)
		stopped := make(chan time.Time, 1)
		go func() {
			<-entered
			stopped <- time.Now()
			cancel(errStopped)
		}()
		_, err := lab.Echo.Call(ctx, caller, "wait", nil)
		require.ErrorIs(t, err, errStopped)
		require.Less(t, (<-told).Sub(<-stopped), 20*time.Second)
		end()
	}
	// In any order with start and reply.
	ended := [2]int{}
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
		out, err := lab.Echo.Call(ctx, caller, "now", nil)
		timer.Stop()
		cancel()
		if err == nil {
			require.Equal(t, "now", out)
			ended[0]++
		} else {
			require.ErrorIs(t, err, context.Canceled)
			ended[1]++
		}
	}
	t.Logf("%d answered, %d given up; node %+v", ended[0], ended[1], node.Stats())
	luatomictest.Eventually(t, 2*time.Minute, "nothing is left but marks that expire", func() bool {
		if node.Waiting() > 0 || caller.Waiting() > 0 {
			return false
		}
		for _, record := range lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result()) {
			value, err := c.Get(t.Context(), record).Result()
			if err == nil && (value[0] != 'x' || c.PTTL(t.Context(), record).Val() > 70*time.Second) {
				return false
			}
		}
		return true
	})
}

var errStopped = errors.New("stopped")
