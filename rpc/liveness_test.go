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

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
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
		if h.armed.Load() && is(lab.Digest(&rpcscript.JoinScript)) {
			close(h.held)
			h.armed.Store(false)
			select {
			case <-h.left:
			case <-time.After(100 * time.Millisecond): // well below what the node waits for it
			}
		}
		err := next(ctx, cmd)
		if is(lab.Digest(&rpcscript.LeaveScript)) {
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
	lua.Direct(own) // the hook sees no shared round trip
	b, err := rpc.New(own, name, &rpc.Options{Grace: 30 * time.Second})
	require.NoError(t, err)
	begun, finish := make(chan struct{}), make(chan struct{})
	require.NoError(t, hold.Serve(b, func(context.Context, string) (string, error) {
		close(begun)
		<-finish
		return "", nil
	}, nil))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- b.Run(running) }()
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	answer := make(chan error, 1)
	go func() {
		_, err := hold.Call(ctx, caller, "x", nil)
		answer <- err
	}()
	<-begun
	h.armed.Store(true)
	require.NoError(t, lab.Echo.Serve(b, func(_ context.Context, s string) (string, error) {
		return s,
			nil
	}, nil)) // announces
	<-h.held
	stop()
	<-h.left
	luatomictest.Eventually(t, 20*time.Second, "it has announced itself, or never will",
		func() bool { return !h.armed.Load() })
	for range 20 {
		_, err = hold.Call(ctx, caller, "x", nil)
		require.ErrorIs(t, err, rpc.ErrNoResponders)
		_, err = lab.Echo.Call(ctx, caller, "x", nil)
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
	p := scriptcase.GivenTo(k, "n")
	p.Caller, p.Others, p.Shard = "me", "", true
	send := func() (out []string) {
		require.NoError(t, c.Del(ctx, p.Record).Err())
		require.NoError(t, scriptcase.Announced(ctx, c, k))
		call := lab.Must(rpcscript.Decide(ctx, c, p))
		found := lab.Must(rpcscript.Find(ctx, c, rpcscript.FindParams{Nodes: p.Nodes, Methods: "{" + k + "}:methods",
			Method: "x",
			Caller: "me", Outbox: k, Shard: true}))
		cast := lab.Must(rpcscript.Cast(ctx, c, rpcscript.CastParams{Nodes: p.Nodes, Methods: "{" + k + "}:methods",
			Method: "x",
			Frame:  []byte("f"), Outbox: k, Timeout: time.Minute, Shard: true}))
		require.NoError(t, scriptcase.Orphaned(ctx, c, k))
		again := p
		again.Again = true
		rescue := lab.Must(rpcscript.Decide(ctx, c, again))
		return []string{call.Outcome.String(), found[0].State.String(), cast.Reason.String(), rescue.Outcome.String()}
	}
	listen := func(channel string) *redis.PubSub {
		ps := c.SSubscribe(ctx, channel)
		require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
		return ps
	}
	for _, classic := range []string{"n", "me"} {
		require.NoError(t, lab.Subscribe(ctx, t, c, k+classic), "of other channels")
	}
	require.Equal(t, []string{"sent", "alive", "no_subscriber", "sent"}, send(), "no subscriber")
	me := listen(k + "me")
	defer me.Close()
	require.Equal(t, []string{"no_subscriber", "unreachable", "no_subscriber", "lost"}, send(),
		"the node is not")
	node := listen(k + "n")
	defer node.Close()
	require.Equal(t, []string{"sent", "alive", "sent", "sent"}, send())
	for range 3 {
		require.IsType(t, &redis.Message{}, lab.Must(node.ReceiveTimeout(ctx, 5*time.Second)), "one of each")
	}
}

// The notices and parts of a cluster are sharded messages.
func TestNoticesOfAClusterAreSharded(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	record, chunks := "{"+k+"}:r:1", "{"+k+"}:s:1"
	for channel, send := range map[string]func() error{
		k + "n": func() error {
			_, err := rpcscript.Cancel(ctx, c, rpcscript.CancelParams{Record: record, Outbox: k, Notice: []byte("m"),
				Mark: time.Minute, Shard: true})
			return err
		},
		k + k: func() error {
			_, err := rpcscript.Chunk(ctx, c, rpcscript.ChunkParams{Record: record, Chunks: chunks, Node: "n",
				Attempt: 1, Seq: 1,
				Frame: []byte("m"), Outbox: k, Keep: time.Minute, Shard: true})
			return err
		},
		k + "r": func() error {
			_, err := rpcscript.Read(ctx, c, rpcscript.ReadParams{Chunks: chunks, Read: 1, Count: 1,
				Notice:  []byte("m"),
				Channel: k + "r", Shard: true})
			return err
		},
	} {
		require.NoError(t, scriptcase.Asked(ctx, c, k))
		ps := c.SSubscribe(ctx, channel)
		require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))
		require.NoError(t, send())
		m, err := ps.ReceiveTimeout(ctx, 20*time.Second)
		require.NoError(t, err)
		require.IsType(t, &redis.Message{}, m)
		require.NoError(t, ps.Close())
	}
}

