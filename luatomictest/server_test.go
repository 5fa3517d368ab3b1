package luatomictest_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestServerTakesArguments(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	client, ctx := server.Client(), t.Context()
	require.Equal(t, "3145728", client.ConfigGet(ctx, "maxmemory").Val()["maxmemory"])
	var err error
	luatomictest.Eventually(t, 30*time.Second, "the server is full", func() bool {
		err = client.RPush(ctx, "k", strings.Repeat("x", 100_000)).Err()
		return err != nil
	})
	require.True(t, redis.HasErrorPrefix(err, "OOM"), err)
}

// No default overrides a configuration file; arguments do.
func TestServerTakesAConfigurationFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "test.conf")
	text := "appendonly yes\nappendfsync always\nsave 60 7\nmaxclients 77\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	server := luatomictest.StartServer(t, file, "--maxclients", "78")
	client, ctx := server.Client(), t.Context()
	for setting, want := range map[string]string{"appendonly": "yes", "save": "60 7", "maxclients": "78"} {
		require.Equal(t, want, client.ConfigGet(ctx, setting).Val()[setting])
	}
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	server.Restart()
	require.Equal(t, "v", client.Get(ctx, "k").Val())
}

// A configuration file is found from the test's own folder, as any file of a test is.
func TestServerFindsAConfigurationFileFromTheTestsFolder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test.conf"), []byte("maxclients 77\n"), 0o600))
	client := luatomictest.StartServer(t, "test.conf").Client()
	require.Equal(t, "77", client.ConfigGet(t.Context(), "maxclients").Val()["maxclients"])
}

// What a server says of an argument that it does not take, before it has a log, is in the failure of the test.
func TestServerThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	r, done := &recorder{TB: t}, make(chan struct{})
	go func() { defer close(done); luatomictest.StartServer(r, "--maxmemory", "banana") }()
	<-done
	require.Contains(t, r.failure, "the server process ended: redis-server: ")
	require.Contains(t, r.failure, `maxmemory "banana"`)
	require.Contains(t, r.failure, "argument must be a memory value")
}

func TestServerKillLosesMemory(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, ctx := server.Client(noRetry), t.Context()
	addr := server.Addr()
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	server.Kill()
	require.Error(t, client.Ping(ctx).Err())
	_, err := net.Dial("tcp", addr)
	require.Error(t, err, "nobody listens there any more")

	server.Restart()
	require.Equal(t, addr, server.Addr())
	luatomictest.Eventually(t, 20*time.Second, "the client is connected again", func() bool {
		return client.Ping(ctx).Err() == nil
	})
	require.ErrorIs(t, client.Get(ctx, "k").Err(), redis.Nil)
}

func TestServerRestartKeepsAnAppendOnlyFile(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes", "--appendfsync", "always")
	client, ctx := server.Client(), t.Context()
	sha, err := client.ScriptLoad(ctx, "return 1").Result()
	require.NoError(t, err)
	require.NoError(t, client.Set(ctx, "k", "v", 0).Err())
	server.Restart()
	require.Equal(t, "v", client.Get(ctx, "k").Val())
	require.Equal(t, []bool{false}, client.ScriptExists(ctx, sha).Val(), "the script cache does not survive")
}

func TestServerPauseAndResume(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, ctx := server.Client(noRetry, func(o *redis.Options) { o.ReadTimeout = 5 * time.Second }), t.Context()
	require.NoError(t, client.Ping(ctx).Err())
	server.Pause()
	var timeout net.Error
	require.ErrorAs(t, client.Ping(ctx).Err(), &timeout)
	require.True(t, timeout.Timeout())
	server.Resume()
	luatomictest.Eventually(t, 20*time.Second, "the server answers again", func() bool {
		return client.Ping(ctx).Err() == nil
	})
}

func TestServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("owner", func(t *testing.T) { addr = luatomictest.StartServer(t).Addr() })
	_, err := net.Dial("tcp", addr)
	require.Error(t, err)
}

func TestServerWithAWrongArgumentFailsTheTest(t *testing.T) {
	t.Parallel()
	failed := outcome(t, func(t testing.TB) { luatomictest.StartServer(t, "--no-such-directive", "1") })
	require.Contains(t, failed, "no-such-directive")
}

func TestServerSignalsOfAKilledServerFailTheTest(t *testing.T) {
	t.Parallel()
	failed := outcome(t, func(inner testing.TB) {
		server := luatomictest.StartServer(inner)
		server.Kill()
		server.Pause()
	})
	require.Contains(t, failed, "not running")
}

func TestServerWithoutABinarySaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, start := range map[string]func(testing.TB){
		"server":  func(t testing.TB) { luatomictest.StartServer(t) },
		"cluster": func(t testing.TB) { luatomictest.StartCluster(t) },
	} {
		failed := outcome(t, start)
		require.Contains(t, failed, "apt-get install redis-server", name)
	}
}

// A server that was killed keeps its port: another one there would answer its clients.
func TestPortOfAKilledServerIsReserved(t *testing.T) {
	t.Parallel()
	s := luatomictest.StartServer(t)
	require.Error(t, luatomictest.Reserve(s.Addr()))
	s.Kill()
	require.Error(t, luatomictest.Reserve(s.Addr()))
	luatomictest.Remove(s)
	// A program that another test starts at this moment has a copy of the listener until it is loaded.
	luatomictest.Eventually(t, 10*time.Second, "the port is free", func() bool {
		return luatomictest.Reserve(s.Addr()) == nil
	})
}
