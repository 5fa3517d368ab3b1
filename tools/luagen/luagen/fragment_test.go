package luagen_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/stretchr/testify/require"
)

const fragmentScript = `--- %s says what time it is.
---@readonly
---@key lock
---@reply (there bool, now int)

local lock = KEYS[1]
--< part/now.lua
-->
return {redis.call('EXISTS', lock), tonumber(now)}
`

const nowPart = "local time = redis.call('TIME')\nlocal now = time[1]\n"

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestFragmentStandsInTheScriptThatRuns(t *testing.T) {
	t.Parallel()
	for name, cfg := range places(t, map[string]string{
		"scripts/a_lock.lua":   fmt.Sprintf(fragmentScript, "ALock"),
		"scripts/b_lock.lua":   fmt.Sprintf(fragmentScript, "BLock"),
		"scripts/part/now.lua": nowPart,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script, part := filepath.Join(cfg.Scripts, "a_lock.lua"), filepath.Join(cfg.Scripts, "part", "now.lua")
			require.Subset(t, run(t, cfg), []string{"a_lock.lua", "b_lock.lua"})
			text := readFile(t, script)
			require.Equal(t, strings.Replace(fmt.Sprintf(fragmentScript, "ALock"), "-->\n", nowPart+"-->\n", 1), text)
			code := readFile(t, filepath.Join(cfg.Out, "a_lock.lua.go"))
			require.Contains(t, code, digest(text), "the digest is that of the file")
			require.NoFileExists(t, filepath.Join(cfg.Out, "now.lua.go"), "a fragment is no script")
			require.Empty(t, run(t, cfg))

			write(t, part, nowPart+"now = now * 1000\n")
			all := []string{"a_lock.lua", "b_lock.lua", "a_lock.lua.go", "b_lock.lua.go"}
			require.Equal(t, all, run(t, cfg), "all that have it")
			require.Contains(t, readFile(t, script), "now = now * 1000\n-->\n")

			write(t, part, "")
			res, err := luagen.Generate(cfg)
			require.NoError(t, err)
			require.Contains(t, res.Found.Error(), "a_lock.lua:12:46: G002 unknown global now",
				"placed in the text that is")
			require.Equal(t, []string{"a_lock.lua:8:1", "b_lock.lua:8:1"}, beginnings(res.Drift))
			require.Equal(t, strings.Replace(text, "-->\n", "now = now * 1000\n-->\n", 1), readFile(t, script))
		})
	}
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func beginnings(found luagen.Diagnostics) []string {
	var out []string
	for _, d := range found {
		out = append(out, fmt.Sprintf("%s:%d:%d", d.File, d.Pos.Line, d.Pos.Col))
	}
	return out
}

// A fault in a fragment is found once, in the fragment, however far the script on the disk is behind.
func TestFaultInAFragmentIsPlacedThere(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{
		"scripts/a_lock.lua":   fmt.Sprintf(fragmentScript, "ALock"),
		"scripts/b_lock.lua":   fmt.Sprintf(fragmentScript, "BLock"),
		"scripts/part/now.lua": nowPart + "hour = now / 3600\n",
	})
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.Equal(t, "part/now.lua:3:1: G001 write to the global hour (in a_lock.lua)", res.Found.Error())
	require.Contains(t, res.Found[0].Format(res.Sources[res.Found[0].File]), "   3 | hour = now / 3600\n     | ^^^^\n")
	require.Empty(t, res.Changes)
}

func TestFragmentInAScriptWithOtherLineEnds(t *testing.T) {
	t.Parallel()
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	cfg := project(t, map[string]string{
		"scripts/a_lock.lua":   crlf(fmt.Sprintf(fragmentScript, "ALock")),
		"scripts/b_lock.lua":   fmt.Sprintf(fragmentScript, "BLock"),
		"scripts/part/now.lua": crlf(nowPart),
	})
	run(t, cfg)
	text := readFile(t, filepath.Join(cfg.Scripts, "b_lock.lua"))
	require.NotContains(t, text, "\r")
	text = crlf(strings.ReplaceAll(text, "BLock", "ALock"))
	require.Equal(t, text, readFile(t, filepath.Join(cfg.Scripts, "a_lock.lua")))
	require.Empty(t, run(t, cfg))
}

func TestScriptThatIsALinkKeepsItsText(t *testing.T) {
	t.Parallel()
	files := map[string]string{"elsewhere.lua": fmt.Sprintf(fragmentScript, "ALock"), "scripts/part/now.lua": nowPart}
	cfg := project(t, files)
	link := filepath.Join(cfg.Scripts, "a_lock.lua")
	require.NoError(t, os.Symlink(filepath.Join("..", "elsewhere.lua"), link))
	_, err := luagen.Generate(cfg)
	require.ErrorContains(t, err, fmt.Sprintf("%q is a symbolic link", link))
	require.Equal(t, fmt.Sprintf(fragmentScript, "ALock"), readFile(t, link))
}

// A user who may write to the folder must not lead the generator to other files.
func TestNothingIsWrittenThroughALink(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/a_lock.lua": fmt.Sprintf(script, "ALock"), "precious": "mine\n"})
	require.NoError(t, os.MkdirAll(cfg.Out, 0o755))
	for _, name := range []string{"a_lock.lua.go.tmp", "a_lock.lua.go"} {
		require.NoError(t, os.Symlink(filepath.Join("..", "precious"), filepath.Join(cfg.Out, name)))
	}
	_, err := luagen.Generate(cfg)
	require.ErrorContains(t, err, "is in the way", "the link leads to what luagen has not written")
	precious := filepath.Join(filepath.Dir(cfg.Out), "precious")
	text := "// Code generated by luagen from x.lua. DO NOT EDIT.\n"
	write(t, precious, text)
	_, err = luagen.Generate(cfg)
	require.ErrorContains(t, err, "made from another folder of scripts")
	text += "\nimport \"example.com/app/scripts\"\n"
	write(t, precious, text)
	run(t, cfg)
	require.Equal(t, text, readFile(t, precious))
	info, err := os.Lstat(filepath.Join(cfg.Out, "a_lock.lua.go"))
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
	left, err := filepath.Glob(filepath.Join(cfg.Out, ".luagen-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestModeOfAScriptStays(t *testing.T) {
	t.Parallel()
	files := map[string]string{"scripts/a_lock.lua": fmt.Sprintf(fragmentScript, "ALock"),
		"scripts/part/now.lua": nowPart}
	cfg := project(t, files)
	path := filepath.Join(cfg.Scripts, "a_lock.lua")
	require.NoError(t, os.Chmod(path, 0o640))
	run(t, cfg)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}
