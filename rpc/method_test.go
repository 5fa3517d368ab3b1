package rpc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// C21: names that cannot be part of a key are refused with the rule.
func TestRPCNames(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), lab.OpenBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	for _, bad := range []string{"", "a\x00b", "{a}", "a}", "line\n", strings.Repeat("x", 64<<10)} {
		m := rpc.NewMethod[string, string](bad)
		require.ErrorIs(t, m.Serve(b, lab.Upper, nil), lua.ErrBadName)
		_, err := m.Call(ctx, b, "", nil)
		require.ErrorIs(t, err, lua.ErrBadName)
		require.ErrorIs(t, m.Cast(ctx, b, ""), lua.ErrBadName)
		for _, err := range m.Gather(ctx, b, "") {
			require.ErrorIs(t, err, lua.ErrBadName)
		}
		require.ErrorIs(t, b.Bind(ctx, bad), lua.ErrBadName)
		_, err = rpc.New(luatomictest.Client(t), bad, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
		if bad != "" {
			for _, opts := range []*rpc.CallOptions{{Key: bad}, {Connection: bad}} {
				_, err = lab.Echo.Call(ctx, b, "", opts)
				require.ErrorIs(t, err, lua.ErrBadName)
			}
			_, err = rpc.New(luatomictest.Client(t), "x", &rpc.Options{Node: bad})
			require.ErrorIs(t, err, lua.ErrBadName)
		}
	}
	_, err := lab.Echo.Call(ctx, b, "", &rpc.CallOptions{Node: strings.Repeat("x", 64<<10)})
	require.ErrorIs(t, err, lua.ErrBadName)
	for _, odd := range []string{"constructor", "a/b", "a b", "ünïcode", "%s", "__proto__", "1 2", "a:b"} {
		m := rpc.NewMethod[string, string](odd)
		require.NoError(t, m.Serve(b, lab.Upper, nil))
		luatomictest.Eventually(t, 20*time.Second, "it is announced", func() bool {
			out, err := m.Call(ctx, b, "x", &rpc.CallOptions{Key: odd})
			return err == nil && out == "X"
		})
	}
}

// C21: no name of a node, a method, a key is taken for something else.
func TestRPCNamesAreNotConfused(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	for _, odd := range []string{"g:x", "k4:echo:a", "G", "xG", "xK", "a.1", "n:x", "p1 x", "all", "d1 n", "%d", "0"} {
		name := name + odd
		opts := &rpc.Options{Node: odd}
		b := lab.Serving(t, rpc.NewMethod[string, string](odd), c, name, opts, lab.Upper)
		m := rpc.NewMethod[string, string](odd)
		caller := lab.OpenBus(t, c, name, opts)
		for _, in := range []string{"x", strings.Repeat("x", 100_000)} { // pushed, and fetched
			for _, o := range []*rpc.CallOptions{nil, {Key: odd + strconv.Itoa(len(in))}, {Node: b.Node()},
				{Key: strconv.Itoa(len(in)) + odd, Node: b.Node()}} {
				out, err := m.Call(t.Context(), caller, in, o)
				require.NoError(t, err, "%q %+v", odd, o)
				require.Len(t, out, len(in))
			}
			n := 0
			for p, err := range m.Gather(t.Context(), caller, in) {
				require.NoError(t, err)
				require.Equal(t, b.Node(), p.Node)
				n++
			}
			require.Equal(t, 1, n)
		}
		require.NoError(t, b.Bind(t.Context(), odd))
		_, err := m.Call(t.Context(), caller, "x", &rpc.CallOptions{Connection: odd})
		require.NoError(t, err)
	}
}

