package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
	marks "github.com/luatomic/luatomic/tools/luagen/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// The child sees its replies and the lines of its errors; the trace has what it did, and the call that raised has no
// reply.
func TestTraceOfACommand(t *testing.T) {
	shareServer(t)
	out := filepath.Join(t.TempDir(), "trace.txt")
	code, stdout, stderr := command("trace", "-only", "count", "-o", out, os.Args[0], "-test.run", "TestCoverChild")
	require.Equal(t, 0, code, stdout+stderr)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Regexp(t, `^count KEYS \{".*n"\} ARGV \{"5"\}$`, lines[0])
	require.Regexp(t, `^  count:9: "GET" ".*n"$`, lines[1])
	require.Regexp(t, `^    \d+ us: false$`, lines[2])
	require.Regexp(t, `^  count:12: "INCR" ".*n"$`, lines[3])
	require.Regexp(t, `^    \d+ us: 1$`, lines[4])
	require.Regexp(t, `^count KEYS`, lines[5])
	require.Regexp(t, `^  count:9: "GET"`, lines[6])
	require.Equal(t, []string{""}, lines[7:], "GET of a hash has raised; peek is not traced")
	code, _, _ = command("trace")
	require.Equal(t, 2, code)
}

func inA(line int) string { return fmt.Sprintf("part/a.lua:%d", line) }

func TestTracedScriptsKeepTheirLines(t *testing.T) {
	t.Parallel()
	const script = "local a = redis.call('GET',\n  KEYS[1])\nredis.pcall('SET', KEYS[1], " +
		"f(redis.call('TIME')[1]))\nredis.call'PING'\n"
	traced := marks.Trace("a", script, inA)
	require.Equal(t, 4, strings.Count(traced, "\n"))
	require.Contains(t, traced, "local a = luagen_to(redis.call(luagen_from('part/a.lua:1','GET',\n  KEYS[1])))\n")
	require.Contains(t, traced,
		"\nluagen_to(redis.pcall(luagen_from('part/a.lua:3','SET', KEYS[1], "+
			"f(luagen_to(redis.call(luagen_from('part/a.lua:3','TIME')))[1]))))\n")
	require.Contains(t, marks.Trace("a", "server.call('GET', KEYS[1])", inA),
		"luagen_to(server.call(luagen_from('part/a.lua:1','GET', KEYS[1])))")
	require.Equal(t, "if", marks.Trace("a", "if", inA))
	full := marks.Trace("a", fullScript(), inA)
	require.NotContains(t, full, "luagen_from(")
	require.Contains(t, full,
		"what it calls is not known: with reports it has '..\"more than 60 upvalues in one function\"")
	_, err := luaast.Parse(full)
	require.NoError(t, err)
}

func TestEditorFileIsLuaAndHasEveryCommand(t *testing.T) {
	t.Parallel()
	code, stdout, _ := command("editor")
	require.Equal(t, 0, code)
	_, err := luaast.Parse(stdout)
	require.NoError(t, err)
	require.Contains(t, stdout, "---@overload fun(command: 'GET', key: redis.arg): string|false\n")
	require.Contains(t, stdout,
		"---@overload fun(command: 'HGET', key: redis.arg, arg2: redis.arg): string|false|redis.error\n")
	require.NotContains(t, stdout, "'SUBSCRIBE'")
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "@overload") {
			require.Equal(t, strings.Count(line, "("), strings.Count(line, ")"), line)
		}
	}
}

func TestReferenceOfAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "count.lua"), countScript)
	out := filepath.Join(dir, "scripts.md")
	check := []string{"doc", "-check", "-o", out, dir}
	code, _, _ := command(check...)
	require.Equal(t, 1, code)
	code, _, stderr := command("doc", "-title", "Stock", "-o", out, dir)
	require.Equal(t, 0, code, stderr)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(text), "# Stock\n")
	require.Contains(t, string(text), "- [count](#count): counts up to a limit.\n")
	require.Contains(t, string(text),
		"- KEYS `n` string.\n- ARGV `limit` int.\n- Reply int.\n- Error `FULL`; no more.\n"+
			"- Contract all-or-nothing; an error leaves the data as it was.\n- Retry never.\n")
	code, _, _ = command("doc", "-check", "-title", "Stock", "-o", out, dir)
	require.Equal(t, 0, code)
	code, _, _ = command("doc")
	require.Equal(t, 2, code)
	require.Contains(t, luagen.Reference("A", nil), "# A\n")
}

// Scripts of one name in two folders have headings of one name: Markdown numbers the second, and the list leads there.
func TestReferenceOfScriptsOfOneName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one", "lock_peek.lua"), filepath.Join(dir, "two", "lock_peek.lua")
	writeFile(t, one, goodScript)
	writeFile(t, two, strings.Replace(goodScript, "tells whether a lock is there", "shows a <lock>", 1))
	code, stdout, stderr := command("doc", one, two)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "- [lock_peek](#lock_peek): tells whether a lock is there.\n"+
		"- [lock_peek](#lock_peek-1): shows a &lt;lock>.\n")
}