// An idle node costs the server the same with any number of methods: about ten commands for a heartbeat, and now and
// then the keys of methods are renewed. A process that only calls announces its new link to nobody.
func TestIdleNodesCostNothingPerMethod(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	lab.Unmarked(t)
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	b, err := rpc.New(c, "b", &rpc.Options{Lease: 2 * time.Second})
	require.NoError(t, err)
	for i := range 700 { // more than one script takes
		require.NoError(t, rpc.NewMethod[string, string](fmt.Sprint("m", i)).Serve(b, lab.Upper, nil))
	}
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	_, err = rpc.NewMethod[string, string]("m699").Call(ctx, b, "x", nil)
	require.NoError(t, err)
	require.NoError(t, c.ConfigResetStat(ctx).Err())
	time.Sleep(8 * time.Second)
	calls := lab.CommandCalls(t, c)
	total := 0
	for name, n := range calls {
		if name != "info" && name != "config|resetstat" {
			total += n
		}
	}
	beats := calls["evalsha"]
	require.Positive(t, beats)
	t.Logf("%d commands in %d scripts", total, beats)
	require.LessOrEqual(t, total, 12*beats)

	others := c.Subscribe(ctx, "rpc:{b}:all")
	defer others.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(others.Receive(ctx)))
	caller := lab.OpenBus(t, c, "b", nil)
	require.NoError(t, caller.Ready(ctx))
	before := caller.Resubscribed()
	require.NoError(t, c.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
	luatomictest.Eventually(t, 20*time.Second, "both links are back", func() bool {
		return caller.Resubscribed() >= before+2 // its own, and what the node announces
	})
}

// A method that is served while Run runs can be called by everybody once Ready has returned.
func TestReadyWaitsForAMethodThatIsServedLater(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	own := luatomictest.Client(t)
	b := lab.OpenBus(t, lua.Direct(own), name, nil)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, nil)
	require.NoError(t, b.Ready(ctx))
	_, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	var first sync.Once
	held, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	own.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		first.Do(func() {
			close(held)
			<-released
		})
		return run()
	}})
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	lab.Soon(t, 20*time.Second, "the announcement", held)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Ready(short), context.DeadlineExceeded)
	release()
	require.NoError(t, b.Ready(ctx))
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
}

// A program with a short lease runs shortly. The nodes with longer leases stay on the bus when it has ended.
func TestANodeWithAShortLeaseTakesNoOtherOffTheBus(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	long := &rpc.Options{Lease: time.Hour, Timeout: time.Minute} // no heartbeat meanwhile
	lab.Serving(t, lab.Echo, c, name, long, lab.Upper)
	caller := lab.OpenBus(t, luatomictest.Client(t), name, long)
	require.NoError(t, caller.Ready(ctx))
	const lease = 200 * time.Millisecond
	short, err := rpc.New(c, name, &rpc.Options{Lease: lease})
	require.NoError(t, err)
	stop := lab.RunBus(t, short)
	luatomictest.Eventually(t, 20*time.Second, "it is announced", func() bool {
		return c.ZScore(ctx, "rpc:{"+name+"}:nodes", short.Node()).Err() == nil
	})
	stop()
	time.Sleep(4 * lease)
	nodes, err := caller.Nodes(ctx)
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	out, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	require.Equal(t, "X", out)
}

// The heartbeat with which a node begins has the methods that were served before. No second one follows at once.
func TestANodeBeginsWithOneHeartbeat(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	lua.Direct(c) // the hook sees no shared round trip
	require.NoError(t, lua.Preload(t.Context(), c, &rpcscript.JoinScript))
	var beats atomic.Int64
	c.AddHook(&lab.Around{Sha: lab.Digest(&rpcscript.JoinScript), Do: func(run func() error) error {
		beats.Add(1)
		return run()
	}})
	lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute}, lab.Upper)
	time.Sleep(300 * time.Millisecond) // the next one is due after 20 s
	require.Equal(t, int64(1), beats.Load())
}
