package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// What a handler has sent comes before the error that it ends with, also where the parts
// are so large that they are fetched.
func TestStreamPartsComeBeforeTheError(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := rpc.NewStreamMethod[int, string]("broken")
	b, err := rpc.New(luatomictest.Client(t), luatomictest.Namespace(t),
		&rpc.Options{Lease: 15 * time.Second, Timeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, m.Serve(b, func(_ context.Context, size int, send func(string) error) error {
		for i := range 3 {
			if err := send(fmt.Sprint(i, strings.Repeat("x", size))); err != nil {
				return err
			}
		}
		return errors.New("the rest is broken")
	}))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	for _, size := range []int{10, 100_000} {
		for range 50 {
			n, ended := 0, false
			for part, err := range m.Call(ctx, b, size) {
				require.False(t, ended)
				if err != nil {
					require.ErrorContains(t, err, "the rest is broken")
					ended = true
					continue
				}
				require.True(t, strings.HasPrefix(part, fmt.Sprint(n, "x")))
				n++
			}
			require.True(t, ended)
			require.Equal(t, 3, n, "parts of %d bytes", size)
		}
	}
	luatomictest.Eventually(t, 20*time.Second, "nothing is kept, of the node's side neither",
		func() bool { return b.Waiting() == 0 })
}

var count = rpc.NewStreamMethod[int, string]("count")

func serveCount(t *testing.T, b *rpc.Bus, size int) (ended chan error) {
	ended = make(chan error, 10)
	require.NoError(t, count.Serve(b, func(ctx context.Context, n int, send func(string) error) error {
		for i := range n {
			if err := send(fmt.Sprint(i, " ", strings.Repeat("x", size))); err != nil {
				ended <- err
				return err
			}
		}
		if n == 7 {
			return errors.New("after seven")
		}
		ended <- nil
		return nil
	}))
	return ended
}

func TestRPCStreams(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b, err := rpc.New(c, name, &rpc.Options{Lease: 15 * time.Second})
	require.NoError(t, err)
	ended := serveCount(t, b, 10)
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: 10 * time.Minute})
	for _, n := range []int{0, 1, 2000} { // the last one is several windows long
		i := 0
		for part, err := range count.Call(ctx, caller, n) {
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(part, fmt.Sprint(i, " ")), "part %d: %q", i, part)
			i++
		}
		require.Equal(t, n, i)
		require.NoError(t, <-ended)
	}
	i := 0
	for _, err := range count.Call(ctx, caller, 7) {
		if i++; i == 8 {
			require.ErrorContains(t, err, "after seven")
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 8, i)

	// A caller that stops reading stops the handler.
	for range count.Call(ctx, caller, 1_000_000) {
		break
	}
	require.ErrorIs(t, <-ended, context.Canceled)
	for _, err := range rpc.NewStreamMethod[int, string]("nobody").Call(ctx, caller, 1) {
		require.ErrorIs(t, err, rpc.ErrNoResponders)
	}
	_, err = rpc.NewMethod[int, string]("count").Call(ctx, caller, 1, nil)
	require.ErrorContains(t, err, "StreamMethod")
	require.Zero(t, caller.Waiting())
}

