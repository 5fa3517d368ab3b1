package lua_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A server that does not know a command quotes its arguments.
func TestArgumentsThatTheServerQuotesAreNotShown(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t, "--rename-command", "EVALSHA", "").Client()
	s := newScript("count", countSource, lua.RetrySafe)
	require.ErrorContains(t, client.EvalSha(t.Context(), s.SHA, []string{"secret"}).Err(), "secret",
		"by the plain command")
	_, err := runInt(t.Context(), client, s, "secret")
	e := requireOutcome(t, err, lua.ErrNotExecuted)
	require.Equal(t, "ERR", e.Code)
	require.True(t, redis.HasErrorPrefix(err, "unknown command 'evalsha'"), "%v", err)
	require.NotContains(t, err.Error(), "secret")
}

// Of the keys whose names have tokens and ids of calls in them an error shows the pattern, of the others all.
func TestKeysAreShownWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	queue, err := keys.NewQueue("app:", "tag", "mail")
	require.NoError(t, err)
	bus, err := keys.NewBus("app:", "stock")
	require.NoError(t, err)
	lock, err := keys.NewLock("app:", "tag", "invoice:42")
	require.NoError(t, err)
	for key, want := range map[string]string{
		queue.Receipt("a secret:{\n}:x"):      "app:{tag}{mail}:i:*",
		keys.Receipt("app:", "tag", "secret"): "app:{tag}{}:i:*",
		bus.Record("k4:take:secretK"):         "app:rpc:{stock}:r:*",
		bus.Body("k4:take:secretK"):           "app:rpc:{stock}:b:*",
		bus.Chunks("k4:take:secretK"):         "app:rpc:{stock}:s:*",
		bus.Connection("secret"):              "app:rpc:{stock}:k:*",
		queue.Ready:                           queue.Ready,
		queue.Expiry:                          queue.Expiry,
		bus.Methods:                           bus.Methods,
		lock.Record:                           lock.Record,
		lock.Queue:                            lock.Queue,
		"shop:{apple}:orders:7":               "shop:{apple}:orders:7",
	} {
		require.Equal(t, want, lua.ShownKey(key))
	}
}
