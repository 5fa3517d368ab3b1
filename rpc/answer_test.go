package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
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
		_, err := lab.Echo.Call(t.Context(), b, "", nil)
		first <- err
	}()
	<-entered
	_, err := lab.Echo.Call(t.Context(), b, "", nil)
	require.ErrorContains(t, err, rpc.CodeOverloaded)
	close(leave)
	require.NoError(t, <-first)
}

// The guards of rpc_reply: pending, node, attempt, body.
func TestReplyIsAcceptedOnceAndOnlyFromTheNodeAsked(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	p := "{" + name + "}:"
	require.NoError(t, c.ZAdd(ctx, p+"nodes", redis.Z{Member: "n1", Score: lab.Future}).Err())
	ps := c.Subscribe(ctx, name+"n1")
	defer ps.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(ps.Receive(ctx)))

	call := scriptcase.GivenTo(name, "n1")
	call.Digest = "d1"
	sent, err := rpcscript.Decide(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, rpcscript.DecideOutcomeSent, sent.Outcome)
	again, err := rpcscript.Decide(ctx, c, call)
	require.NoError(t, err)
	require.Equal(t, rpcscript.DecideOutcomeKnown, again.Outcome, "a repeat is not sent again")

	reply := func(node string, attempt int64, digest string) rpcscript.ReplyResult {
		out, err := rpcscript.Reply(ctx, c, rpcscript.ReplyParams{Record: p + "r:1", Node: node, Digest: digest,
			Attempt: attempt, State: "d", Frame: []byte("first"), Outbox: name, Keep: time.Minute})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, rpcscript.ReplyResultStale, reply("n2", 1, "d1"), "another node")
	require.Equal(t, rpcscript.ReplyResultStale, reply("n1", 2, "d1"), "another attempt")
	require.Equal(t, rpcscript.ReplyResultStale, reply("n1", 1, "d2"), "another body")
	require.Equal(t, rpcscript.ReplyResultAccepted, reply("n1", 1, "d1"))
	require.Equal(t, "d1 n1\nd1\nfirst", c.Get(ctx, p+"r:1").Val())
	require.Equal(t, rpcscript.ReplyResultDuplicate, reply("n1", 1, "d1"))
	require.NoError(t, c.Del(ctx, p+"r:1").Err())
	require.Equal(t, rpcscript.ReplyResultMissing, reply("n1", 1, "d1"))
}

// touchy panics when it is asked for its text.
type touchy struct{ text *string }

func (e touchy) Error() string { return *e.text }

// C19: whatever a handler does, its caller has a typed error, the node stays alive, and
// neither the stack nor what the handler panicked with is on the wire.
func TestRPCPanicsAreTypedAndStayAtHome(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	w := tap(t, c, name)
	seen := make(chan error, 100)
	opts := &rpc.Options{OnError: func(err error) { seen <- err }}
	b := lab.Serving(t, lab.Echo, c, name, opts, func(_ context.Context, s string) (string, error) {
		switch s {
		case "panic":
			panic("SECRET")
		case "panic with an error":
			panic(touchy{})
		case "index":
			return strings.Split(s, ",")[len(s)], nil
		case "nil pointer":
			return "", (*rpc.RemoteError)(nil)
		case "touchy":
			return "", touchy{}
		case "nil pointer of fs":
			return "", (*fs.PathError)(nil) // its Unwrap panics, too
		case "wrapped, of fs":
			return "", fmt.Errorf("wrapped: %w", (*fs.PathError)(nil))
		case "wrapped":
			return "", fmt.Errorf("wrapped: %w", (*rpc.RemoteError)(nil))
		}
		return strings.ToUpper(s), nil
	})
	for _, in := range []string{
		"panic", "panic with an error", "index", "nil pointer", "touchy", "nil pointer of fs",
		"wrapped, of fs", "wrapped",
	} {
		_, err := lab.Echo.Call(t.Context(), b, in, nil)
		var remote *rpc.RemoteError
		require.ErrorAs(t, err, &remote, in)
		if in != "wrapped" {
			require.Equal(t, rpc.CodeInternal, remote.Code, in)
			require.Contains(t, remote.Message, "panicked")
		}
		out, err := lab.Echo.Call(t.Context(), b, "alive", nil)
		require.NoError(t, err)
		require.Equal(t, "ALIVE", out)
	}
	luatomictest.Eventually(t, 20*time.Second, "the node's own OnError gets it", func() bool {
		select {
		case err := <-seen:
			return strings.Contains(err.Error(), "SECRET")
		default:
			return false
		}
	})
	for _, m := range w.messages() {
		for _, home := range []string{"SECRET", "goroutine", ".go:", "runtime error", "index out of range"} {
			require.NotContains(t, m.Payload, home)
		}
	}
}

