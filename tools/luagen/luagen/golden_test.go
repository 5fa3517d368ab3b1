package luagen_test

import (
	"flag"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// A case is a folder of testdata. Its .lua files stand in it (one package) or in its folder scripts (two packages).
// The outcome is want.err, or the generated files in want.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, dir := range caseDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			got := generateCase(t, dir)
			if *update {
				writeGolden(t, dir, got)
			}
			require.Equal(t, readGolden(t, dir), got)
		})
	}
}

func caseDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Base(dir) == "fuzz" })
	require.NotEmpty(t, dirs)
	return dirs
}

// generateCase runs luagen on a copy and returns the outcome, by path below the case's folder.
func generateCase(t *testing.T, dir string) map[string]string {
	t.Helper()
	cfg := copyCase(t, dir)
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	if len(res.Found) > 0 {
		require.Empty(t, res.Changes)
		return map[string]string{"want.err": report(res, res.Found)}
	}
	got := map[string]string{}
	for _, f := range res.Changes {
		if strings.HasSuffix(f.Path, ".lua") {
			got["want/"+filepath.Base(f.Path)] = string(f.Text)
			continue
		}
		_, err := parser.ParseFile(token.NewFileSet(), f.Path, f.Text, parser.ParseComments)
		require.NoError(t, err)
		got["want/"+filepath.Base(f.Path)] = string(f.Text)
	}
	return got
}

func report(res luagen.Result, found luagen.Diagnostics) string {
	var text strings.Builder
	for _, d := range found {
		text.WriteString(d.Format(res.Sources[d.File]) + "\n")
	}
	return text.String()
}

func copyCase(t *testing.T, dir string) luagen.Config {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module example.com/app\n"), 0o644))
	from, scripts := dir, filepath.Join(root, "gen")
	out := scripts
	if _, err := os.Stat(filepath.Join(dir, "scripts")); err == nil {
		from, scripts = filepath.Join(dir, "scripts"), filepath.Join(root, "scripts")
	}
	require.NoError(t, os.CopyFS(scripts, os.DirFS(from)))
	cfg := luagen.Config{Scripts: scripts, Out: out, Strict: true}
	cfg.Calls = filepath.Base(dir) == "tied" || filepath.Base(dir) == "apart"
	if filepath.Base(dir) == "P002" {
		cfg.Targets = luagen.TargetNames()
	}
	return cfg
}

func readGolden(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "want", "*.go"))
	require.NoError(t, err)
	scripts, err := filepath.Glob(filepath.Join(dir, "want", "*.lua"))
	require.NoError(t, err)
	paths = append(paths, scripts...)
	if _, err := os.Stat(filepath.Join(dir, "want.err")); err == nil {
		paths = append(paths, filepath.Join(dir, "want.err"))
	}
	want := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		rel, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		want[filepath.ToSlash(rel)] = string(text)
	}
	return want
}

func writeGolden(t *testing.T, dir string, got map[string]string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "want")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "want.err")))
	for rel, text := range got {
		path := filepath.Join(dir, filepath.FromSlash(rel))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// ruleIDs finds the rules in the source: every one needs a case and a place in the documents.
func ruleIDs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	seen := map[string]bool{}
	var ids []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`"([A-Z]\d{3})"`).FindAllStringSubmatch(string(text), -1) {
			if !seen[m[1]] {
				seen[m[1]] = true
				ids = append(ids, m[1])
			}
		}
	}
	require.Greater(t, len(ids), 30)
	return ids
}

func TestEveryRuleHasACase(t *testing.T) {
	t.Parallel()
	for _, id := range ruleIDs(t) {
		want, err := os.ReadFile(filepath.Join("testdata", id, "want.err"))
		require.NoError(t, err, "rule %s has no case", id)
		require.Contains(t, string(want), ": "+id+" ")
	}
}

func TestEveryRuleIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/luagen.md")
	require.NoError(t, err)
	for _, id := range ruleIDs(t) {
		require.Contains(t, string(text), "| "+id+" |")
	}
}
