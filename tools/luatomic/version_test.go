package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	alone := (&env{t: t}).run("version").exits(exitDone).object()
	holds(t, alone, map[string]any{"go": runtime.Version(), "go_redis": redis.Version()})
	require.Contains(t, alone, "server")
	require.Nil(t, alone["server"])
	require.NotEmpty(t, alone["version"])

	server := luatomictest.StartServer(t)
	e := &env{t: t, url: server.URL()}
	require.Regexp(t, `^(Redis|Valkey) \d+\.\d+\.\d+`, e.run("version").exits(exitDone).object()["server"])
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-info").Err())
	app := &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1)}
	refused := app.run("version").exits(exitDone)
	require.Nil(t, refused.object()["server"])
	require.Contains(t, refused.stderr.String(), "is not known: INFO: NOPERM")

	server.Kill()
	gone := e.run("version").exits(exitFailed)
	require.Nil(t, gone.object()["server"])
	require.Contains(t, gone.stderr.String(), "cannot use "+server.URL())
}

func TestVersionOfABuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abc"}}}
	out := builtFrom(info, true)
	require.Equal(t, "v0.1.0", out.Version)
	require.Equal(t, "0123abc", *out.Commit)
	out = builtFrom(nil, false)
	require.Equal(t, "(devel)", out.Version)
	require.Nil(t, out.Commit)
}
