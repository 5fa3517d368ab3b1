package web_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A screen reader finds the content of each page by its heading, and a column by its header: no other role replaces a
// heading, and no header is empty.
func TestEachPageHasOneHeading(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("page/*.html")
	require.NoError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.NotRegexp(t, `<h[1-6][^>]* role=`, string(text), page)
		require.NotContains(t, string(text), "<th></th>", page)
		if name := filepath.Base(page); name != "layout.html" && name != "parts.html" {
			require.Regexp(t, `^{{define "main"}}[^<]*(<p class="path">.*\n)?<h1[ >]`, string(text), page)
		}
	}
}
