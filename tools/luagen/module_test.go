package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/stretchr/testify/require"
)

const userScript = `--- Reserve takes n pieces from the stock, if there are as many.
---
---@contract all-or-nothing
---@key      stock  string = "stock:{$item}"  pieces left
---@key      log    list   = "stock:{$item}:log"
---@arg      n      int  min=1
---@args     note   (author string, text bytes)  max=10
---@reply    (left int, notes (author string, text bytes)[])
---@error    SOLD_OUT  fewer pieces are left

local stock, log = KEYS[1], KEYS[2]
local n = tonumber(ARGV[1])

redis.call('LLEN', log)
local left = tonumber(redis.call('GET', stock) or 10)
if left < n then
  return redis.error_reply('SOLD_OUT only ' .. left .. ' left')
end
redis.call('SET', stock, left - n, 'EX', 60)
local notes = {}
for i = 2, #ARGV, 2 do
  local author, text = ARGV[i], ARGV[i + 1]
  redis.call('RPUSH', log, author .. ':' .. text)
  notes[#notes + 1], notes[#notes + 2] = author, text
end
redis.call('EXPIRE', log, 60)
return {left - n, notes}
`

const guardedUserScript = `--- Restock sets the stock to n pieces.
---
---@contract all-or-nothing
---@guard    guard.lua
---@key      stock  string = "stock:{$item}"  pieces left
---@arg      n      int  min=0

local stock, n = KEYS[1], ARGV[1]
redis.call('SET', stock, n, 'EX', 60)
`

// goFlags are those of builds in a user's module. A package that takes a go-redis client is compiled with the methods
// of all its types, about 1800: without inlining this takes half the time.
const goFlags = "GOFLAGS=-mod=mod -gcflags=example.com/app/...=-l -ldflags=-w"

// goTool runs the go command in dir, without the checksum database: what it needs was loaded for this module already.
func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), goFlags, "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
	return string(out)
}

// userModule makes a module that uses this repository as its users do.
func userModule(t *testing.T) string {
	t.Helper()
	repo, err := filepath.Abs("../..")
	require.NoError(t, err)
	gomod, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	require.NoError(t, err)
	gosum, err := os.ReadFile(filepath.Join(repo, "go.sum"))
	require.NoError(t, err)
	// The requirements of the repository pin what is in the module cache.
	_, rest, ok := strings.Cut(string(gomod), "\n")
	require.True(t, ok)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/app\n"+rest+
		"\nrequire github.com/luatomic/luatomic v0.0.0\n\nreplace github.com/luatomic/luatomic => "+repo+"\n")
	writeFile(t, filepath.Join(dir, "go.sum"), string(gosum))
	return dir
}

// A user's module gets the tool, generates and vets. Its program runs the functions against a server, and sends values
// of every type there and back.
func TestInAUsersModule(t *testing.T) {
	t.Parallel()
	url := luatomictest.URL(t)
	dir := userModule(t)
	writeFile(t, filepath.Join(dir, "stock", "reserve.lua"), userScript)
	writeFile(t, filepath.Join(dir, "stock", "restock.lua"), guardedUserScript)
	guard, err := os.ReadFile("../../scripts/guard.lua")
	require.NoError(t, err)
	writeFile(t, filepath.Join(dir, "stock", "guard.lua"), string(guard))
	writeFile(t, filepath.Join(dir, "stock", "doc.go"), "package stock\n\n//go:generate go tool luagen\n")
	copyGolden(t, dir)
	require.NoError(t, os.CopyFS(filepath.Join(dir, "roundtrip"), os.DirFS("testdata/roundtrip")))

	goTool(t, dir, "generate", "./stock")
	goTool(t, dir, "vet", "./...")
	require.Empty(t, goTool(t, dir, "tool", "luagen", "-check", "stock"))
	require.Equal(t, "done\n", goTool(t, dir, "run", "./roundtrip", url, luatomictest.Namespace(t)))
}

// together are the golden cases whose functions the program of the user's module calls: one package of all costs less
// to compile.
var together = []string{"rows", "scalars", "tied", "types"}

// copyGolden writes the generated files of the golden cases into a module, with the scripts that they embed.
func copyGolden(t *testing.T, dir string) {
	t.Helper()
	wants, err := filepath.Glob("luagen/testdata/*/want")
	require.NoError(t, err)
	require.NotEmpty(t, wants)
	for _, want := range wants {
		from := filepath.Dir(want)
		to := filepath.Join(dir, filepath.Base(from))
		if slices.Contains(together, filepath.Base(from)) {
			to = filepath.Join(dir, "gen")
		}
		require.NoError(t, os.CopyFS(to, os.DirFS(want)))
		files, err := filepath.Glob(filepath.Join(from, "*.lua"))
		require.NoError(t, err)
		for _, file := range files {
			if _, err := os.Stat(filepath.Join(to, filepath.Base(file))); err == nil {
				continue // written by luagen
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			writeFile(t, filepath.Join(to, filepath.Base(file)), string(text))
		}
	}
}
