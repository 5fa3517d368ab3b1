package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// The guarded script in the guide generates, and its body stands in the line that the guide shows.
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
	out, err := luagen.Generate(luagen.Config{Scripts: dir, Out: dir, Package: "stock"})
	require.NoError(t, err)
	require.Empty(t, out.Found)
	require.Len(t, out.Changes, 2)
	require.Equal(t, filepath.Join(dir, "guarded", "restock.lua"), out.Changes[0].Path)
	lines := strings.Split(string(out.Changes[0].Text), "\n")
	require.Contains(t, lines[37-1], "redis.call('SET'")
	require.Contains(t, string(out.Changes[1].Text), "const RestockGuardedSHA = ")
}
