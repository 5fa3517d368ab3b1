package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// What it waits for is never stored.
const refusedScript = `--- Refused is never ready.
---@contract all-or-nothing
---@retry safe
---@key h hash
---@error NOT_READY yet

local h = KEYS[1]
if redis.call('HGET', h, string.rep('x', 9)) ~= 'ready' then
  return redis.error_reply('NOT_READY yet')
end
redis.call('HINCRBY', h, 'n', 1)
`

func TestProveVerb(t *testing.T) {
	t.Parallel()
	url := luatomictest.StartServer(t).URL()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "lock_peek.lua"), goodScript)
	code, stdout, stderr := command("prove", "-redis", url, "-n", "20", dir)
	require.Equal(t, 0, code, stdout+stderr)
	require.Contains(t, stdout,
		"lock_peek.lua: holds; calls 20, changes 0, repeats 0, failed writes 0, wrong types 0\n")
	writeFile(t, filepath.Join(dir, "count.lua"), strings.Replace(countScript, "---@key ", "---@retry safe\n---@key ",
		1))
	code, stdout, _ = command("prove", "-redis", url, dir)
	require.Equal(t, 1, code)
	require.Contains(t, stdout,
		"count.lua: V001: @retry safe, and a repeat changed what the first run left\n  KEYS [\"{p}:n\"]")
	require.Contains(t, stdout, "lock_peek.lua: holds", "the others are run all the same")
	writeFile(t, filepath.Join(dir, "refused.lua"), refusedScript)
	code, stdout, _ = command("prove", "-redis", url, filepath.Join(dir, "refused.lua"),
		filepath.Join(dir, "lock_peek.lua"))
	require.Equal(t, 3, code)
	require.Contains(t, stdout,
		"refused.lua: not tried: no call that succeeds changes anything; calls 100, changes 0, repeats 0, failed "+
			"writes 0,")
	require.Contains(t, stdout, "lock_peek.lua: holds")
	code, _, _ = command("prove", "-redis", url, dir)
	require.Equal(t, 1, code, "what is broken comes before what is open")
	for _, args := range [][]string{{"prove"}, {"prove", "-redis", "nowhere", dir},
		{"prove", "-redis", "redis://user:s3cr/x@h", dir}} {
		code, _, stderr = command(args...)
		require.Equal(t, 2, code, "%v", args)
		require.NotContains(t, stderr, "s3cr", "a part of a password")
	}
	for _, verb := range []string{"prove", "doc"} {
		code, _, stderr = command(verb, t.TempDir())
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "no scripts with a header below")
	}
	code, stdout, stderr = command("prove", "-n", "50", dir) // on a server that it starts
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stdout, "lock_peek.lua: holds; calls 50")
	code, _, stderr = command("prove", "-redis", url, filepath.Join(dir, "none.lua"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "none.lua")
}

// serverThat puts a program in place of redis-server.
func serverThat(t *testing.T, does string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis-server"), []byte("#!/bin/sh\n"+does), 0o755))
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// prove does not wait for a server that ends at once, and prints what that server said.
func TestProveTellsWhyItsServerEnds(t *testing.T) {
	temp, file := t.TempDir(), filepath.Join(t.TempDir(), "count.lua")
	t.Setenv("TMPDIR", temp)
	writeFile(t, file, countScript)
	serverThat(t, "echo 'Bad directive or wrong number of arguments' >&2\nexit 1\n")
	start := time.Now()
	code, stdout, stderr := command("prove", file)
	require.Equal(t, 1, code, stdout)
	require.Contains(t, stderr,
		"redis-server ended: exit status 1: Bad directive or wrong number of arguments; name another server with "+
			"-redis\n")
	require.Less(t, time.Since(start), 20*time.Second)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// The path of a Unix socket has about a hundred bytes, that of a temporary folder may have more.
func TestProveUnderALongTemporaryFolder(t *testing.T) {
	temp, file := filepath.Join(t.TempDir(), strings.Repeat("x", 110)), filepath.Join(t.TempDir(), "lock_peek.lua")
	require.NoError(t, os.Mkdir(temp, 0o755))
	t.Setenv("TMPDIR", temp)
	writeFile(t, file, goodScript)
	code, stdout, stderr := command("prove", "-n", "3", file)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "lock_peek.lua: holds; calls 3,")
}
