package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// A group of calls that ends its context with the error of the first one that fails, as errgroup does, gives the others
// a cause that says "no handler has run". Theirs may have.
func TestTheOutcomeOfAnotherCallIsNotThatOfThisOne(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	entered := make(chan struct{}, 1)
	hold := func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	node := lab.Serving(t, lab.Echo, c, name, nil, func(ctx context.Context, _ string) (string, error) {
		return "", hold(ctx)
	})
	require.NoError(t, countTo.Serve(node, func(ctx context.Context, _ int, _ func(int) error) error {
		return hold(ctx)
	}))
	require.NoError(t, node.Ready(t.Context()))
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	calls := map[string]func(context.Context) error{
		"call": func(ctx context.Context) error {
			_, err := lab.Echo.Call(ctx, caller, "", &rpc.CallOptions{Retry: 3})
			return err
		},
		"gather": func(ctx context.Context) (err error) {
			for _, err = range lab.Echo.Gather(ctx, caller, "") {
			}
			return err
		},
		"stream": func(ctx context.Context) (err error) {
			for _, err = range countTo.Call(ctx, caller, 1) {
			}
			return err
		},
	}
	_, unserved := rpc.NewMethod[string, string]("unserved").Call(t.Context(), caller, "", nil)
	require.ErrorIs(t, unserved, rpc.ErrNoResponders)
	for kind, call := range calls {
		for _, other := range []error{
			unserved, fmt.Errorf("%w: %w", lua.ErrNotExecuted, context.Canceled),
			&rpc.RemoteError{Code: rpc.CodeOverloaded}, errStopped, context.Canceled,
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-entered
				cancel(other)
			}()
			err := call(ctx)
			cancel(nil)
			require.ErrorIs(t, err, context.Canceled, kind)
			require.ErrorContains(t, err, other.Error(), kind)
			require.Equal(t, other == errStopped, errors.Is(err, errStopped), "%s: %v", kind, err)
			for _, no := range []error{rpc.ErrNoResponders, rpc.ErrOverloaded, lua.ErrNotExecuted} {
				require.NotErrorIs(t, err, no, kind)
			}
			require.False(t, errors.As(err, new(*rpc.RemoteError)), "%s: %v", kind, err)
		}
	}
}
