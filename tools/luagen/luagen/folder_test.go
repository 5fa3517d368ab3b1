package luagen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/stretchr/testify/require"
)

// findings generates from one script and returns what is found.
func findings(t *testing.T, name, text string) luagen.Diagnostics {
	t.Helper()
	res, err := luagen.Generate(project(t, map[string]string{"scripts/" + name: text}))
	require.NoError(t, err)
	return res.Found
}

func TestNameThatGoTakesForASystem(t *testing.T) {
	t.Parallel()
	for stem, goName := range map[string]string{"rate_windows": "RateWindows", "push_js": "PushJs",
		"a_linux_arm64": "ALinuxArm64"} {
		found := findings(t, stem+".lua", fmt.Sprintf(script, goName))
		require.Len(t, found, 1, stem)
		require.Contains(t, found[0].Error(),
			stem+".lua:1:1: H001 the file's name ends like those of Go files for one system")
	}
	for stem, goName := range map[string]string{"windows": "Windows", "rate_window": "RateWindow",
		"rate_test": "RateTest", "jobs_unix": "JobsUnix"} {
		require.Empty(t, findings(t, stem+".lua", fmt.Sprintf(script, goName)), stem)
	}
}

// Text that Lua does not run and that is no header, such as one that was commented out, is nobody's tag.
func TestTagsInsideLongTextAreNone(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(script, "ALock")
	for _, text := range []string{"\n--[[\n---@key old string\n]]\n",
		"\n--[==[\n---@readonly ]]\n---@arg n int\n]==]\n",
		"\nlocal old = [[\n---@error OLD  text\n]]\n"} {
		require.Empty(t, findings(t, "a_lock.lua", strings.Replace(good, "\n\n", "\n"+text, 1)), text)
	}
	for _, text := range []string{"\n---@key old string\n", "\n--[[\n]]\n---@arg n int\n"} {
		found := findings(t, "a_lock.lua", strings.Replace(good, "\n\n", "\n"+text, 1))
		require.Len(t, found, 1, text)
		require.Contains(t, found[0].Error(), "stands outside the header")
	}
}

// The Go would not compile: go:embed refuses the names of devices, and links.
func TestFilesThatGoDoesNotEmbed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"aux", "con", "nul", "prn", "com1", "lpt9"} {
		found := findings(t, name+".lua", fmt.Sprintf(script, strings.ToUpper(name[:1])+name[1:]))
		require.Len(t, found, 1, name)
		require.Contains(t, found[0].Error(), name+".lua:1:1: H001 the file's name is that of a device of Windows")
	}
	require.Empty(t, findings(t, "com.lua", fmt.Sprintf(script, "Com")))
	cfg := project(t, map[string]string{"elsewhere.lua": fmt.Sprintf(script, "ALock"),
		"scripts/b_lock.lua": fmt.Sprintf(script, "BLock")})
	link := filepath.Join(cfg.Scripts, "a_lock.lua")
	require.NoError(t, os.Symlink(filepath.Join("..", "elsewhere.lua"), link))
	_, err := luagen.Generate(cfg)
	require.ErrorContains(t, err,
		fmt.Sprintf("%q is a symbolic link, and go:embed takes none: put the file itself there", link))
}

func TestHeaderThatIsNoText(t *testing.T) {
	t.Parallel()
	good := fmt.Sprintf(script, "ALock")
	for odd, want := range map[string]string{
		strings.Replace(good, "reads", "caf\xe9", 1):      `a_lock.lua:1:14: H001 "\xe9" in the header`,
		strings.Replace(good, "hash", "hash  a\x00b", 1):  `a_lock.lua:3:22: H001 "\x00" in the header`,
		strings.Replace(good, "a key", "a\rkey", 1):       `a_lock.lua:1:18: H001 "\r" in the header`,
		strings.Replace(good, "a key", "a \uFEFF key", 1): `a_lock.lua:1:19: H001 "\ufeff" in the header`,
		"\uFEFF" + good: "a_lock.lua:1:1: S001 the file starts with a byte order mark",
		strings.Replace(good, "lock  hash", "end  hash", 1): "a_lock.lua:3:9: H003 end is a word of Lua",
	} {
		found := findings(t, "a_lock.lua", odd)
		require.NotEmpty(t, found, want)
		require.Contains(t, found.Error(), want)
	}
	require.Empty(t, findings(t, "a_lock.lua", strings.ReplaceAll(strings.Replace(good, "reads", "café", 1),
		"\n", "\r\n")))
}

