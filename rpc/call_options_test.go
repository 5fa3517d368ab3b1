package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// Options.Timeout bounds a call with all its repeats and the waits between them.
func TestRetryKeepsTheTimeout(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	opts := &rpc.Options{Timeout: 300 * time.Millisecond}
	caller := lab.OpenBus(t, luatomictest.Client(t), luatomictest.Namespace(t), opts)
	require.NoError(t, caller.Ready(ctx))
	ended := make(chan error, 1)
	go func() {
		_, err := lab.Echo.Call(ctx, caller, "x", &rpc.CallOptions{Retry: 1000})
		ended <- err
	}()
	require.Error(t, lab.Soon(t, 20*time.Second, "the call ends", ended))
}

// What a handler has answered is not asked again, whatever code it chooses or passes on, where the handler must not run
// twice. Nor is what its caller cannot read.
func TestRetryRunsNoHandlerAgain(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	caller := lab.OpenBus(t, c, name, nil)
	var runs atomic.Int32
	lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, code string) (string, error) {
		runs.Add(1)
		if code != "unreadable" {
			return "", fmt.Errorf("another node: %w", &rpc.RemoteError{Code: code})
		}
		info, _ := rpc.CallFrom(ctx)
		frame := fmt.Sprintf("R\x03%c%s and what version 3 has", len(info.ID), info.ID)
		item := fmt.Sprintf("0 0 %d\n%s", len(frame), frame)
		return "", c.Publish(ctx, "rpc:{"+name+"}:n:"+caller.Node(), item).Err() // it arrives before the answer
	})
	for _, code := range []string{rpc.CodeOverloaded, rpc.CodeNoMethod, rpc.CodeVersion, "unreadable"} {
		runs.Store(0)
		_, err := lab.Echo.Call(t.Context(), caller, code, &rpc.CallOptions{Retry: 3})
		require.Error(t, err, code)
		var remote *rpc.RemoteError
		require.Equal(t, code != "unreadable", errors.As(err, &remote), "%v", err)
		require.Equal(t, int32(1), runs.Load(), code)

		runs.Store(0)
		_, _ = lab.Echo.Idempotent().Call(t.Context(), caller, code, &rpc.CallOptions{Retry: 3})
		require.Equal(t, code != "unreadable", runs.Load() == 4, "it may run twice: %s", code)
	}
}

// A call names one node, directly or by a connection, and nothing in the name of a node names another one.
func TestACallNamesOneNode(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	a, b := lab.Serving(t, lab.Echo, c, name, nil, answering("a")), lab.Serving(t, lab.Echo, c, name, nil,
		answering("b"))
	require.NoError(t, b.Bind(ctx, "socket"))
	for _, opts := range []rpc.CallOptions{
		{Node: a.Node(), Connection: "socket"}, {Node: "nosuch\n" + a.Node()}, {Node: a.Node() + "\n"},
		{Node: "{" + a.Node()},
	} {
		_, err := lab.Echo.Call(ctx, a, "x", &opts)
		require.ErrorIs(t, err, lua.ErrBadName, "%q", opts.Node)
	}
	for node, opts := range map[string]rpc.CallOptions{"a": {Node: a.Node()}, "b": {Connection: "socket"}} {
		out, err := lab.Echo.Call(ctx, a, "x", &opts)
		require.NoError(t, err)
		require.Equal(t, node, out)
	}
	_, err := lab.Echo.Call(ctx, a, "x", &rpc.CallOptions{Node: "never.there"})
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	require.ErrorContains(t, err, "no lease: the nodes that served it, or the one that was named, are not alive")
}

