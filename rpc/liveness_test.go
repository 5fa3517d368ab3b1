package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// holdJoin holds back the announcements of a node, once it is armed, until the node has
// withdrawn, or for a while.
type holdJoin struct {
	armed atomic.Bool
	once  sync.Once
	held  chan struct{}
	left  chan struct{}
}

func (h *holdJoin) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *holdJoin) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *holdJoin) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		is := func(sha string) bool { return len(cmd.Args()) > 1 && fmt.Sprint(cmd.Args()[1]) == sha }
		if h.armed.Load() && is(gen.RPCJoinSHA) {
			close(h.held)
			h.armed.Store(false)
			select {
			case <-h.left:
			case <-time.After(100 * time.Millisecond): // well below what the node waits for it
			}
		}
		err := next(ctx, cmd)
		if is(gen.RPCLeaveSHA) {
			h.once.Do(func() { close(h.left) })
		}
		return err
	}
}

// A node announces itself at the moment at which it leaves: it gets no calls any more
// while it waits for its handlers.
func TestAnAnnouncementDoesNotUndoThatANodeLeaves(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	h := &holdJoin{held: make(chan struct{}), left: make(chan struct{})}
	c := luatomictest.Client(t)
	own := redis.NewClient(c.Options())
	defer own.Close()
	own.AddHook(h)
	b, err := rpc.NewBus(own, name, &rpc.Options{Grace: 30 * time.Second})
	require.NoError(t, err)
	begun, finish := make(chan struct{}), make(chan struct{})
	require.NoError(t, hold.Serve(b, func(context.Context, string) (string, error) {
		close(begun)
		<-finish
		return "", nil
	}))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.Run(running) }()
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	answer := make(chan error, 1)
	go func() {
		_, err := hold.Call(ctx, caller, "x")
		answer <- err
	}()
	<-begun
	h.armed.Store(true)
	require.NoError(t, lab.Echo.Serve(b, func(_ context.Context, s string) (string, error) {
		return s,
			nil
	})) // announces
	<-h.held
	stop()
	<-h.left
	luatomictest.Eventually(t, 20*time.Second, "it has announced itself, or never will",
		func() bool { return !h.armed.Load() })
	for range 20 {
		_, err = hold.Call(ctx, caller, "x")
		require.ErrorIs(t, err, rpc.ErrNoResponders)
		_, err = lab.Echo.Call(ctx, caller, "x")
		require.ErrorIs(t, err, rpc.ErrNoResponders)
	}
	close(finish)
	require.NoError(t, <-answer)
	require.ErrorIs(t, <-done, context.Canceled)
}

// In a cluster the subscribers of the shard's own channels count. Where the caller is not
// subscribed either, the slot is moving, and the lease suffices, but for a cast.
func TestRPCScriptsOfACluster(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	method, nodes, record, gather := "{"+k+"}:m:x", "{"+k+"}:nodes", "{"+k+"}:r:1", "{"+k+"}:g:1"
	send := func() (out []string) {
		require.NoError(t, c.Del(ctx, record, gather).Err())
		require.NoError(t, scriptcase.Announced(ctx, c, k))
		call := lab.Must(gen.RPCCall(ctx, c, gen.RPCCallParams{Nodes: nodes, Method: method, Record: record,
			Frame: []byte("f"), Caller: "me", Outbox: k,
			Timeout: time.Minute, Keep: time.Hour, Shard: true}))
		require.NoError(t, c.Del(ctx, record).Err())
		require.NoError(t, scriptcase.Announced(ctx, c, k))
		direct := lab.Must(gen.RPCDirect(ctx, c, gen.RPCDirectParams{Nodes: nodes, Method: method, Record: record,
			Frame: []byte("f"), Caller: "me", Outbox: k,
			Timeout: time.Minute, Keep: time.Hour, Shard: true, Target: lua.Some("n")}))
		rows := lab.Must(gen.RPCGather(ctx, c, gen.RPCGatherParams{Nodes: nodes, Method: method, Gather: gather,
			Frame: []byte("f"), Caller: "me", Outbox: k,
			Timeout: time.Minute, Keep: time.Hour, Shard: true}))
		cast := lab.Must(gen.RPCCast(ctx, c, gen.RPCCastParams{Nodes: nodes, Method: method, Frame: []byte("f"), Outbox: k,
			Timeout: time.Minute, Shard: true}))
		require.NoError(t, scriptcase.Orphaned(ctx, c, k))
		rescue := lab.Must(gen.RPCRescue(ctx, c, gen.RPCRescueParams{Nodes: nodes, Method: method, Record: record,
			Again: true, Outbox: k, Notice: []byte("L"),
			Keep: time.Minute, Caller: "me", Shard: true}))
		return []string{call.Outcome.String(), direct.Outcome.String(), fmt.Sprint(rows[0].Subscribed), cast.Reason.String(),
			rescue.Outcome.String()}
	}
	listen := func(channel string) *redis.PubSub {
		ps := c.SSubscribe(ctx, channel)
		require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
		return ps
	}
	for _, classic := range []string{"n", "me"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+classic), "of other channels")
	}
	require.Equal(t, []string{"sent", "sent", "true", "no_subscriber", "moved"}, send(), "no subscriber")
	me := listen(k + "me")
	defer me.Close()
	require.Equal(t, []string{"no_subscriber", "no_subscriber", "false", "no_subscriber", "lost"}, send(),
		"the node is not")
	require.Equal(t, "u", c.HGet(ctx, gather, "n:n").Val())
	node := listen(k + "n")
	defer node.Close()
	require.Equal(t, []string{"sent", "sent", "true", "sent", "moved"}, send())
	for range 5 {
		require.IsType(t, &redis.Message{}, lab.Must(node.ReceiveTimeout(ctx, 5*time.Second)), "one of each")
	}
}
