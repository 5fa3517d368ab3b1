package docs_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// imported are the packages that the Go of the pages names. The modules otel and prometheus are not built here.
var imported = map[string]string{
	"actionhero": "compat/actionhero", "limit": "limit", "lock": "lock", "lua": "lua", "luatomic": "",
	"luatomictest": "luatomictest",
	"observe":      "observe", "plainlock": "compat/plainlock", "queue": "queue", "quorum": "lock/quorum",
	"redisinaction": "compat/redisinaction", "rpc": "rpc", "sidekiq": "compat/sidekiq", "web": "web",
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "json": "encoding/json", "log": "log",
	"redis": "github.com/redis/go-redis/v9", "slog": "log/slog", "strconv": "strconv", "time": "time",
	"otel": "-", "prometheus": "-", "telemetry": "-", "metrics": "-",
}

// leftOut are the errors of Go that leaves out its surroundings: names of the reader's own, and what follows from them.
var leftOut = regexp.MustCompile(`: (undefined: \w+|declared and not used: \w+|missing return|no new variables on left side of :=|` +
	`not enough return values\n?.*|too many return values\n?.*|"\S+" imported and not used)$`)

// What the Go of the pages calls is there, with those arguments, fields and results.
func TestGoOfThePagesCompiles(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir, n := t.TempDir(), 0
	overlay := map[string]map[string]string{"Replace": {}}
	args := []string{"build", "-gcflags=-e", "-o", os.DevNull, "-overlay", filepath.Join(dir, "overlay.json")}
	for _, page := range append(pages(t), "../queue/doc.go", "../lock/doc.go", "../rpc/doc.go", "../limit/doc.go") {
		for _, block := range blocks(t, page) {
			text, ok := snippet(t, page, block)
			if !ok {
				continue
			}
			n++
			name := fmt.Sprintf("snippet%d", n)
			source := filepath.Join(dir, name+".go")
			require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
			overlay["Replace"][filepath.Join(root, "docs", name, "snippet.go")] = source
			args = append(args, "./docs/"+name)
		}
	}
	require.Greater(t, n, 15)
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600))
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	said, _ := build.CombinedOutput() // all have errors of what they leave out
	require.Contains(t, string(said), "# github.com/luatomic/luatomic/docs/snippet")
	for line := range strings.Lines(string(said)) {
		line = strings.TrimSuffix(line, "\n")
		wrong := !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "\t") && !leftOut.MatchString(line)
		require.False(t, wrong, "%s\n%s", line, said)
	}
}

// blocks are the pieces of Go of a page. That of a package's comment is how it is used, before all else.
func blocks(t *testing.T, page string) (all []string) {
	t.Helper()
	if filepath.Ext(page) != ".go" {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			all = append(all, block[1])
		}
		return all
	}
	_, rest, _ := strings.Cut(read(t, page), "\n// # ")
	use, _, _ := strings.Cut(rest, "\n// # ")
	require.True(t, strings.HasPrefix(use, "Use\n"), "%s begins with %q", page, rest[:20])
	code := regexp.MustCompile(`(?m)^//\t?`).ReplaceAllString(strings.TrimPrefix(use, "Use\n"), "")
	return []string{code}
}

// snippet is a file of the Go of a page: a function, unless it is a file already. It reports false for another module.
func snippet(t *testing.T, page, block string) (text string, ok bool) {
	t.Helper()
	if strings.HasPrefix(block, "package ") || strings.HasPrefix(page, "luagen") {
		return "", false // TestReadmeProgramsRun has it, or a test of luagen
	}
	block = strings.ReplaceAll(block, "{ ... }", "{ panic(0) }")
	body := fmt.Sprintf("package snippet\n\nfunc _() error {\n//line %s:1\n%s}\n", filepath.Base(page), block)
	file, err := parser.ParseFile(token.NewFileSet(), page, body, 0)
	require.NoError(t, err, "%s\n%s", page, block)
	var used []string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, isSelector := n.(*ast.SelectorExpr); isSelector {
			if x, isName := s.X.(*ast.Ident); isName && imported[x.Name] != "" || x != nil && x.Name == "luatomic" {
				used = append(used, x.Name)
			}
		}
		return true
	})
	slices.Sort(used)
	imports := ""
	for _, name := range slices.Compact(used) {
		path := imported[name]
		switch {
		case path == "-":
			return "", false
		case path == "" || isFolder("../"+path):
			path = strings.TrimSuffix("github.com/luatomic/luatomic/"+path, "/")
		}
		imports += fmt.Sprintf("import %q\n", path)
	}
	return strings.Replace(body, "package snippet\n", "package snippet\n"+imports, 1), true
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
