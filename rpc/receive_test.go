package rpc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C20: whatever is published on the channels of a bus, its node and caller continue, count
// it, and no handler runs.
func TestRPCPoisonDoesNotReachHandlers(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int64
	b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		ran.Add(1)
		return s, nil
	})
	channel := "rpc:{" + name + "}:n:" + b.Node()
	for _, poison := range []string{"", "x", "Q", "R\x02", "E\x02\xff", "1 5000\n", "1 5000 2\nQ\x02",
		"1 5000 9\nQ\x02",
		"0 1 6\nQ\x02\x00\x00\x00\x00", "-1 5 1\nQ", "1 99999999999999999999 1\nQ", "1 5000 4\nQ\x03\x01a",
		"L\x02", "L\x02\x05a", "X\x02", "K\x02\x01a\x01b", "U\x02\x00", "D", "N\x02\x03abc", "r\x02\x01a\x01b\x00",
		"C\x02\x01a\x01\x00", strings.Repeat("9", 100),
		"R\x02\x01a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x00\xff", "P\x01"} {
		require.NoError(t, c.Publish(ctx, channel, poison).Err())
	}
	out, err := lab.Echo.Call(ctx, b, "still there", nil)
	require.NoError(t, err)
	require.Equal(t, "still there", out)
	require.Equal(t, int64(1), ran.Load())
	require.Greater(t, b.Stats().Refused, int64(10))
	// A record of another program's is refused, too, and the call says so.
	odd := lab.OpenBus(t, c, name+"odd", &rpc.Options{Lease: time.Minute})
	require.NoError(t, odd.Ready(ctx))
	require.NoError(t, c.Set(ctx, "rpc:{"+name+"odd}:methods", "x", time.Minute).Err())
	_, err = lab.Echo.Call(ctx, odd, "", nil)
	require.ErrorIs(t, err, lua.ErrWrongType)
}

// wireTap keeps what is published on the channels of a bus.
type wireTap struct {
	mu   sync.Mutex
	said []*redis.Message
}

func tap(t testing.TB, c *redis.Client, name string) *wireTap {
	t.Helper()
	ps := c.PSubscribe(t.Context(), "rpc:{"+name+"}:*")
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(t.Context())))
	w, done := &wireTap{}, make(chan struct{})
	go func() {
		defer close(done)
		for m := range ps.Channel() {
			w.mu.Lock()
			w.said = append(w.said, m)
			w.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = ps.Close()
		<-done
	})
	return w
}

func (w *wireTap) messages() []*redis.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*redis.Message(nil), w.said...)
}

