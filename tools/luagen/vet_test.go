package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goProgram = "package p\n\nvar take = redis.NewScript(`\nlocal n = redis.call('GET', KEYS[1])\nif n == nil " +
	"then\n" +
	"\treturn tonumbr(n)\nend\nreturn n\n`)\n\n// not a script: the message of an error\nvar msg = \"write " +
	"redis.call('GET', key)\"\n" +
	"var shaped = fmt.Sprintf(`\nreturn redis.call('GET', %s)\n`, key)\n"

func TestVetReadsScriptsWithAndWithoutHeaderAndInGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a", "drop.lua"), "redis.call('DEL', 'x')\n")
	writeFile(
		t,
		filepath.Join(dir, "a", "lock_peek.lua"),
		strings.Replace(goodScript, "---@reply bool", "---@reply string", 1)+"local x = KEYS[2]\n",
	)
	writeFile(t, filepath.Join(dir, "take.go"), goProgram)
	writeFile(t, filepath.Join(dir, "broken.go"), "package p\nvar x = redis.NewScript(`return redis.call('GET'`")
	writeFile(t, filepath.Join(dir, "vendor", "x.lua"), "syntax error")
	writeFile(t, filepath.Join(dir, "erb.lua"), "<%= include 'x' %>\nreturn 1\n")
	code, stdout, stderr := command("vet", dir)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stdout, filepath.Join(dir, "take.go")+":5:4: R004 warning: redis.call never returns nil")
	require.Contains(
		t,
		stdout,
		filepath.Join(dir, "take.go")+":6:9: G002 unknown global tonumbr\n   6 | \treturn tonumbr(n)",
	)
	require.Contains(t, stdout, "drop.lua:1:19: K001 warning: the key is not one of KEYS but a literal")
	require.Contains(t, stdout, "lock_peek.lua:8:1: S001", "what stands behind the return")
	require.Contains(t, stdout,
		"luagen: scripts: 3, errors: 3, warnings: 2; texts that something else completes, not read: 1")
	require.Contains(t, stdout, "broken.go:2:50: S001 the Go file does not parse")
	require.NotContains(t, stdout, "vendor")

	_, below, _ := command("vet", dir+"/...")
	require.Equal(t, stdout, below)

	code, stdout, _ = command("vet", filepath.Join(dir, "a", "drop.lua"))
	require.Equal(t, 0, code, "warnings alone")
	require.Contains(t, stdout, "warnings: 1")
	code, _, _ = command("vet", "-strict", filepath.Join(dir, "a", "drop.lua"))
	require.Equal(t, 1, code)
}

func TestVetFormats(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "drop.lua")
	writeFile(t, file, "redis.call('DEL', 'x')\nreturn y\n")
	code, stdout, _ := command("vet", "-format", "json", file)
	require.Equal(t, 1, code)
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &list))
	require.Len(t, list, 2)
	require.Equal(t, map[string]any{"file": file, "line": 1.0, "column": 19.0, "rule": "K001", "level": "warning",
		"message": "the key is not one of KEYS but a literal",
		"cure":    "declare it with ---@key and pass it, or accept it with ---@allow K001 reason"}, list[0])

	code, stdout, _ = command("vet", "-format", "sarif", file)
	require.Equal(t, 1, code)
	var log sarifLog
	require.NoError(t, json.Unmarshal([]byte(stdout), &log))
	require.Equal(t, "2.1.0", log.Version)
	require.Len(t, log.Runs[0].Results, 2)
	require.Equal(t, "error", log.Runs[0].Results[1].Level)
	require.Equal(t, sarifRegion{2, 8}, log.Runs[0].Results[1].Locations[0].PhysicalLocation.Region)

	writeFile(t, file, "return 1\n")
	_, stdout, _ = command("vet", "-format", "json", file)
	require.Equal(t, "[]\n", stdout)
}