// What Unserve withdraws delays nothing that waits for Ready.
func TestUnserveDoesNotDelayReady(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b, err := rpc.New(luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{Lease: time.Hour})
	require.NoError(t, err)
	require.NoError(t, lab.Echo.Serve(b, lab.Upper, nil))
	require.NoError(t, hold.Serve(b, lab.Upper, nil))
	lab.RunBus(t, b)
	require.NoError(t, b.Ready(ctx))
	require.NoError(t, hold.Unserve(ctx, b))
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	require.NoError(t, b.Ready(bounded))
	require.NoError(t, b.Bind(bounded, "socket"))
}

// lenient decodes nothing to the zero value, as protobuf does.
type lenient struct{}

func (lenient) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }

func (lenient) Unmarshal(data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}

// A function around a call that loses the error of next, or does not call it, makes no result of a call that has none.
func TestAWrappedCallWithoutAResultIsNoSuccess(t *testing.T) {
	t.Parallel()
	bus := lab.OpenBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	nobody := lab.Echo.WithCodec(lenient{})
	call := func(wrap func(ctx context.Context, next func(context.Context) error) error) error {
		_, err := nobody.Call(t.Context(), bus, "x", &rpc.CallOptions{Wrap: []func(
			context.Context, *rpc.Outgoing, func(context.Context) error) error{
			func(ctx context.Context, _ *rpc.Outgoing, next func(context.Context) error) error {
				return wrap(ctx, next)
			},
		}})
		return err
	}
	err := call(func(ctx context.Context, next func(context.Context) error) error {
		_ = next(ctx)
		return nil
	})
	require.ErrorIs(t, err, rpc.ErrNoResponders)
	require.ErrorContains(t, err, "return the error of next")
	err = call(func(context.Context, func(context.Context) error) error { return nil })
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	mine := errors.New("mine")
	err = call(func(context.Context, func(context.Context) error) error { return mine })
	require.Equal(t, mine, err)
}

// So it is on the node, where the error of the handler goes to the caller.
func TestAWrappedHandlerWithoutAResultIsNoSuccess(t *testing.T) {
	t.Parallel()
	c, failing := luatomictest.Client(t), lab.Echo.WithCodec(lenient{})
	call := func(wrap func(context.Context, rpc.CallInfo, func(context.Context) error) error) error {
		node := lab.Serving(t, failing, c, luatomictest.Namespace(t), &rpc.Options{
			Wrap: []func(context.Context, rpc.CallInfo, func(context.Context) error) error{wrap},
		}, func(context.Context, string) (string, error) { return "", &rpc.RemoteError{Code: "sold_out"} })
		_, err := failing.Call(t.Context(), node, "x", nil)
		return err
	}
	var failed *rpc.RemoteError
	require.ErrorAs(t, call(func(ctx context.Context, _ rpc.CallInfo, next func(context.Context) error) error {
		_ = next(ctx)
		return nil
	}), &failed)
	require.Equal(t, "sold_out", failed.Code)
	require.ErrorAs(t, call(func(context.Context, rpc.CallInfo, func(context.Context) error) error {
		return nil
	}), &failed)
	require.Equal(t, rpc.CodeError, failed.Code)
	require.Contains(t, failed.Message, "next was not called")
	require.ErrorAs(t, call(func(ctx context.Context, _ rpc.CallInfo, next func(context.Context) error) error {
		return &rpc.RemoteError{Code: "mine"}
	}), &failed)
	require.Equal(t, "mine", failed.Code)
}

// So is a gather: its error is the last pair all the same.
func TestAWrappedGatherThatFailedIsNoSuccess(t *testing.T) {
	t.Parallel()
	caller := lab.OpenBus(t, luatomictest.Client(t), luatomictest.Namespace(t), &rpc.Options{
		WrapCall: []func(context.Context, *rpc.Outgoing, func(context.Context) error) error{
			func(ctx context.Context, _ *rpc.Outgoing, next func(context.Context) error) error {
				_ = next(ctx)
				return nil
			},
		},
	})
	var errs []error
	for _, err := range lab.Echo.Gather(t.Context(), caller, "x") {
		errs = append(errs, err)
	}
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], rpc.ErrNoResponders)
}
