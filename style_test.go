package luatomic_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file of Go has at most 600 lines. A line of it is at most 120 columns wide; a tab is four. Generated files,
// testdata and text in backquotes are exempt.
func TestGoFilesAreShortAndNarrow(t *testing.T) {
	t.Parallel()
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && path != ".") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		files++
		lines := strings.Split(strings.TrimSuffix(string(source), "\n"), "\n")
		require.LessOrEqual(t, len(lines), 600, "%s: move a part into a file of its own", path)
		quoted := backquoted(source)
		for i, line := range lines {
			width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			assert.True(t, width <= 120 || quoted[i+1], "%s:%d: %d columns, at most 120", path, i+1, width)
		}
		return nil
	}))
	require.Greater(t, files, 500)
}

// backquoted are the lines on which a text in backquotes stands, or a part of one.
func backquoted(source []byte) map[int]bool {
	var s scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	s.Init(file, source, nil, 0)
	lines := make(map[int]bool)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && text[0] == '`' {
			for line := file.Line(at); line <= file.Line(at)+strings.Count(text, "\n"); line++ {
				lines[line] = true
			}
		}
	}
}
