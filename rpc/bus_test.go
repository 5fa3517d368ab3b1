package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestCallAndReply(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, nil)
	out, err := lab.Echo.Call(t.Context(), caller, "hello")
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
				_, err := lab.Echo.Call(t.Context(), caller, "")
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
	_, err := lab.Echo.Call(ctx, caller, "") // connects
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	start := time.Now()
	_, err = lab.Echo.Call(ctx, caller, "")
	require.ErrorContains(t, err, "no node serves it")
	require.Less(t, time.Since(start), 30*time.Second, "half of the time-out")

	// The three reasons, with the records that lead to them.
	method, nodes := "rpc:{"+name+"}:m:echo", "rpc:{"+name+"}:nodes"
	require.NoError(t, c.ZAdd(ctx, method, redis.Z{Member: "ghost", Score: -1}).Err())
	_, err = lab.Echo.Call(ctx, caller, "")
	require.ErrorContains(t, err, "no lease")
	require.Zero(t, c.ZCard(ctx, method).Val(), "a node without a lease is forgotten")
	require.NoError(t, c.ZAdd(ctx, method, redis.Z{Member: "deaf", Score: -1}).Err())
	require.NoError(t, c.ZAdd(ctx, nodes, redis.Z{Member: "deaf", Score: lab.Future}).Err())
	_, err = lab.Echo.Call(ctx, caller, "")
	require.ErrorContains(t, err, "no subscriber")
	require.Empty(t, lab.Must(c.Keys(ctx, "rpc:{"+name+"}:r:*").Result()), "a call that was not sent leaves no record")
}

// A node without a subscriber does not hide a live one with more load.
func TestCallPassesOverDeafNodes(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	for i := range 20 { // more than the script looks at in one go
		node := fmt.Sprint("deaf", i)
		require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:m:echo", redis.Z{Member: node, Score: -100}).Err())
		require.NoError(t, c.ZAdd(ctx, "rpc:{"+name+"}:nodes", redis.Z{Member: node, Score: lab.Future}).Err())
	}
	out, err := lab.Echo.Call(ctx, b, "x")
	require.NoError(t, err)
	require.Equal(t, "X", out)
}

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		switch s {
		case "code":
			return "", fmt.Errorf("wrapped: %w", &rpc.RemoteError{Code: "quota", Message: "no more"})
		case "panic":
			panic("secret stack")
		case "big":
			return strings.Repeat("x", queue.MaxBatchBytes), nil
		}
		return "", errors.New(strings.Repeat("long ", 1000))
	})
	number := rpc.NewMethod[int, string]("echo")
	for in, want := range map[string]string{"code": "quota", "panic": rpc.CodeInternal, "big": rpc.CodeTooLarge, "": rpc.CodeError} {
		_, err := lab.Echo.Call(t.Context(), b, in)
		var remote *rpc.RemoteError
		require.ErrorAs(t, err, &remote, in)
		require.Equal(t, want, remote.Code)
		require.NotContains(t, remote.Message, "secret")
		require.LessOrEqual(t, len(remote.Message), 1024)
	}
	_, err := number.Call(t.Context(), b, 7)
	require.ErrorContains(t, err, rpc.CodeBadRequest)
	_, err = lab.Echo.Call(t.Context(), b, strings.Repeat("x", queue.MaxBatchBytes))
	require.ErrorIs(t, err, lua.ErrTooLarge)
}

func TestOverloadIsAnswered(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	b := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Concurrency: 1}, func(context.Context, string) (string, error) {
		entered <- struct{}{}
		<-leave
		return "", nil
	})
	first := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(t.Context(), b, "")
		first <- err
	}()
	<-entered
	_, err := lab.Echo.Call(t.Context(), b, "")
	require.ErrorContains(t, err, rpc.CodeOverloaded)
	close(leave)
	require.NoError(t, <-first)
}

func TestDeadlineReachesTheHandler(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	left := make(chan time.Duration, 1)
	b := lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		<-ctx.Done()
		return "", ctx.Err()
	})
	const wait = 2 * time.Second // a busy machine has asked the handler by then
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := lab.Echo.Call(ctx, b, "")
	require.Error(t, err)
	require.LessOrEqual(t, lab.Soon(t, 20*time.Second, "the handler runs", left), wait)
	luatomictest.Eventually(t, 20*time.Second, "the record of a call that timed out expires", func() bool {
		return len(lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}:r:*").Result())) == 0
	})
}

