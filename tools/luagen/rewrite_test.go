package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

const takeScript = `local left = tonumber(redis.call('GET', KEYS[1]) or 0)
if left < tonumber(ARGV[1]) then return redis.error_reply('SOLD_OUT up') end
redis.call('LPUSH', KEYS[2], ARGV[1], ARGV[2])
return redis.call('DECRBY', KEYS[1], ARGV[1])
`

// A script without a header is drafted, fixed and generated; what runs then does what the first text did.
func TestFromABareScriptToAFunction(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "stock")
	file := filepath.Join(dir, "take.lua")
	writeFile(t, file, takeScript)
	code, stdout, stderr := command("init", file)
	require.Equal(t, 0, code, stderr)
	require.Contains(
		t,
		stdout,
		"+---@key key1 string\n+---@key key2 list\n+---@arg arg1 int\n+---@arg arg2 string\n+---@reply "+
			"int\n+---@error SOLD_OUT",
	)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, takeScript, string(text), "only a diff")
	for _, args := range [][]string{{"init", "-w", file}, {"fix", "-w", file}, {dir}} {
		code, stdout, stderr = command(args...)
		require.Equal(t, 0, code, "%v: %s%s", args, stdout, stderr)
	}
	require.Contains(t, stderr, `H011 warning: the header still has a guess of init ("check: may it run twice?")`)
	require.Contains(t, stderr, `= decide, and remove the words "check: may it run twice?"`)
	require.FileExists(t, file+".go")
	code, _, _ = command("-strict", dir)
	require.Equal(t, 1, code, "guesses that nobody has read")
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	header := regexp.MustCompile(`  check: .*|does what its comments say\.`)
	writeFile(t, file, header.ReplaceAllString(string(text), "  decided"))
	code, stdout, stderr = command("-strict", dir)
	require.Equal(t, 0, code, stdout+stderr)
	require.Contains(t, string(text), "local key1, key2 = KEYS[1], KEYS[2]\nlocal arg1, arg2 = ARGV[1], ARGV[2]\n")

	client, ctx := luatomictest.Client(t), t.Context()
	var states []string
	for _, script := range []string{takeScript, string(text)} {
		name := luatomictest.Namespace(t)
		keys := []string{name + "a", name + "b"}
		require.NoError(t, client.Set(ctx, keys[0], 10, 0).Err())
		n, err := client.Eval(ctx, script, keys, 3, "x").Int()
		require.NoError(t, err)
		require.Equal(t, 7, n)
		require.ErrorContains(t, client.Eval(ctx, script, keys, 30, "x").Err(), "SOLD_OUT")
		require.NoError(t, client.Del(ctx, keys[1]).Err())
		require.NoError(t, client.Set(ctx, keys[1], "no list", 0).Err())
		require.ErrorContains(t, client.Eval(ctx, script, keys, 3, "x").Err(), "WRONGTYPE")
		states = append(states, client.Get(ctx, keys[0]).Val()+client.Get(ctx, keys[1]).Val())
	}
	require.Equal(t, states[0], states[1])
}

func TestInitAndFixFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	headed := filepath.Join(dir, "headed.lua")
	writeFile(t, headed, goodScript)
	code, _, stderr := command("init", headed, filepath.Join(dir, "none.lua"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "has a header already")
	require.Contains(t, stderr, "none.lua")
	code, stdout, _ := command("fix", headed)
	require.Equal(t, 0, code)
	require.Empty(t, stdout, "nothing to fix")
	bare := filepath.Join(dir, "bare.lua")
	writeFile(t, bare, "return 1\n")
	code, _, stderr = command("fix", bare)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "luagen init")
	for _, verb := range []string{"init", "fix"} {
		code, _, _ = command(verb)
		require.Equal(t, 2, code)
	}
}

// A file whose lines end by CRLF has no others after init and fix.
func TestInitAndFixKeepLineEnds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "take.lua")
	writeFile(t, file, strings.ReplaceAll(takeScript, "\n", "\r\n"))
	for _, verb := range []string{"init", "fix"} {
		code, _, stderr := command(verb, "-w", file)
		require.Equal(t, 0, code, stderr)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, strings.Count(string(text), "\n"), strings.Count(string(text), "\r\n"), "%s: %q", verb, text)
		require.NotContains(t, string(text), "\r\r")
	}
}

// A fragment has its own file: fix binds names above it, and renames no local that a fragment uses.
func TestFixLeavesFragmentsAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "stock")
	file := filepath.Join(dir, "src", "see.lua")
	writeFile(t, filepath.Join(dir, "src", "part", "now.lua"), "local now = redis.call('TIME')[1]\n")
	writeFile(t, filepath.Join(dir, "src", "part", "mark.lua"), "redis.call('HSET', KEYS[1], seen, now)\n")
	writeFile(t, file, "--- See notes who looked, and when.\n---@contract dup-only\n---@retry never\n---@key h hash\n"+
		"---@arg who string\n---@arg by string\n\n  --< part/now.lua\nlocal seen = ARGV[1]\n--< part/mark.lua\n"+
		"redis.call('HSET', KEYS[1], ARGV[2], seen)\n")
	for _, args := range [][]string{{dir}, {"fix", "-w", file}, {dir}, {"-check", dir}} {
		code, stdout, stderr := command(args...)
		require.Equal(t, 0, code, "%v: %s%s", args, stdout, stderr)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "\n\nlocal h = KEYS[1]\nlocal who, by = ARGV[1], ARGV[2]\n  --< part/now.lua\n"+
		"local seen = who\n--< part/mark.lua\nredis.call('HSET', h, by, seen)\n")
	text, err = os.ReadFile(filepath.Join(dir, "see.lua"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\n  local now = redis.call('TIME')[1]\nlocal seen = who\n"+
		"redis.call('HSET', KEYS[1], seen, now)\n")
}
