package rpc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A server that does not know a command quotes its arguments, and a large body is one of SET.
func TestABodyThatTheServerQuotesIsNotShown(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t, "--rename-command", "SET", "").Client()
	require.ErrorContains(t, client.Set(t.Context(), "k", "secret", 0).Err(), "secret", "by the plain command")
	bus := lab.Serving(t, lab.Echo, client, "bus", nil, lab.Upper)
	_, err := lab.Echo.Call(t.Context(), bus, strings.Repeat("secret", 2<<10))
	require.ErrorIs(t, err, lua.ErrNotExecuted)
	require.ErrorContains(t, err, "unknown command 'set'")
	require.NotContains(t, err.Error(), "secret")
}
