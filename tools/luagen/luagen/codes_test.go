package luagen_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// Package lua takes these words for the server's, also from a script that declares them.
func TestWordsThatTheRuntimeRepeatsAreReserved(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../lua/outcome.go", nil, 0)
	require.NoError(t, err)
	words := 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "temporary" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok {
				word, _ := strconv.Unquote(text.Value)
				_, found := luagen.Parse("a.lua",
					"--- A.\n---@contract all-or-nothing\n---@error "+word+"  no\n\nreturn 1\n")
				require.True(t, slices.ContainsFunc(found, func(d luagen.Diagnostic) bool {
					return d.Rule == "E002"
				}), word)
				words++
			}
			return true
		})
	}
	require.Greater(t, words, 8, "the words of temporary")
}
