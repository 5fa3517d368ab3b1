package luatomic_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A local variable, a parameter or a result never has the name of a package that its file imports: a reader takes the
// one for the other.
func TestNoLocalVariableHidesAPackage(t *testing.T) {
	t.Parallel()
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		files++
		packages := importNames(file)
		ast.Inspect(file, func(n ast.Node) bool {
			for _, id := range variables(n) {
				assert.False(t, packages[id.Name] && id.Name != "_", "%s: %s is a package of this file",
					set.Position(id.Pos()), id.Name)
			}
			return true
		})
		return nil
	}))
	require.Greater(t, files, 500)
}

// importNames are the names by which a file uses packages.
func importNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, i := range file.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(from)
		if len(name) == 2 && name[0] == 'v' { // a version
			name = path.Base(path.Dir(from))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}

// variables are those that a node declares, those of a whole file among them.
func variables(n ast.Node) (all []*ast.Ident) {
	fields := func(list *ast.FieldList) {
		if list != nil {
			for _, f := range list.List {
				all = append(all, f.Names...)
			}
		}
	}
	defined := func(how token.Token, names ...ast.Expr) {
		for _, n := range names {
			if name, ok := n.(*ast.Ident); ok && how == token.DEFINE {
				all = append(all, name)
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		defined(n.Tok, n.Lhs...)
	case *ast.RangeStmt:
		defined(n.Tok, n.Key, n.Value)
	case *ast.ValueSpec:
		all = append(all, n.Names...)
	case *ast.FuncDecl:
		fields(n.Recv)
	case *ast.FuncType:
		fields(n.Params)
		fields(n.Results)
	}
	return all
}