// Headers go both ways, interceptors run in their order on both sides, and the caller knows who answered.
func TestHeadersAndInterceptors(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var mu sync.Mutex
	var order []string
	say := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	type next = func(context.Context) error
	inside := func(who string) func(context.Context, rpc.CallInfo, next) error {
		return func(ctx context.Context, call rpc.CallInfo, next next) error {
			say(who + " " + call.Method + " " + call.Headers["trace"])
			if call.Headers["deny"] != "" {
				return &rpc.RemoteError{Code: "denied", Message: "no", Details: `{"by":"wrap"}`}
			}
			return next(ctx)
		}
	}
	outside := func(who string) func(context.Context, *rpc.Outgoing, next) error {
		return func(ctx context.Context, call *rpc.Outgoing, next next) error {
			call.Headers["trace"] += who
			say(who)
			err := next(ctx)
			say(who + " " + call.Answer.Headers["took"])
			return err
		}
	}
	node := lab.Serving(t, lab.Echo, c, name, &rpc.Options{
		Wrap: []func(context.Context, rpc.CallInfo, next) error{inside("in1"), inside("in2")},
	}, func(ctx context.Context, s string) (string, error) {
		info, ok := rpc.CallFrom(ctx)
		require.True(t, ok)
		say("handler " + info.Headers["trace"])
		rpc.ReplyHeader(ctx, "took", "1s")
		if s == "many" {
			for i := range 100 {
				rpc.ReplyHeader(ctx, fmt.Sprint(i), "")
			}
		}
		return s, nil
	})
	caller := lab.OpenBus(t, c, name, &rpc.Options{
		WrapCall: []func(context.Context, *rpc.Outgoing, next) error{outside("a"), outside("b")},
	})
	opts := &rpc.CallOptions{
		Headers: map[string]string{"trace": "t"},
		Wrap:    []func(context.Context, *rpc.Outgoing, next) error{outside("c")},
	}
	var who rpc.Answered
	opts.Answered = &who
	out, err := lab.Echo.Call(ctx, caller, "x", opts)
	require.NoError(t, err)
	require.Equal(t, "x", out)
	require.Equal(t, rpc.Answered{Node: node.Node(), Headers: map[string]string{"took": "1s"}}, who)
	require.Equal(t, []string{"a", "b", "c", "in1 echo tabc", "in2 echo tabc", "handler tabc", "c 1s", "b 1s", "a 1s"},
		order)
	require.Equal(t, map[string]string{"trace": "t"}, opts.Headers, "the caller's own are not changed")

	var remote *rpc.RemoteError
	_, err = lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Headers: map[string]string{"deny": "1"}})
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.RemoteError{Code: "denied", Message: "no", Details: `{"by":"wrap"}`, Node: node.Node()},
		*remote)
	_, err = lab.Echo.Call(ctx, caller, "many", nil)
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeInternal, remote.Code, "too many headers of an answer are an error, and no time-out")

	many := make(map[string]string)
	for i := range 1000 {
		many[fmt.Sprint(i)] = ""
	}
	for want, headers := range map[error]map[string]string{
		lua.ErrTooLarge: many, lua.ErrBadName: {"a\x00b": ""},
	} {
		_, err = lab.Echo.Call(ctx, node, "x", &rpc.CallOptions{Headers: headers})
		require.ErrorIs(t, err, want)
	}
	_, err = lab.Echo.Call(ctx, node, "x",
		&rpc.CallOptions{Headers: map[string]string{"k": strings.Repeat("x", 20_000)}})
	require.ErrorIs(t, err, lua.ErrTooLarge)
}

// message is decoded as protobuf messages are: by a pointer to itself.
type message struct{ text string }

type messageCodec struct{}

func (messageCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return []byte(m.text), nil
}

func (messageCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(*message)
	if !ok || m == nil {
		return fmt.Errorf("%T is no message", v)
	}
	m.text = string(data)
	return nil
}

// A method has a codec of its own beside methods with that of the bus, and its types may be pointers to messages.
func TestMethodWithACodecForMessages(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	m := rpc.NewMethod[*message, *message]("message").WithCodec(messageCodec{})
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	require.NoError(t, m.Serve(node, func(_ context.Context, in *message) (*message, error) {
		return &message{in.text + "!"}, nil
	}, nil))
	luatomictest.Eventually(t, 20*time.Second, "it is announced", func() bool {
		out, err := m.Call(ctx, node, &message{"hello"}, nil)
		return err == nil && out.text == "hello!"
	})
	out, err := lab.Echo.Call(ctx, node, "json", nil)
	require.NoError(t, err)
	require.Equal(t, "JSON", out)
}