func TestVetTargets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "h.lua")
	writeFile(t, file, "redis.call('HEXPIRE', KEYS[1], 1, 'FIELDS', 1, 'f')\nreturn bit.band(1, 2)\n")
	code, stdout, _ := command("vet", "-strict", file)
	require.Equal(t, 0, code, stdout)
	code, stdout, _ = command("vet", "-strict", "-target", "redis8,valkey9", file)
	require.Equal(t, 0, code, stdout)
	code, stdout, _ = command("vet", "-strict", "-target", "redis7,miniredis", file)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "P002 warning: HEXPIRE is not a command of redis7, miniredis")
	require.Contains(t, stdout, "= HEXPIRE is on redis8, valkey9, since version 7.4.0")
	require.Contains(t, stdout, "P001 warning: bit is not on miniredis")
	code, _, stderr := command("vet", "-target", "redis5", file)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `"redis5" is not a target: targets are dragonfly miniredis redis7`)
}

// Names that another file of the run declares are those of a program that puts its files together.
func TestVetOfFilesThatAreJoined(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "now.lua"), "local function now() return redis.call('TIME')[1] end\n")
	writeFile(t, filepath.Join(dir, "use.lua"), "return now()\n")
	code, stdout, _ := command("vet", dir)
	require.Equal(t, 0, code, stdout)
	code, stdout, _ = command("vet", filepath.Join(dir, "use.lua"))
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "G002 unknown global now")

	writeFile(t, filepath.Join(dir, "now.lua"), "function table.extend(a) return a or KEYS[1] end\n")
	writeFile(t, filepath.Join(dir, "use.lua"), "return table.extend({})\n")
	code, stdout, _ = command("vet", dir)
	require.Equal(t, 1, code, stdout)
	require.Contains(t, stdout, "now.lua:1:10: G001 write to table, a table that all scripts share")
	require.NotContains(t, stdout, "G002")
}

// A template is not read, but what it declares outside of its tags is known to the parts that it includes.
func TestVetKnowsWhatATemplateDeclares(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "part.lua"), "redis.log(redis.LOG_DEBUG, script_name)\n")
	writeFile(t, filepath.Join(dir, "whole.lua"), "local script_name = ARGV[1]\n<%= include 'part' %>\nreturn 1\n")
	code, stdout, _ := command("vet", dir)
	require.Equal(t, 0, code, stdout)
	require.Contains(t, stdout, "scripts: 1, errors: 0, warnings: 0; texts that something else completes, not read: 1")
}

func TestVetUsage(t *testing.T) {
	t.Parallel()
	code, stdout, _ := command("vet", "-h")
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "miniredis")
	for _, args := range [][]string{{"vet"}, {"vet", "-format", "xml", "."}, {"vet", "-what"}} {
		code, _, stderr := command(args...)
		require.Equal(t, 2, code, "%v", args)
		require.Contains(t, stderr, "usage: luagen vet")
	}
	_, _, wrong := command("vet", "-format", "xml", ".")
	require.Contains(t, wrong, `-format: "xml" is not a format: formats are text, json, sarif`)
	code, _, stderr := command("vet", filepath.Join(t.TempDir(), "none.lua"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "none.lua")
}

func TestLinkToNothingHasACure(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.Symlink("gone.lua", filepath.Join(dir, "lock_peek.lua")))
	for _, args := range [][]string{{dir}, {"vet", dir}} {
		code, _, stderr := command(args...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, `lock_peek.lua" is a link to a file that does not exist: remove it`)
	}
}

// A script is often joined of a literal for each line. Findings are placed in the literal that they are about.
func TestVetReadsJoinedLiterals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.go"),
		"package p\n\nvar take = redis.NewScript(\"local n = redis.call('GET', KEYS[1])\\n\" +\n"+
			"\t\"if n == nil \" +\n\t(\"then return 0 end\\n\" + `return redis.call('EXPIRES',\n KEYS[1], m)`))\n")
	writeFile(t, filepath.Join(dir, "b.go"),
		"package p\n\nvar put = redis.NewScript(head + \"redis.call('EXPIRES', KEYS[1])\")\n"+
			"const text = \"redis.call('EXPIRES', KEYS[1])\" + \"\"\n")
	code, stdout, stderr := command("vet", dir)
	require.Equal(t, 1, code, stderr)
	for _, want := range []string{"a.go:4:3: R004", "a.go:5:46: C001", "a.go:6:11: G002"} {
		require.Contains(t, stdout, filepath.Join(dir, want))
	}
	require.Contains(t, stdout,
		"\nluagen: scripts: 1, errors: 2, warnings: 1; texts that something else completes, not read: 1\n")
}

