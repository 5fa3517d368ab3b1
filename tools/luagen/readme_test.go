package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// The script in the README generates what the README says.
func TestReadmeScriptGenerates(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(readme), "```lua\n")
	require.True(t, ok)
	script, _, _ := strings.Cut(after, "```")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spend.lua"), []byte(script), 0o600))
	out, err := luagen.Generate(luagen.Config{Scripts: dir, Out: dir, Package: "bank"})
	require.NoError(t, err)
	require.Empty(t, out.Found)
	require.Len(t, out.Changes, 1)
	require.Equal(t, "spend.lua.go", filepath.Base(out.Changes[0].Path))
	require.Contains(
		t,
		string(out.Changes[0].Text),
		"func Spend(ctx context.Context, c lua.Client, p SpendParams) (SpendResult, error)",
	)
}