// Retry makes a call again after errors that are safe, so often, and not after others.
func TestCallsAreRetriedWhereThatIsSafe(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	time.AfterFunc(300*time.Millisecond, func() { lab.Serving(t, lab.Echo, c, name, nil, lab.Upper) })
	out, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Retry: 1000})
	require.NoError(t, err)
	require.Equal(t, "X", out)
	before := caller.Stats().Calls
	_, err = rpc.NewMethod[string, string]("none").Call(ctx, caller, "x", &rpc.CallOptions{Retry: 3})
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	require.Equal(t, int64(4), caller.Stats().Calls-before)

	var ran atomic.Int64
	fail := rpc.NewMethod[string, string]("fail")
	node := lab.Serving(t, fail, c, name, nil, func(context.Context, string) (string, error) {
		ran.Add(1)
		return "", errors.New("failed")
	})
	require.NotNil(t, node)
	_, err = fail.Call(ctx, caller, "x", &rpc.CallOptions{Retry: 3})
	require.ErrorContains(t, err, "failed")
	require.Equal(t, int64(1), ran.Load(), "a handler's error is an outcome")
}

// Calls with one affinity go to one node; when that leaves, only its calls move.
func TestAffinity(t *testing.T) {
	t.Parallel()
	for {
		wrong, replaced := misplaced(t)
		if wrong == "" {
			return
		}
		// A server that answers no PING for 2 s, as under load, has the subscriptions replaced. Until then their nodes
		// are not there.
		luatomictest.Eventually(t, 20*time.Second, wrong+"; else a subscription was replaced", replaced)
	}
}

// misplaced says which call with an affinity did not go where it belongs. replaced reports whether a subscription was
// replaced meanwhile.
func misplaced(t *testing.T) (wrong string, replaced func() bool) {
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	opts, stops := &rpc.Options{Lease: time.Minute, Timeout: time.Minute}, make(map[string]func())
	for range 4 {
		b := lab.NewBus(t, c, name, opts)
		require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
		stops[b.Node()] = lab.RunBus(t, b)
		require.NoError(t, b.Ready(ctx))
	}
	callers := []*rpc.Bus{lab.OpenBus(t, c, name, opts), lab.OpenBus(t, c, name, opts)}
	replaced = func() bool { return callers[0].Resubscribed() > 0 }
	at := func(key string, caller *rpc.Bus) string {
		var who rpc.Answered
		_, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Affinity: key, Answered: &who})
		return cmp.Or(who.Node, fmt.Sprint(err))
	}
	home, used := make(map[string]string), make(map[string]bool)
	for i := range 50 {
		key := fmt.Sprint("user ", i)
		home[key] = at(key, callers[0])
		used[home[key]] = true
		if now := at(key, callers[1]); now != home[key] || stops[now] == nil {
			return fmt.Sprintf("%q is at %s for one caller, at %s for another", key, home[key], now), replaced
		}
	}
	require.Len(t, used, 4, "the keys spread")
	left := home["user 0"]
	stops[left]()
	for key, node := range home {
		if now := at(key, callers[0]); (now == node) == (node == left) || stops[now] == nil {
			return fmt.Sprintf("%q is at %s, was at %s, and %s has left", key, now, node, left), replaced
		}
	}
	return "", replaced
}

// A method has a limit of its own, is described, and can be withdrawn while the node serves others.
func TestMethodWithALimitIsDescribedAndWithdrawn(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	node := lab.Serving(t, lab.Echo, c, name, nil, lab.Upper)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	opts := &rpc.ServeOptions{Concurrency: 1, Description: "waits", Version: "1.2"}
	require.NoError(t, hold.Serve(node, func(context.Context, string) (string, error) {
		entered <- struct{}{}
		<-release
		return "", nil
	}, opts))
	err := hold.Serve(node, lab.Upper, &rpc.ServeOptions{Description: strings.Repeat("x", 1<<20)})
	require.ErrorIs(t, err, lua.ErrTooLarge)
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	luatomictest.Eventually(t, 20*time.Second, "it is described", func() bool {
		for _, n := range lab.Must(caller.Nodes(ctx)) {
			if n.Described["hold"] == (rpc.MethodInfo{Description: "waits", Version: "1.2"}) && n.Speaks == 2 {
				return true
			}
		}
		return false
	})
	first := startCall(t, hold, caller, "")
	<-entered
	_, err = hold.Call(ctx, caller, "", nil)
	require.ErrorIs(t, err, rpc.ErrOverloaded)
	_, err = lab.Echo.Call(ctx, caller, "", nil)
	require.NoError(t, err, "other methods have room")
	require.NoError(t, hold.Unserve(ctx, node))
	_, err = hold.Call(ctx, caller, "", nil)
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	close(release)
	require.NoError(t, (<-first).err, "what it had is answered")
	_, err = lab.Echo.Call(ctx, caller, "", nil)
	require.NoError(t, err)
}