// find waits for a message on the channel of that node that begins so.
func (w *wireTap) find(t testing.TB, node, begin string) *redis.Message {
	t.Helper()
	var found *redis.Message
	luatomictest.Eventually(t, 20*time.Second, "a message to "+node, func() bool {
		for _, m := range w.messages() {
			if strings.HasSuffix(m.Channel, ":n:"+node) && strings.HasPrefix(m.Payload, begin) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// C20: anything may come over the channels, from anybody. It is counted and passed
// over; nothing panics, nothing is stuck, and calls go on.
func TestRPCPoisonedChannels(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	w := tap(t, c, name)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	caller := lab.OpenBus(t, c, name, nil)
	_, err := lab.Echo.Call(ctx, caller, "x", nil)
	require.NoError(t, err)
	for range lab.Echo.Gather(ctx, caller, "x") {
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	poison := []string{"", "Q", "1 5000\n", "1 5000 2\nQ\x02", "9999999999999 1 1\nQ", "R\x02\x02id",
		"E\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"C\x02\x01a\x01\x01x", "K\x02\x01a\x01x", "L\x02\x00", "L\x02\x01G", "N\x02\x01G", "X\x02\x00", "U\x02\x01x",
		"D\x02\x01x", "\x00", "P\x01", "P\x02\x01x",
		"L\x02" + strings.Repeat("\x01a", 5000), strings.Repeat("9", 100_000)}
	for _, m := range w.messages() {
		for range 100 {
			bent := []byte(m.Payload)
			for range 1 + rnd.IntN(3) {
				bent[rnd.IntN(len(bent))] = byte(rnd.Uint32())
			}
			poison = append(poison, string(bent[:1+rnd.IntN(len(bent))]), string(bent))
		}
	}
	for _, p := range poison {
		for _, channel := range []string{"n:" + node.Node(), "n:" + caller.Node(), "all"} {
			require.NoError(t, c.Publish(ctx, "rpc:{"+name+"}:"+channel, p).Err())
		}
	}
	out, err := lab.Echo.Call(ctx, caller, "alive", nil)
	if err != nil { // a frame can bear the id of the next call, with flags that the node refuses in its name
		t.Log(err)
		out, err = lab.Echo.Call(ctx, caller, "alive", nil)
	}
	require.NoError(t, err)
	require.Equal(t, "ALIVE", out)
	require.Positive(t, node.Stats().Refused)
	require.Positive(t, caller.Stats().Refused)
	luatomictest.Eventually(t, 30*time.Second, "nothing of it is kept",
		func() bool { return node.Waiting()+caller.Waiting() == 0 })
}

// What was recorded from the channels and is published again changes nothing: a reply is
// not taken twice, and a request that runs does not run twice. One that is over may
// run again, but no call takes its reply: keys prove the origin of a frame, and not that
// it is new.
func TestRPCReplayedFrames(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	w := tap(t, c, name)
	opts := &rpc.Options{Keys: [][]byte{key("key")}, Timeout: time.Minute}
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	var runs atomic.Int64
	node := lab.Serving(t, lab.Echo, c, name, opts, func(_ context.Context, s string) (string, error) {
		n := runs.Add(1)
		entered <- struct{}{}
		<-leave
		return fmt.Sprint(s, n), nil
	})
	caller := lab.OpenBus(t, c, name, opts)
	called := startCall(t, lab.Echo, caller, "x")
	<-entered
	request := w.find(t, node.Node(), "1 ")
	for range 5 {
		require.NoError(t, c.Publish(ctx, request.Channel, request.Payload).Err())
	}
	// A frame that it refuses comes after the repeats, on the same connection.
	require.NoError(t, c.Publish(ctx, request.Channel, "no frame").Err())
	luatomictest.Eventually(t, 20*time.Second, "it has received the repeats",
		func() bool { return node.Stats().Refused == 1 })
	leave <- struct{}{}
	out := <-called
	require.NoError(t, out.err)
	require.Equal(t, "x1", out.out)
	require.Equal(t, int64(1), runs.Load())

	reply := w.find(t, caller.Node(), "0 0 ")
	called = startCall(t, lab.Echo, caller, "y")
	<-entered
	require.NoError(t, c.Publish(ctx, reply.Channel, reply.Payload).Err())
	require.NoError(t, c.Publish(ctx, request.Channel, request.Payload).Err())
	close(leave)
	out = <-called
	require.NoError(t, out.err)
	require.Regexp(t, "^y", out.out, "its own reply, and not the one that was said again")
	luatomictest.Eventually(t, 30*time.Second, "the reply of what ran again is refused", func() bool {
		s := node.Stats()
		return node.Waiting() == 0 && s.Handled-2 == s.Late+s.Repeated
	})
}

// callRefused makes a call whose frame the node refuses: no node answers it, until its
// caller gives up.
func callRefused(t *testing.T, c *redis.Client, name string, node, caller *rpc.Bus) {
	t.Helper()
	before := node.Stats().Refused
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, "x", nil)
		ended <- err
	}()
	luatomictest.Eventually(t, 20*time.Second, "it is sent, and refused", func() bool {
		require.Empty(t, ended, "it has an answer")
		sent := c.Exists(t.Context(), "rpc:{"+name+"}:r:"+caller.Node()+".1").Val() == 1
		return sent && node.Stats().Refused > before
	})
	select {
	case err := <-ended:
		t.Fatalf("it has an answer: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A key is changed while nodes run: first all accept the new one, then all sign with
// it, then the old one goes. At every step all understand each other, and one with a
// wrong key is never accepted.
func TestRPCKeysAreChangedWhileNodesRun(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	opts := func(keys ...string) *rpc.Options {
		o := &rpc.Options{Timeout: time.Minute, Lease: time.Minute}
		for _, k := range keys {
			o.Keys = append(o.Keys, key(k))
		}
		return o
	}
	steps := [][]string{{"old"}, {"old", "new"}, {"new", "old"}, {"new"}}
	for i := range len(steps) - 1 {
		for _, side := range [][2][]string{{steps[i], steps[i+1]}, {steps[i+1], steps[i]}} {
			name := fmt.Sprint(name, i, side)
			node := lab.Serving(t, lab.Echo, c, name, opts(side[0]...), lab.Upper)
			out, err := lab.Echo.Call(t.Context(), lab.OpenBus(t, c, name, opts(side[1]...)), "x", nil)
			require.NoError(t, err, "%v", side)
			require.Equal(t, "X", out)
			for _, wrong := range [][]string{{"wrong"}, nil} {
				callRefused(t, c, name, node, lab.OpenBus(t, c, name, opts(wrong...)))
			}
			require.Equal(t, int64(1), node.Stats().Handled)
		}
	}
}

// A request of a later version, one with an unknown flag and one that is malformed behind its id are answered at once.
// The frames are sent as rpc_call sends them.
func TestRequestsThatANodeDoesNotReadAreAnswered(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	me := c.Subscribe(ctx, "rpc:{"+name+"}:n:me")
	defer me.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(me.Receive(ctx)))
	for i, test := range []struct{ frame, code, state string }{
		{"Q\x03\x01%d and what version 3 has", rpc.CodeVersion, "r"},
		{"Q\x02\x01%d\x04echo\x40\x00\x00\x01b", rpc.CodeVersion, "r"},
		{"Q\x02\x01%d\x04echo\x00\x00\x09\x02", rpc.CodeBadRequest, "d"},
	} {
		p := rpcscript.DecideParams{
			Nodes: "rpc:{" + name + "}:nodes", Record: fmt.Sprintf("rpc:{%s}:r:%d", name, i), Node: node.Node(),
			Caller: "me",
			Outbox: "rpc:{" + name + "}:n:", Frame: fmt.Appendf(nil, test.frame, i), Left: time.Minute,
			Ends: scriptcase.FutureMilli, Keep: time.Minute,
		}
		require.Equal(t, rpcscript.DecideOutcomeSent, lab.Must(rpcscript.Decide(ctx, c, p)).Outcome)
		answer := lab.Must(me.ReceiveMessage(ctx)).Payload
		require.Regexp(t, "(?s)^0 0 [0-9]+\nE\x02\x01[0-2]."+test.code, answer)
		require.True(t, strings.HasPrefix(c.Get(ctx, p.Record).Val(), test.state), "another node may run it, or not")
	}
	require.Zero(t, node.Stats().Handled)
	require.Equal(t, int64(3), node.Stats().Refused)
}

// A kept reply that is signed with a removed key is an error, and no time-out.
func TestKeptReplyOfARemovedKey(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	opts := &rpc.CallOptions{Key: "k"}
	old := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Keys: [][]byte{key("old")}}, lab.Upper)
	_, err := lab.Echo.Call(ctx, old, "x", opts)
	require.NoError(t, err)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Keys: [][]byte{key("new")}, Timeout: time.Hour})
	_, err = lab.Echo.Call(ctx, caller, "x", opts)
	require.ErrorContains(t, err, "without the signature of a known key")
}
