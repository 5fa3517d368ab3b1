package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	b := lab.Serving(t, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
		switch s {
		case "code":
			return "", fmt.Errorf("wrapped: %w", &rpc.RemoteError{Code: "quota", Message: "no more"})
		case "panic":
			panic("secret stack")
		case "big":
			return strings.Repeat("x", queue.MaxBatchBytes), nil
		}
		return "", errors.New(strings.Repeat("long ", 1000))
	})
	number := rpc.NewMethod[int, string]("echo")
	for in, want := range map[string]string{"code": "quota", "panic": rpc.CodeInternal, "big": rpc.CodeTooLarge,
		"": rpc.CodeError} {
		_, err := lab.Echo.Call(t.Context(), b, in, nil)
		var remote *rpc.RemoteError
		require.ErrorAs(t, err, &remote, in)
		require.Equal(t, want, remote.Code)
		require.NotContains(t, remote.Message, "secret")
		require.LessOrEqual(t, len(remote.Message), 1024)
	}
	_, err := number.Call(t.Context(), b, 7, nil)
	require.ErrorContains(t, err, rpc.CodeBadRequest)
	_, err = lab.Echo.Call(t.Context(), b, strings.Repeat("x", queue.MaxBatchBytes), nil)
	require.ErrorIs(t, err, lua.ErrTooLarge)
}