func TestTwoFoldersOfScriptsForOneFolderOfGo(t *testing.T) {
	t.Parallel()
	one := project(t, map[string]string{
		"scripts/a_lock.lua": fmt.Sprintf(script, "ALock"), "scripts/b_lock.lua": fmt.Sprintf(script, "BLock"),
		"more/scripts/c_lock.lua": fmt.Sprintf(script, "CLock"),
	})
	two := luagen.Config{Scripts: filepath.Join(filepath.Dir(one.Scripts), "more", "scripts"), Out: one.Out}
	run(t, one)
	require.Equal(t, []string{"c_lock.lua", "c_lock.lua.go"}, run(t, two), "nothing of the other folder")
	require.Empty(t, run(t, one))
	require.NoError(t, os.Remove(filepath.Join(one.Scripts, "b_lock.lua")))
	require.Equal(t, []string{"b_lock.lua.go", "b_lock.lua"}, run(t, one))
	require.NoFileExists(t, filepath.Join(one.Out, "b_lock.lua.go"))
	require.FileExists(t, filepath.Join(one.Out, "c_lock.lua.go"))
}

func TestFolderWhoseNameIsAPattern(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "app[1]", "locks")
	write(t, filepath.Join(dir, "lock.go"), "package locking\n")
	write(t, filepath.Join(dir, "a_lock.lua"), fmt.Sprintf(script, "ALock"))
	cfg := luagen.Config{Scripts: dir, Out: dir}
	run(t, cfg)
	text, err := os.ReadFile(filepath.Join(dir, "a_lock.lua.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\npackage locking\n")
	require.NoError(t, os.Rename(filepath.Join(dir, "a_lock.lua"), filepath.Join(dir, "b_lock.lua")))
	write(t, filepath.Join(dir, "b_lock.lua"), fmt.Sprintf(script, "BLock"))
	require.Equal(t, []string{"b_lock.lua.go", "a_lock.lua.go"}, run(t, cfg))
	require.NoFileExists(t, filepath.Join(dir, "a_lock.lua.go"))
}

func TestPackageNameOfWhatIsBuiltHere(t *testing.T) {
	t.Parallel()
	program := "//go:build ignore\n\npackage main\n\nfunc main() {}\n"
	for want, files := range map[string]map[string]string{
		"locking":   {"gen/a.go": program, "gen/lock.go": "package locking\n"},
		"gen":       {"gen/a.go": program},
		"elsewhere": {"gen/a.go": program, "gen/b.go": "//go:build nowhere\n\npackage elsewhere\n"},
		"tested":    {"gen/a.go": program, "gen/b_test.go": "package tested_test\n"},
		"inside":    {"gen/a_test.go": "package inside\n"},
		"built":     {"gen/a_test.go": "package other_test\n", "gen/b.go": "package built\n"},
	} {
		files["scripts/a_lock.lua"] = fmt.Sprintf(script, "ALock")
		cfg := project(t, files)
		run(t, cfg)
		text, err := os.ReadFile(filepath.Join(cfg.Out, "a_lock.lua.go"))
		require.NoError(t, err)
		require.Contains(t, string(text), "\npackage "+want+"\n")
	}
}

func TestFilesOfEditorsAreNoScripts(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/a_lock.lua": fmt.Sprintf(script, "ALock"),
		"scripts/._a_lock.lua": "\x00\x05"})
	require.NoError(t, os.Symlink("nowhere", filepath.Join(cfg.Scripts, ".#a_lock.lua")))
	require.Equal(t, []string{"a_lock.lua", "a_lock.lua.go"}, run(t, cfg))
}

