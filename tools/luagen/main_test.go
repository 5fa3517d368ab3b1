package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

const goodScript = `--- LockPeek tells whether a lock is there.
---@readonly
---@key lock
---@reply bool

local lock = KEYS[1]
return redis.call('EXISTS', lock)
`

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func command(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	writeFile(t, filepath.Join(dir, "lock_peek.lua"), goodScript)

	code, stdout, _ := command("-check", dir)
	require.Equal(t, 1, code, "nothing is generated yet")
	require.Contains(t, stdout, "--- /dev/null\n+++ "+filepath.Join(dir, "lock_peek.lua.go"))
	require.NoFileExists(t, filepath.Join(dir, "lock_peek.lua.go"))

	code, stdout, stderr := command(dir)
	require.Equal(t, 0, code, stderr)
	require.Empty(t, stdout+stderr)
	code, stdout, _ = command("-check", dir)
	require.Equal(t, 0, code)
	require.Empty(t, stdout)

	writeFile(t, filepath.Join(dir, "lock_peek.lua"), goodScript+"local x = 1;;\n")
	code, _, stderr = command(dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "lock_peek.lua:8:1: S001 expected the end of the file, found 'local'")
	require.Contains(t, stderr, "luagen: findings: 1; nothing written")
}

// Findings name their file as the diff does, flags may follow the folder, and a name of the package's own Go is not
// taken.
func TestFindingsNameTheFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	script := filepath.Join(dir, "lock_peek.lua")
	writeFile(t, script, strings.Replace(goodScript, "local lock", "local key", 1))
	for _, args := range [][]string{{"-strict", dir}, {dir, "-check", "-strict"}} {
		code, stdout, stderr := command(args...)
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "\n"+script+":7:", args)
		require.Contains(t, stderr, "   7 | return redis.call")
	}
	writeFile(t, script, goodScript)
	code, _, stderr := command(dir)
	require.Equal(t, 0, code, stderr)
	writeFile(t, filepath.Join(dir, "own.go"), "package locks\n\ntype LockPeekParams struct{}\n")
	code, _, stderr = command(dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr,
		script+":1:1: H010 the script makes the Go name LockPeekParams, which is declared in own.go\n")
	require.Contains(t, stderr, "= rename one of them; ---@script Name sets another Go name")
}

func TestCheckOfFragments(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	script, part := filepath.Join(dir, "lock_peek.lua"), filepath.Join(dir, "src", "part", "exists.lua")
	writeFile(t, filepath.Join(dir, "src", "lock_peek.lua"),
		strings.Replace(goodScript, "return", "--< part/exists.lua\nreturn", 1))
	writeFile(t, part, "local n = 1\n")
	code, _, stderr := command(dir)
	require.Equal(t, 0, code, stderr)
	code, stdout, stderr := command("-check", dir)
	require.Equal(t, 0, code)
	require.Empty(t, stdout+stderr)

	writeFile(t, part, "local n = 2\n")
	before, err := os.ReadFile(script)
	require.NoError(t, err)
	code, stdout, stderr = command("-check", dir)
	require.Equal(t, 1, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "-local n = 1\n+local n = 2\n")
	after, err := os.ReadFile(script)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "nothing is written")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	code, stdout, _ := command("-h")
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "examples:")
	for _, args := range [][]string{{"-what"}, {"a", "b"}, {"-out", "x", "dir"}, {"-scripts", "x", "dir"}} {
		code, _, stderr := command(args...)
		require.Equal(t, 2, code, "%v", args)
		require.Contains(t, stderr, "usage: luagen")
	}
	for word, want := range map[string]string{
		"vett": "no folder and no verb \"vett\": the nearest verb is vet",
		"help": "verbs are cover, doc, editor, fix, init, mutate, prove, trace, vet",
	} {
		code, _, stderr := command(word, "a")
		require.Equal(t, 2, code)
		require.Contains(t, stderr, want)
	}
	code, stdout, _ = command("help")
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "examples:")
	code, stdout, _ = command("help", "vet")
	require.Equal(t, 0, code)
	require.Contains(t, stdout, "usage: luagen vet")
	code, stdout, stderr := command("init", "-what")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Equal(t,
		"luagen init: flag provided but not defined: -what\nusage: luagen init [-w] FILE...\nmore:  luagen init -h\n",
		stderr)
	_, _, stderr = command("-what")
	require.Equal(t, "luagen: flag provided but not defined: -what\n"+
		"usage: luagen [-check] [-strict] [-interface] [-target names] [-pkg name] [dir]\nmore:  luagen -h\n", stderr)
	for want, args := range map[string][]string{
		"the verb vet comes first, its flags behind it": {"-strict", "vet"},
		"\"foo\" is not a target: targets are ":         {"-target", "foo"},
		"-pkg: \"1x\" is not a package name":            {"-pkg", "1x"},
		"luagen vet: -target: \"\" is not a target":     {"vet", "-target", "redis7,", "."},
	} {
		code, _, stderr := command(args...)
		require.Equal(t, 2, code, args)
		require.Contains(t, stderr, want)
	}
	dir := t.TempDir()
	code, _, stderr = command(dir, "-check", dir)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "there are 2 folders: name one folder; run luagen once for each")
	code, _, stderr = command("./...")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "./... is no folder: name one folder")
	code, _, stderr = command(dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no .lua files in")
	code, _, stderr = command("init", dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is a folder: name its files, "+filepath.Join(dir, "*.lua"))
}

// Flags mean the same before and behind the files, and a flag without its other half is no run that found nothing.
func TestFlagsBehindFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "lock_peek.lua"), goodScript)
	file := filepath.Join(dir, "lock_peek.lua")
	for _, args := range [][]string{
		{"vet", dir, "-format", "json"}, {"doc", file, "-title", "T"}, {"doc", "-o", filepath.Join(dir, "s.md"), dir},
		{"doc", dir, "-check", "-o", filepath.Join(dir, "s.md")}, {"fix", file, "-w"},
	} {
		code, _, stderr := command(args...)
		require.Equal(t, 0, code, "%v: %s", args, stderr)
	}
	for _, args := range [][]string{
		{"doc", "-check", dir}, {"doc", dir, "-check"}, {"editor", "-check"}, {"editor", dir}, {"vet", dir, "-nosuch"},
		{"prove", dir, "-n", "0"}, {"init", file, "-nosuch"}, {"vet", "-strict"},
	} {
		code, _, stderr := command(args...)
		require.Equal(t, 2, code, "%v", args)
		require.Contains(t, stderr, "usage: luagen "+args[0])
	}
}

func TestPackageFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "lock_peek.lua"), goodScript)
	code, _, stderr := command(dir)
	require.Equal(t, 1, code, "a folder named by a number gives no package name")
	require.Contains(t, stderr, "give one with -pkg")
	code, _, stderr = command("-pkg", "locks", dir)
	require.Equal(t, 0, code, stderr)
}

// The verbs take files, the generator a folder.
func TestAFileInPlaceOfAFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks", "lock_peek.lua")
	writeFile(t, file, goodScript)
	code, _, stderr := command("-check", file)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "luagen: "+file+" is a file: name its folder, "+filepath.Dir(file)+
		"\nusage: luagen [-check]")
}
