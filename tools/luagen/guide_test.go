package main

import (
	"crypto/sha1"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// The guarded script in the guide generates with the guard of this module, and its body stands in the line that the
// guide shows.
func TestGuardedScriptOfTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/luagen.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(guide), "## Guarded by a lease")
	require.True(t, ok)
	_, after, ok = strings.Cut(after, "```lua\n")
	require.True(t, ok)
	script, _, _ := strings.Cut(after, "```")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "restock.lua"), []byte(script), 0o600))
	guard, err := os.ReadFile("../../scripts/guard.lua")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "guard.lua"), guard, 0o600))
	out, err := luagen.Generate(luagen.Config{Scripts: dir, Out: dir, Package: "stock"})
	require.NoError(t, err)
	require.Empty(t, out.Found)
	require.Len(t, out.Changes, 2)
	require.Equal(t, filepath.Join(dir, "guard.lua.go"), out.Changes[0].Path)
	lines := strings.Split(script, "\n")
	require.Contains(t, lines[9-1], "redis.call('SET'")
	require.Contains(
		t,
		string(out.Changes[1].Text),
		fmt.Sprintf("const RestockGuardedSHA = \"%x\"", sha1.Sum([]byte(string(guard)+script))),
	)
}
