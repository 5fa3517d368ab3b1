package sidekiq_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// Whoever preloads them misses none.
func TestScriptsAreThoseOfThePackage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("internal/script/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var want, got []string
	for _, f := range files {
		want = append(want, strings.TrimSuffix(filepath.Base(f), ".lua"))
	}
	for _, s := range sidekiq.Scripts() {
		got = append(got, s.Name)
	}
	require.ElementsMatch(t, want, got)
}
