package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A node whose link leads to a server that has become a replica hears what is published
// on the master and is not counted there. What finds no responders has not run, and the
// node notices and takes calls again.
func TestANodeThatListensAtAReplicaDoesNotRunWhatWasRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := lab.StartPair(t)
	var runs atomic.Int64
	// It looks after a third of its lease, when the servers have long changed places.
	node := lab.Serving(t, lab.Echo, p.Client(t), "bus", &rpc.Options{Lease: 24 * time.Second}, func(_ context.Context, s string) (string, error) {
		runs.Add(1)
		return s, nil
	})
	_, err := lab.Echo.Call(ctx, lab.OpenBus(t, p.Client(t), "bus", nil), "before")
	require.NoError(t, err)
	p.Turn(t)
	late := lab.OpenBus(t, p.Client(t), "bus", nil)
	refused, sent, maybe := 0, int64(1), int64(0)
	count := func(err error) {
		switch {
		case err == nil:
			sent++
		case errors.Is(err, context.DeadlineExceeded): // the node still writes to the old master
			maybe++
		default:
			refused++
			require.ErrorIs(t, err, rpc.ErrNoResponders)
		}
	}
	luatomictest.Eventually(t, 90*time.Second, "the node takes calls again", func() bool {
		for _, err := range lab.Echo.Gather(ctx, late, "x") {
			var missing *rpc.MissingError
			if errors.As(err, &missing) {
				maybe++
			} else {
				count(err)
			}
		}
		count(lab.Echo.Cast(ctx, late, "x"))
		_, err := lab.Echo.CallWith(ctx, late, "x", &rpc.CallOptions{Node: node.Node()})
		count(err)
		_, err = lab.Echo.Call(ctx, late, "x")
		count(err)
		return err == nil
	})
	require.Positive(t, refused, "the link was left where it was")
	luatomictest.Eventually(t, 30*time.Second, "the last cast has run", func() bool { return runs.Load() >= sent })
	require.LessOrEqual(t, runs.Load(), sent+maybe, "what was refused did not run")
}

// holdJoin holds back the announcements of a node, once it is armed, until the node has
// said that it leaves, or for a while.
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
	require.NoError(t, lab.Echo.Serve(b, func(_ context.Context, s string) (string, error) { return s, nil })) // announces
	<-h.held
	stop()
	<-h.left
	luatomictest.Eventually(t, 20*time.Second, "it has announced itself, or never will", func() bool { return !h.armed.Load() })
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

// relink cuts the caller's link once its gather is sent, and waits until it is back before
// the caller has the answer.
type relink struct {
	holdJoin
	then func()
}

func (h *relink) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if len(cmd.Args()) > 1 && fmt.Sprint(cmd.Args()[1]) == gen.RPCGatherSHA && err == nil {
			h.once.Do(h.then)
		}
		return err
	}
}

// A gather tells its caller that a node was not asked. So it is not, although the caller's
// link broke meanwhile and it names the request to those that were.
func TestRPCGatherDoesNotAskLater(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), luatomictest.StartServer(t)
	c := server.Client()
	asked := make(chan struct{}, 10)
	lab.Serving(t, lab.Echo, c, "bus", nil, func(_ context.Context, s string) (string, error) {
		asked <- struct{}{}
		return s, nil
	})
	require.NoError(t, c.ZAdd(ctx, "rpc:{bus}:nodes", redis.Z{Score: lab.Future, Member: "deaf"}).Err())
	require.NoError(t, c.ZAdd(ctx, "rpc:{bus}:m:echo", redis.Z{Score: -5, Member: "deaf"}).Err())
	require.NoError(t, lua.Preload(ctx, c, luatomic.Scripts()...))
	var caller *rpc.Bus
	var deaf *redis.PubSub
	own := server.Client()
	own.AddHook(&relink{then: func() {
		deaf = c.Subscribe(ctx, "rpc:{bus}:n:deaf")
		_, err := deaf.Receive(ctx)
		require.NoError(t, err)
		before := caller.Ups()
		killed, err := c.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Int()
		require.NoError(t, err)
		require.Equal(t, 3, killed, "the node's, the caller's, and deaf, which comes back too")
		luatomictest.Eventually(t, 20*time.Second, "the links are back", func() bool { return caller.Ups() >= before+2 })
		_, err = deaf.Receive(ctx)
		require.Error(t, err)
		_, err = deaf.Receive(ctx)
		require.NoError(t, err, "it listens again")
	}})
	caller = lab.Must(rpc.NewBus(own, "bus", &rpc.Options{Timeout: time.Minute}))
	stop := lab.RunBus(t, caller)
	require.NoError(t, caller.Ready(ctx))
	var refused, answers int
	for _, err := range lab.Echo.Gather(ctx, caller, "x") {
		if err != nil {
			require.ErrorIs(t, err, rpc.ErrNoResponders)
			refused++
		} else {
			answers++
		}
	}
	require.Equal(t, []int{1, 1}, []int{refused, answers})
	defer deaf.Close()
	stop() // what it has to say is said
	require.NoError(t, c.Publish(ctx, "rpc:{bus}:n:deaf", "last").Err())
	m, err := deaf.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "last", m.Payload, "nobody told it before")
}