// Git may check out what was generated with other line ends. That is no change; another one still is, and a file whose
// script is gone goes.
func TestGeneratedFilesWithOtherLineEnds(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/a_lock.lua": fmt.Sprintf(script, "ALock")})
	run(t, cfg)
	path := filepath.Join(cfg.Out, "a_lock.lua.go")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	write(t, path, strings.ReplaceAll(string(text), "\n", "\r\n"))
	require.Empty(t, run(t, cfg))
	write(t, path, strings.ReplaceAll(string(text)+"// more\n", "\n", "\r\n"))
	require.Equal(t, []string{"a_lock.lua.go"}, run(t, cfg))
	require.NoError(t, os.Remove(filepath.Join(cfg.Scripts, "a_lock.lua")))
	write(t, filepath.Join(cfg.Scripts, "b_lock.lua"), fmt.Sprintf(script, "BLock"))
	write(t, path, strings.ReplaceAll(string(text), "\n", "\r\n"))
	require.Contains(t, run(t, cfg), "a_lock.lua.go")
	require.NoFileExists(t, path)
}

// The element of a group and a row of the same name are one type, wherever the row stands in the reply.
func TestRowsOfTheNameOfAGroupBehindOthers(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"(jobs (id string)[], gone (id string)[])",
		"(gone (id string)[], jobs (id string)[])"} {
		require.Empty(t, findings(t, "swap.lua", `--- Swap gives back what it gets.
---@readonly
---@key   queue  list
---@args  job    (id string)  max=10
---@reply `+reply+`

local queue = KEYS[1]
local jobs = {}
for i = 1, #ARGV do
  jobs[i] = ARGV[i]
end
return {jobs, redis.call('LRANGE', queue, 0, 9)}
`), reply)
	}
}

func TestProtectedCallsThatAreTested(t *testing.T) {
	t.Parallel()
	for _, test := range []string{"if ok and lock then return end", "if ok == false then return end",
		"while ok do break end", "repeat until ok", "local n = ok and 1 or 0 redis.call('SET', lock, n)"} {
		require.Empty(t, findings(t, "tried.lua",
			"--- Tried tests.\n---@contract dup-only\n---@key lock\n\nlocal lock = KEYS[1]\nlocal ok = "+
				"pcall(redis.call, 'DEL', lock)\n"+test+"\n"), test)
	}
}

// Valkey has the table redis under the name server, too: what it runs is held against the header all the same. What is
// run by way of _G is seen by no rule, and told.
func TestServerIsRedisUnderAnotherName(t *testing.T) {
	t.Parallel()
	for body, rule := range map[string]string{
		"server.call('DEL', lock)\nreturn 1\n":                    "C005",
		"local s = server\ns.call('DEL', lock)\nreturn 1\n":       "C005",
		"local call = server.call\ncall('DEL', lock)\nreturn 1\n": "C005",
		"server.pcall('EXPIRES', lock)\nreturn 1\n":               "C001",
		"return server.call('GET', lock)\n":                       "K007",
		"server.setresp(3)\nreturn redis.call('EXISTS', lock)\n":  "R005",
		"_G.redis.call('DEL', lock)\nreturn 1\n":                  "C003",
		"rawget(_G, 'redis').call('DEL', lock)\nreturn 1\n":       "C003",
		"local t = {server}\nreturn #t\n":                         "C003",
	} {
		text := "--- ALock reads a key.\n---@readonly\n---@key lock  hash\n---@reply int\n\nlocal lock = KEYS[1]\n" +
			body
		found := luagen.Vet("a_lock.lua", text, "valkey9")
		require.True(t, slices.ContainsFunc(found, func(d luagen.Diagnostic) bool { return d.Rule == rule }), "%s%v",
			body, found)
	}
}
