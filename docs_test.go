package luatomic_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every promise names a test; each of those names must be one.
func TestDocsNameRealTests(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	}))
	names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, doc := range append(docs, "README.md") {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		found := names.FindAllStringSubmatch(string(text), -1)
		if doc == "README.md" || doc == "docs/guarantees.md" {
			require.NotEmpty(t, found, doc)
		}
		for _, m := range found {
			is := strings.Contains(source.String(), "func "+m[1]+"(t *testing.T)")
			require.True(t, is, "%s names %s, which is no test", doc, m[1])
		}
	}
}

// The program in the README is the Example that runs.
func TestReadmeProgramIsTheExample(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	program, _, _ := strings.Cut(after, "```")
	lines := strings.Split(strings.TrimSpace(program), "\n")
	require.Contains(t, lines[0], "redis.NewClient(")
	for _, line := range lines[1:] {
		require.Contains(t, string(example), strings.TrimSpace(line))
	}
}