func TestCallWithoutRunSaysSo(t *testing.T) {
	t.Parallel()
	b, err := rpc.NewBus(luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Timeout: 20 * time.Millisecond})
	require.NoError(t, err)
	_, err = lab.Echo.Call(t.Context(), b, "")
	require.ErrorContains(t, err, "is its Run running?")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, rpc.NewMethod[int, int]("a{b").Serve(b, nil), lua.ErrBadName)
}

// The guards of rpc_reply: pending, node, attempt.
func TestReplyIsAcceptedOnceAndOnlyFromTheNodeAsked(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	p := "{" + name + "}:"
	require.NoError(t, c.ZAdd(ctx, p+"nodes", redis.Z{Member: "n1", Score: lab.Future}).Err())
	require.NoError(t, c.ZAdd(ctx, p+"m:x", redis.Z{Member: "n1", Score: -5}).Err())
	ps := c.Subscribe(ctx, name+"n1")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))

	call := gen.RPCCallParams{Nodes: p + "nodes", Method: p + "m:x", Record: p + "r:1", Frame: []byte("q"), Caller: name, Outbox: name,
		Timeout: time.Minute, Keep: time.Hour}
	sent, err := gen.RPCCall(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, gen.RPCCallOutcomeSent, sent.Outcome)
	require.Equal(t, float64(-4), c.ZScore(ctx, p+"m:x", "n1").Val(), "in flight")
	again, err := gen.RPCCall(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, gen.RPCCallOutcomeKnown, again.Outcome, "a repeat is not sent again")

	reply := func(node string, attempt int64) gen.RPCReplyResult {
		out, err := gen.RPCReply(ctx, c, gen.RPCReplyParams{Record: p + "r:1", Method: p + "m:x", Node: node, Attempt: attempt, Frame: []byte("first"), Outbox: name, Keep: time.Minute})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, gen.RPCReplyResultStale, reply("n2", 1), "another node")
	require.Equal(t, gen.RPCReplyResultStale, reply("n1", 2), "another attempt")
	require.Equal(t, gen.RPCReplyResultAccepted, reply("n1", 1))
	require.Equal(t, gen.RPCReplyResultDuplicate, reply("n1", 1))
	require.Equal(t, float64(-5), c.ZScore(ctx, p+"m:x", "n1").Val(), "not in flight any more")
	require.NoError(t, c.Del(ctx, p+"r:1").Err())
	require.Equal(t, gen.RPCReplyResultGone, reply("n1", 1))
}

// The caller's subscription is cut all the time: every reply still arrives, by
// collect. The guard is collect.
func TestRepliesSurviveCutSubscriptions(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	cut, proxy := through(t)
	caller := lab.OpenBus(t, cut, name, &rpc.Options{Timeout: time.Minute})
	require.NoError(t, caller.Ready(t.Context()))
	stop := cutting(20*time.Millisecond, func() int64 { return node.Stats().Handled }, proxy.CutAll)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				in := fmt.Sprint("x", i, j)
				out, err := lab.Echo.Call(t.Context(), caller, in)
				if err != nil || out != strings.ToUpper(in) {
					t.Errorf("call %s: %q, %v", in, out, err)
				}
			}
		})
	}
	wg.Wait()
	stop()
}

func TestRunWithdrawsTheNode(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b, err := rpc.NewBus(c, name, &rpc.Options{Node: "web-1", Lease: time.Minute})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	nodes := lab.Must(c.ZRange(t.Context(), "rpc:{"+name+"}:nodes", 0, -1).Result())
	require.Len(t, nodes, 1)
	require.True(t, strings.HasPrefix(nodes[0], "web-1."))
	start := time.Now()
	stop()
	require.Less(t, time.Since(start), 20*time.Second, "less than a lease")
	require.Empty(t, lab.Must(c.Keys(t.Context(), "rpc:{"+name+"}*").Result()), "nothing stays")
	_, err = lab.Echo.Call(t.Context(), b, "")
	require.ErrorContains(t, err, "it has ended")
	lab.RunBus(t, b) // and once more
	luatomictest.Eventually(t, 20*time.Second, "it answers again", func() bool {
		out, err := lab.Echo.Call(t.Context(), b, "x")
		return err == nil && out == "X"
	})
}
