package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

func TestNoServer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "none.sock")
	closed := luatomictest.StartServer(t)
	address := closed.Addr()
	closed.Kill()
	tests := map[string]string{
		"unix://" + socket:                                   socket,
		"redis://u:secret@" + address:                        "redis://u:xxxxx@" + address,
		"redis://" + address + "?addr=" + address:            address,
		"rediss://u:secret@" + address + "?skip_verify=true": address,
	}
	for url, shown := range tests {
		for _, args := range [][]string{{"stats", "q"}, {"push", "q"}, {"promote", "q"}, {"demo"},
			{"lock", "x", "--", "true"}, {"locks", "ls"}, {"locks", "release", "x"}, {"doctor"}, {"load"},
			{"consume", "q", "--", "true"},
			{"rpc", "serve", "m", "--", "true"}, {"rpc", "call", "m", "1"}, {"rpc", "nodes"}, {"rpc", "top"}} {
			start := time.Now()
			c := (&env{t: t, url: url}).run(args...).exits(exitFailed)
			require.Less(t, time.Since(start), within/2)
			require.Contains(t, c.stderr.String(), shown)
			require.Contains(t, c.stderr.String(),
				"start a server there, or name another with --redis URL or REDIS_URL")
			require.Equal(t, 1, strings.Count(c.stderr.String(), "\n"), c.stderr.String())
			require.NotContains(t, c.stderr.String(), "secret")
			require.Empty(t, c.stdout.String())
		}
	}
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	server.Pause()
	defer server.Resume()
	start := time.Now()
	c := (&env{t: t, url: server.URL(), extra: []string{inHaste}}).run("stats", "q").exits(exitFailed)
	require.Less(t, time.Since(start), within/2)
	require.Contains(t, c.stderr.String(), "cannot use "+server.URL()+": no answer within 2s")
}

// A server that answers, but not to this question, is there: the cure is not to start one.
func TestServerThatIsBusyOrTakesNoMoreConnections(t *testing.T) {
	t.Parallel()
	busy := luatomictest.StartServer(t, "--lua-time-limit", "1")
	ask, ctx := busy.Client(), t.Context()
	require.NoError(t, ask.Ping(ctx).Err()) // its connection is made before the server is busy
	script := busy.Client(func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Minute })
	ended := make(chan error, 1)
	go func() { ended <- script.Eval(ctx, "while true do end", nil).Err() }()
	luatomictest.Eventually(t, within, "the server is busy", func() bool { return ask.Ping(ctx).Err() != nil })
	c := (&env{t: t, url: busy.URL()}).run("stats", "q").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "end it by redis-cli SCRIPT KILL")
	require.NoError(t, ask.ScriptKill(ctx).Err())
	require.Error(t, <-ended)

	full := luatomictest.StartServer(t)
	require.NoError(t, full.Client().ConfigSet(ctx, "maxclients", "1").Err())
	c = (&env{t: t, url: full.URL()}).run("stats", "q").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "maxclients")
}

func TestPassword(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--requirepass", "secret")
	c := (&env{t: t, url: server.URL()}).run("stats", "q").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "put the user and password into the URL")
	right := strings.Replace(server.URL(), "redis://", "redis://:secret@", 1)
	(&env{t: t, url: right}).known("q")
	(&env{t: t, url: right}).run("stats", "q").exits(exitDone)
	// The flag wins over the environment, before and after the command.
	(&env{t: t, url: server.URL()}).run("--redis", right, "stats", "q").exits(exitDone)
	(&env{t: t, url: server.URL()}).run("stats", "q", "--redis", right).exits(exitDone)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := luatomictest.StartCluster(t).Addrs()
	for i, url := range []string{
		"redis://" + nodes[0] + "?addr=" + nodes[1] + "&addr=" + nodes[2],
		"redis://" + nodes[0],
	} {
		e := &env{t: t, url: url}
		for _, q := range []string{"a", "b", "c", "d"} { // in several slots
			name := fmt.Sprint(q, i)
			holds(t, e.with(`{"body":1}`).run("push", name).exits(exitDone).object(), map[string]any{"pushed": 1})
			holds(t, e.run("consume", name, "--drain", "--", "true").exits(exitDone).object(),
				map[string]any{"acked": 1})
			e.run("lock", name, "--", "true").exits(exitDone)
			e.serve("cat", "--bus", name, "--", "cat")
			require.Equal(t, `{"result":1}`, e.call("cat", "1", "--bus", name).exits(exitDone).line())
			e.call("none", "1", "--bus", name).fails(exitTryLater, "no_responder", "no node serves it")
		}
	}
}
