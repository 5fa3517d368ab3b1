package luagen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// calls.go comes and goes with the option, and a file of that name that luagen did not write is left alone.
func TestInterfaceIsAnOption(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/peek.lua": fmt.Sprintf(script, "Peek")})
	path := filepath.Join(cfg.Out, "calls.go")
	run(t, cfg)
	require.NoFileExists(t, path)
	cfg.Calls = true
	run(t, cfg)
	require.FileExists(t, path)
	require.Empty(t, run(t, cfg))
	cfg.Calls = false
	run(t, cfg)
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte("package gen\n"), 0o600))
	run(t, cfg)
	require.FileExists(t, path)
	cfg.Calls = true
	_, err := luagen.Generate(cfg)
	require.ErrorContains(t, err, "is in the way")
}

// A script that makes a name of calls.go is named.
func TestInterfaceNamesAreTaken(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/calls.lua": fmt.Sprintf(script, "Calls")})
	cfg.Calls = true
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.Len(t, res.Found, 1)
	require.Equal(t, "H010", res.Found[0].Rule)
	require.Empty(t, res.Changes)
}

// FakeCalls has a field TakeFunc for Take, and a method of that name for TakeFunc.
func TestInterfaceFieldsAreTaken(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{
		"scripts/take.lua": fmt.Sprintf(script, "Take"), "scripts/take_func.lua": fmt.Sprintf(script, "TakeFunc"),
	})
	run(t, cfg)
	cfg.Calls = true
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.Len(t, res.Found, 1)
	require.Equal(t, "H010", res.Found[0].Rule)
	require.Equal(t, "take_func.lua", filepath.Base(res.Found[0].File))
}

// Two folders of scripts can share a folder of Go. Where both would write one file, neither does so silently.
func TestFoldersOfScriptsDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	one := project(t, map[string]string{"scripts/take.lua": fmt.Sprintf(script, "Take"),
		"two/give.lua": fmt.Sprintf(script, "Give")})
	two := one
	two.Scripts = filepath.Join(filepath.Dir(one.Scripts), "two")
	run(t, one)
	run(t, two)
	require.Empty(t, run(t, one), "each keeps the files of the other")
	one.Calls = true
	run(t, one)
	refused := func(cfg luagen.Config, file string) {
		t.Helper()
		_, err := luagen.Generate(cfg)
		require.ErrorContains(t, err, file)
		require.ErrorContains(t, err, "made from another folder of scripts")
	}
	two.Calls = true
	refused(two, "calls.go")
	two.Calls = false
	write(t, filepath.Join(two.Scripts, "take.lua"), fmt.Sprintf(script, "Take"))
	refused(two, "take.lua.go")
}

// The shape of a call depends on M001: switched off, it would take the checks of the body with it.
func TestRuleOfMergeCannotBeSwitchedOff(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/claim.lua": `--- Claim reserves an item.
---@contract all-or-nothing
---@merge max=64
---@key   item   string = "i:{$item_id}"
---@reply int
---@allow M001 a repeat is harmless for us

local replies = {}
for i, item in ipairs(KEYS) do
  replies[i] = redis.call('INCR', item)
end
return replies
`})
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.True(t, res.Found.HasErrors())
	require.Contains(t, res.Found[0].Message+res.Found[len(res.Found)-1].Message, "M001")
	require.Empty(t, res.Changes)
}
