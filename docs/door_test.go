package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "github.com/luatomic/luatomic"

// A program has one name for a thing: it takes it from the root, or from the package that the thing is in.
func TestAProgramUsesOneDoor(t *testing.T) {
	t.Parallel()
	doors := shortNames(t)
	require.Equal(t, "queue", doors["QueueOptions"])
	require.Equal(t, "lock", doors["NewLocker"])
	require.Equal(t, "rpc", doors["Method"])
	programs := 0
	hold := func(of string, files ...*ast.File) {
		programs++
		names := usedNames(files...)
		for _, name := range names["luatomic"] {
			domain := doors[name]
			require.Empty(t, names[domain], "%s uses luatomic.%s and the names of package %s; use one of them",
				of, name, domain)
		}
	}
	for _, page := range append(pages(t), "../queue/doc.go", "../lock/doc.go", "../rpc/doc.go") {
		for _, block := range blocks(t, page) {
			if text, ok := snippet(t, page, block); ok {
				hold(page, parsed(t, page, text))
			} else if strings.HasPrefix(block, "package ") {
				hold(page, parsed(t, page, block))
			}
		}
	}
	for _, pattern := range []string{"../examples/*/*.go", "../example_*_test.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		folders := map[string][]*ast.File{}
		for _, path := range found {
			folders[filepath.Dir(path)] = append(folders[filepath.Dir(path)], parsed(t, path, read(t, path)))
		}
		for folder, files := range folders {
			hold(folder, files...)
		}
	}
	require.Greater(t, programs, 25)
}

func parsed(t *testing.T, name, text string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	require.NoError(t, err)
	return file
}

// shortNames are the names of the root for what a package has, with that package.
func shortNames(t *testing.T) map[string]string {
	t.Helper()
	doors := make(map[string]string)
	for _, path := range []string{"../atomic.go", "../delayed.go", "../locks.go", "../rpc.go"} {
		for _, decl := range parsed(t, path, read(t, path)).Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				note(doors, d.Name.Name, d.Body)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						note(doors, s.Name.Name, s.Type)
					case *ast.ValueSpec:
						note(doors, s.Names[0].Name, s)
					}
				}
			}
		}
	}
	return doors
}

// note finds the package of what the name stands for.
func note(doors map[string]string, name string, node ast.Node) {
	ast.Inspect(node, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && doors[name] == "" {
				doors[name] = x.Name
			}
		}
		return true
	})
}

// usedNames are the names that a program takes from each package of the library, by the last part of its path.
func usedNames(files ...*ast.File) map[string][]string {
	names := make(map[string][]string)
	for _, file := range files {
		imports := make(map[string]string)
		for _, spec := range file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if path == root || slices.Contains([]string{"queue", "lock", "rpc"}, strings.TrimPrefix(path, root+"/")) {
				imports[filepath.Base(path)] = path
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && imports[x.Name] != "" {
					names[x.Name] = append(names[x.Name], s.Sel.Name)
				}
			}
			return true
		})
	}
	return names
}