// A code host refuses a file of findings whose names are no URIs.
func TestSARIFNamesFilesByURI(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeFile(t, filepath.Join(dir, "my scripts", "50%.lua"), "return KEYS[1] +\n")
	code, stdout, _ := command("vet", "-format", "sarif", "my scripts")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, `"uri": "my%20scripts/50%25.lua"`)
}

// A header is read whatever the file's name is, and behind a byte order mark: without it a script that breaks its
// promises would be clean.
func TestVetReadsTheHeaderOfAnyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.Replace(goodScript, "return ", "redis.call('DEL', lock)\nreturn ", 1)
	writeFile(t, filepath.Join(dir, "Lock-Peek.lua"), text)
	writeFile(t, filepath.Join(dir, "lock_peek.lua"), "\uFEFF"+text)
	code, stdout, _ := command("vet", dir)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "Lock-Peek.lua:1:1: H001 the file's name is not lower case words joined by _")
	require.Contains(t, stdout, "lock_peek.lua:1:1: S001 the file starts with a byte order mark")
	code, _, stderr := command("prove", filepath.Join(dir, "lock_peek.lua"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the file starts with a byte order mark")
}

// A code host counts columns as the file of findings says that it does, and not in bytes.
func TestSARIFCountsColumnsInUTF16(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.lua"), "local s = 'é€😀' .. nothing\nreturn s\n")
	writeFile(t, filepath.Join(dir, "b.lua"), "local s = '\xff\xfe' .. nothing\nreturn s\n")
	for file, column := range map[string]int{"a.lua": len("local s = '") + 1 + 1 + 2 + len("' .. ") + 1, "b.lua": 19} {
		code, stdout, _ := command("vet", "-format", "sarif", filepath.Join(dir, file))
		require.Equal(t, 1, code)
		require.Contains(t, stdout, `"columnKind": "utf16CodeUnits"`)
		require.Contains(t, stdout, fmt.Sprintf(`"startColumn": %d`+"\n", column), file)
	}
}

// A place to fill in inside a literal is the script's own: it is no reason for a syntax error.
func TestVetReportsSyntaxBesideFormats(t *testing.T) {
	t.Parallel()
	for text, read := range map[string]bool{
		"local s = string.format('%s:%d', 'a', 1) -- {{x}}\nreturn (s\n": true,
		"local s = [[\n${x} %q]] return s,\n":                            true,
		"---@contract all-or-nothing\nlocal t = {{1}, {2}\n":             true,
		"local s = %s\nreturn s .. '%s'\n":                               false,
		"return '${a}' .. ${b}\n":                                        false,
	} {
		file := filepath.Join(t.TempDir(), "a.lua")
		writeFile(t, file, text)
		_, stdout, _ := command("vet", file)
		require.Equal(t, read, strings.Contains(stdout, "S001"), "%s%s", text, stdout)
	}
}

// The names of a fragment are those of the scripts that have it: it is judged there.
func TestVetJudgesAFragmentInItsScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "part", "count.lua"), "local n = redis.call('INCR', stock)\n")
	writeFile(t, filepath.Join(dir, "part", "other.lua"), "return KEYS[1] .. stocks\n")
	writeFile(t, filepath.Join(dir, "take.lua"),
		"local stock = KEYS[1]\n--< part/count.lua\nlocal n = redis.call('INCR', stock)\n-->\nreturn n\n")
	_, stdout, stderr := command("vet", dir)
	require.Empty(t, stderr)
	require.NotContains(t, stdout, "count.lua")
	require.Contains(t, stdout, "other.lua:1:19: G002 unknown global stocks")
	require.Contains(t, stdout, "luagen: scripts: 2, errors: 1, warnings: 0")
}

