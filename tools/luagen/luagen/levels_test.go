package luagen_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/stretchr/testify/require"
)

const warned = `--- Drop drops what the caller names.
---@contract all-or-nothing
---@arg name string

local name = ARGV[1]
redis.call('DEL', name)
`

// A warning is printed and stops nothing; under Strict it stops the run; with a reason it is not there.
func TestWarningsBlockUnderStrictAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "drop.lua"), []byte(text), 0o600))
	}
	write(warned)
	cfg := luagen.Config{Scripts: dir, Out: dir, Package: "p"}
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.Len(t, res.Found, 1)
	require.Equal(t, luagen.Warning, res.Found[0].Level())
	require.Len(t, res.Changes, 1)
	cfg.Strict = true
	res, err = luagen.Generate(cfg)
	require.NoError(t, err)
	require.Len(t, res.Found, 1)
	require.Empty(t, res.Changes)
	write(strings.Replace(warned, "---@arg", "---@allow K001 names of one node\n---@arg", 1))
	res, err = luagen.Generate(cfg)
	require.NoError(t, err)
	require.Empty(t, res.Found)
	require.Len(t, res.Changes, 1)
}

// Errors, too, can be allowed, and those of Parse.
func TestErrorsCanBeAllowed(t *testing.T) {
	t.Parallel()
	const text = `--- Go does it.
---@contract all-or-nothing
---@allow K006 one node only
---@allow C001 a command of our own
---@key a string = "a:{$x}"
---@key b string = "b:{$y}"

local a, b = KEYS[1], KEYS[2]
redis.call('OWNCMD', a, b)
`
	s, found := luagen.Parse("go.lua", text)
	require.Empty(t, found)
	require.Empty(t, luagen.Check([]*luagen.Script{s}))
	s, found = luagen.Parse("go.lua", strings.ReplaceAll(text, "---@allow", "--- no"))
	require.NotEmpty(t, found)
	require.NotEmpty(t, s)
}

// What a terminal would act on is shown, not sent.
func TestFindingsShowControlCharacters(t *testing.T) {
	t.Parallel()
	d := luagen.Diagnostic{File: "a\nb\x1b[2J.lua", Pos: luagen.Pos{Line: 1, Col: 1}, Rule: "K001", Message: "m\u202e"}
	text := d.Format("local a\x1b\u009b = 1\r\n")
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "\u202e")
	require.NotContains(t, text, "\u009b")
	require.Equal(t, 3, strings.Count(text, "\n"))
}
