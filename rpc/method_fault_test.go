package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// yelling is a codec that the node does not know.
type yelling struct{}

func (yelling) Marshal(v any) ([]byte, error)   { return fmt.Append(nil, "!", v), nil }
func (yelling) Unmarshal(d []byte, v any) error { return fmt.Errorf("%q is not yelled", d) }

// plain is a codec that costs no time: 64 MiB of JSON would stall what runs beside the test.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error)   { return []byte(v.(string)), nil }
func (plain) Unmarshal(d []byte, v any) error { return fmt.Errorf("%q is not read", d) }

// Bad input is a typed error of the side that can act. Nothing runs, and nothing waits for a time-out.
func TestBadInputOfCalls(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	var runs atomic.Int64
	b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		runs.Add(1)
		return s, nil
	})
	headers := make(map[string]string)
	for i := range 1000 {
		headers[fmt.Sprint(i)] = ""
	}
	call := func(in string, opts *rpc.CallOptions) error {
		_, err := lab.Echo.Call(ctx, b, in, opts)
		return err
	}
	huge := strings.Repeat("x", 64<<20)
	_, tooLarge := lab.Echo.WithCodec(plain{}).Call(ctx, b, huge, nil)
	described := func(text string) error {
		return lab.Echo.Serve(b, lab.Upper, &rpc.ServeOptions{Description: text})
	}
	for what, test := range map[string]struct {
		err  error
		want error
	}{
		"a header name with NUL": {call("", &rpc.CallOptions{Headers: map[string]string{"a\x00b": ""}}),
			lua.ErrBadName},
		"an empty header name": {call("", &rpc.CallOptions{Headers: map[string]string{"": ""}}), lua.ErrBadName},
		"1000 headers":         {call("", &rpc.CallOptions{Headers: headers}), lua.ErrTooLarge},
		"a header of 16 KiB": {call("", &rpc.CallOptions{Headers: map[string]string{"a": huge[:16<<10]}}),
			lua.ErrTooLarge},
		"64 MiB":                   {tooLarge, lua.ErrTooLarge},
		"a key with NUL":           {call("", &rpc.CallOptions{Key: "\x00"}), lua.ErrBadName},
		"a connection of 1 MiB":    {call("", &rpc.CallOptions{Connection: huge[:1<<20]}), lua.ErrBadName},
		"a node of 1 MiB":          {call("", &rpc.CallOptions{Node: huge[:1<<20]}), lua.ErrBadName},
		"a description of 1 MiB":   {described(huge[:1<<20]), lua.ErrTooLarge},
		"a method with a brace":    {rpc.NewMethod[string, string]("{").Serve(b, lab.Upper, nil), lua.ErrBadName},
		"a method without a name":  {rpc.NewMethod[string, string]("").Serve(b, lab.Upper, nil), lua.ErrBadName},
		"a node that is not there": {call("", &rpc.CallOptions{Node: "none"}), rpc.ErrNoResponders},
	} {
		require.ErrorIs(t, test.err, test.want, what)
	}
	_, err := lab.Echo.WithCodec(yelling{}).Call(ctx, b, "x", nil)
	var remote *rpc.RemoteError
	require.ErrorAs(t, err, &remote, "a codec that the node does not know")
	require.Equal(t, rpc.CodeBadRequest, remote.Code)
	require.Zero(t, runs.Load())

	many := rpc.NewMethod[int, string]("many headers")
	require.NoError(t, many.Serve(b, func(ctx context.Context, n int) (string, error) {
		for i := range n {
			rpc.ReplyHeader(ctx, fmt.Sprint("h", i), "")
		}
		return "", nil
	}, nil))
	luatomictest.Eventually(t, 20*time.Second, "it is announced", func() bool {
		_, err := many.Call(ctx, b, 64, nil)
		return err == nil
	})
	_, err = many.Call(ctx, b, 1000, nil)
	require.ErrorAs(t, err, &remote)
	require.Equal(t, rpc.CodeInternal, remote.Code)
}

// A method without a handler would fail each call.
func TestServeRefusesNoHandler(t *testing.T) {
	t.Parallel()
	b := lab.NewBus(t, luatomictest.Client(t), luatomictest.Namespace(t), nil)
	for what, err := range map[string]error{
		"Serve": lab.Echo.Serve(b, nil, nil), "Serve with options": lab.Echo.Serve(b, nil, &rpc.ServeOptions{}),
		"stream": countTo.Serve(b, nil),
	} {
		require.ErrorContains(t, err, "no handler is given", what)
	}
}