// The caller of a stream pauses. What waits in Redis is bounded in bytes, not in parts alone.
func TestUnreadPartsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	m := rpc.NewStreamMethod[int, []byte]("large")
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{Lease: time.Minute}, lab.Upper)
	var sent atomic.Int64
	require.NoError(t, m.Serve(node, func(_ context.Context, n int, send func([]byte) error) error {
		for range n {
			if err := send(make([]byte, 300_000)); err != nil { // 400 kB in JSON
				return err
			}
			sent.Add(1)
		}
		return nil
	}))
	luatomictest.Eventually(t, 20*time.Second, "it is announced", func() bool {
		return c.ZCard(ctx, "rpc:{"+name+"}:methods").Val() == 2
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	parts, most := 0, int64(0)
	for part, err := range m.Call(ctx, caller, 30) {
		require.NoError(t, err)
		require.Len(t, part, 300_000)
		if parts++; parts == 1 {
			time.Sleep(time.Second) // the handler has time to send them all
			most = sent.Load()
		}
	}
	require.Equal(t, 30, parts)
	require.LessOrEqual(t, most, int64(6), "while the caller paused")
}

// The types of a stream may be pointers to messages, as those of a method.
func TestStreamsOfMessages(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := rpc.NewStreamMethod[*message, *message]("messages")
	b, err := rpc.New(luatomictest.Client(t), luatomictest.Namespace(t),
		&rpc.Options{Lease: 15 * time.Second, Codec: messageCodec{}})
	require.NoError(t, err)
	require.NoError(t, m.Serve(b, func(_ context.Context, in *message, send func(*message) error) error {
		return errors.Join(send(&message{in.text + " 1"}), send(&message{in.text + " 2"}))
	}))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	var parts []string
	for part, err := range m.Call(ctx, b, &message{"part"}) {
		require.NoError(t, err)
		parts = append(parts, part.text)
	}
	require.Equal(t, []string{"part 1", "part 2"}, parts)
}

// A method that answers in one piece refuses the caller of a stream, and does not run. A reply that counts no parts,
// as of a node that does not refuse it, ends the stream.
func TestAStreamOfAMethodWithoutParts(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var ran atomic.Int64
	b := lab.Serving(t, lab.Echo, c, name, nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", nil
	})
	old := rpc.NewStreamMethod[string, string]("old")
	sealer := wire.Sealer{}
	require.NoError(t, old.Serve(b, func(ctx context.Context, _ string, _ func(string) error) error {
		info, _ := rpc.CallFrom(ctx)
		answer := wire.Answer{ID: info.ID, Body: []byte(`"X"`)}
		_, err := rpcscript.Reply(ctx, c, rpcscript.ReplyParams{
			Record: "rpc:{" + name + "}:r:" + info.ID, Node: b.Node(), Attempt: 1,
			State: "d", Frame: sealer.Seal(answer.Encode()), Outbox: "rpc:{" + name + "}:n:", Keep: time.Minute})
		return err
	}))
	require.NoError(t, b.Ready(t.Context()))
	long, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	last := func(m rpc.StreamMethod[string, string]) error {
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, err := range m.Call(long, b, "x") {
				last = err
			}
			ended <- last
		}()
		return lab.Soon(t, 20*time.Second, m.Name(), ended)
	}
	var remote *rpc.RemoteError
	require.ErrorAs(t, last(rpc.NewStreamMethod[string, string]("echo")), &remote)
	require.Equal(t, rpc.CodeBadRequest, remote.Code)
	require.Zero(t, ran.Load())
	require.ErrorContains(t, last(old), "is the method served as a StreamMethod?")
}

// A function of Wrap may give the handler less time than the caller has. The parts stay for the caller's time.
func TestPartsStayForTheTimeOfTheirCaller(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Hour, Wrap: []func(
		context.Context, rpc.CallInfo, func(context.Context) error) error{
		func(ctx context.Context, _ rpc.CallInfo, next func(context.Context) error) error {
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return next(short)
		},
	}})
	require.NoError(t, count.Serve(b, func(_ context.Context, _ int, send func(string) error) error {
		return send("part")
	}))
	require.NoError(t, b.Ready(ctx))
	for _, err := range count.Call(ctx, b, 1) {
		require.NoError(t, err)
		key := lab.Must(c.Keys(ctx, "rpc:{"+name+"}:s:*").Result())
		require.Len(t, key, 1)
		require.Greater(t, c.PTTL(ctx, key[0]).Val(), 30*time.Minute)
	}
}

// A stream has no headers of its reply, so that none of them is too large for it.
func TestAStreamHasNoReplyHeaders(t *testing.T) {
	t.Parallel()
	b := lab.NewBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, countTo.Serve(b, func(ctx context.Context, n int, send func(int) error) error {
		for i := range 100 {
			rpc.ReplyHeader(ctx, fmt.Sprint("h", i), "")
		}
		return sendAll(ctx, n, send)
	}))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(t.Context()))
	for _, err := range countTo.Call(t.Context(), b, 3) {
		require.NoError(t, err)
	}
}