// A handler that ends its goroutine is one that failed: its caller gets an error, and its place
// is free again.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := lab.Serving(t, lab.Echo, luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Timeout: time.Minute,
		Concurrency: 1},
		func(ctx context.Context, s string) (string, error) {
			if s == "exit" {
				runtime.Goexit()
			}
			return lab.Upper(ctx, s)
		})
	for range 3 {
		luatomictest.Eventually(t, 20*time.Second, "it has room, and fails", func() bool {
			_, err := lab.Echo.Call(ctx, b, "exit", nil)
			if errors.Is(err, rpc.ErrOverloaded) {
				return false // by what the node said a moment ago
			}
			var remote *rpc.RemoteError
			require.ErrorAs(t, err, &remote)
			require.Equal(t, rpc.CodeInternal, remote.Code)
			return true
		})
	}
	luatomictest.Eventually(t, 20*time.Second, "it takes calls", func() bool {
		out, err := lab.Echo.Call(ctx, b, "x", nil)
		return err == nil && out == "X"
	})
}

// published runs something and returns what it has published on the channels that begin with a prefix.
func published(t *testing.T, c *redis.Client, prefix string, run func()) (messages []string) {
	t.Helper()
	ctx := t.Context()
	all := c.PSubscribe(ctx, prefix+"*")
	defer all.Close()
	require.IsType(t, &redis.Subscription{}, lab.Must(all.Receive(ctx)))
	run()
	require.NoError(t, c.Publish(ctx, prefix+"end", "end").Err())
	for {
		m, err := all.ReceiveMessage(ctx)
		require.NoError(t, err)
		if m.Channel == prefix+"end" {
			return messages
		}
		messages = append(messages, m.Payload)
	}
}

// A record that names more callers than rpc/call.lua admits notifies no more than it would admit.
func TestCraftedRecordNotifiesSoManyCallers(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	record := "{" + k + "}:r:1"
	var names strings.Builder
	for i := range 600 {
		fmt.Fprintf(&names, "a%d\t", i)
	}
	notified := func(run func()) int {
		require.NoError(t, c.Set(ctx, record, "p1 n\n\t"+names.String()+"me\nframe", time.Hour).Err())
		return len(published(t, c, k, run))
	}
	require.Equal(t, 400, notified(func() {
		lab.Must(rpcscript.Chunk(ctx, c, rpcscript.ChunkParams{Record: record, Chunks: "{" + k + "}:s:1",
			Node: "n", Attempt: 1,
			Seq: 1, Frame: []byte("f"), Outbox: k, Keep: time.Hour}))
	}))
	require.Equal(t, 400, notified(func() {
		lab.Must(rpcscript.Reply(ctx, c, rpcscript.ReplyParams{Record: record, Node: "n", Attempt: 1, State: "d",
			Frame: []byte("f"), Outbox: k, Keep: time.Hour}))
	}))
}

// A panic, and a handler that ends its goroutine, are reported to the node: with the stack, and also when Run ends.
func TestPanicsAreReportedWithTheirStack(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	reported, entered := make(chan error, 100), make(chan struct{}, 1)
	opts := &rpc.Options{Grace: -1, Timeout: time.Minute, OnError: func(err error) { reported <- err }}
	b, err := rpc.New(c, name, opts)
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, func(ctx context.Context, s string) (string, error) {
		switch s {
		case "exit":
			runtime.Goexit()
		case "at the end":
			entered <- struct{}{}
			<-ctx.Done()
		}
		panic("of " + s)
	}, nil))
	stop := lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	panicked := func(value string) {
		t.Helper()
		err, p := lab.Soon(t, 20*time.Second, "the report", reported), new(lua.PanicError)
		require.ErrorAs(t, err, &p)
		require.Equal(t, "echo", p.Method)
		require.Equal(t, value, p.Value)
		require.Contains(t, string(p.Stack), "answer_test.go")
		require.ErrorContains(t, err, string(p.Stack))
	}
	_, err = lab.Echo.Call(ctx, b, "x", nil)
	require.Error(t, err)
	panicked("of x")
	_, err = lab.Echo.Call(ctx, b, "exit", nil)
	require.Error(t, err)
	require.ErrorContains(t, lab.Soon(t, 20*time.Second, "the report", reported), "ended its goroutine")
	called := startCall(t, lab.Echo, lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute}), "at the end")
	lab.Soon(t, 20*time.Second, "the handler runs", entered)
	stop()
	require.Error(t, (<-called).err)
	panicked("of at the end")
}

// Details that are too large are no details: a part of them would mislead the program that reads them.
func TestDetailsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	reported := make(chan error, 100)
	most := 16 << 10
	size := rpc.NewMethod[int, string]("size")
	b := lab.Serving(t, size, luatomictest.Client(t), luatomictest.Namespace(t),
		&rpc.Options{OnError: func(err error) { reported <- err }}, func(_ context.Context, n int) (string, error) {
			return "", &rpc.RemoteError{Code: "mine", Details: strings.Repeat("x", n)}
		})
	for n, want := range map[int]int{most: most, most + 1: 0} {
		_, err := size.Call(t.Context(), b, n, nil)
		var remote *rpc.RemoteError
		require.ErrorAs(t, err, &remote)
		require.Equal(t, "mine", remote.Code)
		require.Len(t, remote.Details, want)
	}
	require.ErrorContains(t, lab.Soon(t, 20*time.Second, "the report", reported), "16385 bytes, at most 16384")
}