// Lua that runs in a web server or an editor names nothing of Redis, and rules of Redis say nothing of it.
func TestVetCountsButDoesNotJudgeLuaOfOtherPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	handler := filepath.Join(dir, "openresty", "handler.lua")
	writeFile(t, handler, "local redis = require 'resty.redis'\nngx.say(redis:new())\n")
	writeFile(t, filepath.Join(dir, "nvim", "init.lua"), "vim.opt.number = true\ngoto done\n::done::\n")
	writeFile(t, filepath.Join(dir, "take.lua"), "return redis.call('GET', KEYS[1])\n")
	writeFile(t, filepath.Join(dir, "broken.lua"), "return redis.call('GET', KEYS[1]\n")
	writeFile(t, filepath.Join(dir, "header.lua"), "--- Header returns one.\n---@readonly\nreturn nothing\n")
	code, stdout, stderr := command("vet", dir)
	require.Equal(t, 1, code, stderr)
	require.NotContains(t, stdout, "handler.lua")
	require.NotContains(t, stdout, "init.lua")
	require.Contains(t, stdout, "broken.lua:2:1: S001")
	require.Contains(t, stdout, "header.lua:3:8: G002")
	require.Contains(t, stdout,
		"luagen: scripts: 3, errors: 2, warnings: 0; Lua files that name nothing of Redis, not judged: 2\n")

	_, stdout, _ = command("vet", handler)
	require.Contains(t, stdout, "handler.lua:1:15: G002 unknown global require", "a file that is named is judged")
}

func TestVetLeavesOutWhatIsExcluded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, file := range []string{"spec/a.lua", "b_spec.lua", "deep/er/c.lua", "deep/d.lua"} {
		writeFile(t, filepath.Join(dir, filepath.FromSlash(file)), "return redis.call('GET', nothing)\n")
	}
	count := func(args ...string) string {
		_, stdout, _ := command(append([]string{"vet"}, append(args, dir)...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		return lines[len(lines)-1]
	}
	require.Contains(t, count(), "scripts: 4,")
	require.Contains(t, count("-exclude", "spec"), "scripts: 3,", "the name of a folder")
	require.Contains(t, count("-exclude", "spec", "-exclude", "*_spec.lua"), "scripts: 2,", "the names of files")
	require.Contains(t, count("-exclude", "deep/*.lua"), "scripts: 3,", "a path below the folder")
	require.Contains(t, count("-exclude", "deep/er"), "scripts: 3,")
	require.Contains(t, count("-exclude", "er/c.lua"), "scripts: 4,", "a path begins at the folder that is named")
	code, stdout, _ := command("vet", "-exclude", "a.lua", filepath.Join(dir, "spec", "a.lua"))
	require.Equal(t, 1, code, "a file that is named is judged")
	require.Contains(t, stdout, "scripts: 1,")
	code, _, stderr := command("vet", "-exclude", "[", dir)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `exclude: "[" is no pattern of names`)
}

// A program in another language may put functions before the text of a file, where no run of vet sees them.
func TestVetKnowsGlobalsThatAreNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "use.lua")
	writeFile(t, file, "return redis.call('SET', KEYS[1], now() + later())\n")
	_, stdout, _ := command("vet", file)
	require.Contains(t, stdout, "G002 unknown global now")
	_, stdout, _ = command("vet", "-global", "now", file)
	require.NotContains(t, stdout, "unknown global now")
	require.Contains(t, stdout, "G002 unknown global later")
	_, stdout, _ = command("vet", "-global", "now,later", file)
	require.NotContains(t, stdout, "G002")
	code, _, stderr := command("vet", "-global", "now.x", file)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `-global: "now.x" is not the name of a global`)
}
