package luagen

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// checkHandwritten reports the Go names of the generated files that other files of their package declare, too, and once
// for a package those that they import: it would not compile. The others are hand-written, or made from another folder
// of scripts.
func checkHandwritten(files []File, scripts []*Script, t target) Diagnostics {
	var diags Diagnostics
	declared := map[string]map[string]string{} // by folder and package
	for _, f := range files {
		made := parsedGo(f.Path, f.Text)
		pkg, names := topNames(made)
		in := filepath.Dir(f.Path) + pkg
		if declared[in] == nil {
			declared[in] = handwritten(filepath.Dir(f.Path), pkg, files, t)
		}
		for _, name := range names {
			if file := declared[in][name]; file != "" {
				diags = append(diags, clash(filepath.Base(f.Path), name, file, scripts))
			}
		}
		for _, name := range imported(made) {
			if file := declared[in][name]; file != "" {
				diags = append(diags, Diagnostic{scripts[0].File, Pos{1, 1}, 1, "H010",
					"generated Go imports " + name + ", which is declared in " + file, "rename it in " + file})
				delete(declared[in], name)
			}
		}
	}
	return diags
}

// imported lists the names that a file gives the packages that it imports.
func imported(f *ast.File) (names []string) {
	for _, spec := range f.Imports {
		name := path.Base(strings.Trim(spec.Path.Value, `"`))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name != "_" {
			names = append(names, name)
		}
	}
	return names
}

// clash is the finding of a name that a generated file and a hand-written one declare.
func clash(generatedFile, name, in string, scripts []*Script) Diagnostic {
	file, ok := strings.CutSuffix(generatedFile, ".lua.go")
	d := Diagnostic{file + ".lua", Pos{1, 1}, 1, "H010",
		"the script makes the Go name " + name + ", which is declared in " + in,
		"rename one of them; ---@script Name sets another Go name"}
	if ok {
		return d
	}
	d.File = scripts[0].File
	if i := slices.IndexFunc(scripts, func(s *Script) bool { return s.GoName == name }); i >= 0 {
		d.File = scripts[i].File
	} else if generatedFile == callsFile {
		d.Message = fmt.Sprintf("-interface makes the Go name %s, which is declared in %s", name, in)
		d.Cure = "rename it, or do without -interface"
	}
	return d
}

// handwritten maps the top-level names of a package to the files that declare them, those of this run aside.
func handwritten(dir, pkg string, made []File, t target) map[string]string {
	declared := map[string]string{}
	for _, file := range filesIn(dir, ".go") {
		text, err := os.ReadFile(file)
		if err != nil || slices.ContainsFunc(made, func(f File) bool { return f.Path == file }) ||
			isGenerated(string(text)) && t.owns(file, string(text)) {
			continue
		}
		if of, names := topNames(parsedGo(file, text)); of == pkg {
			for _, name := range names {
				declared[name] = filepath.Base(file)
			}
		}
	}
	return declared
}

// parsedGo reads a Go file. Of one that does not parse it has what it read.
func parsedGo(file string, text []byte) *ast.File {
	f, _ := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if f == nil || f.Name == nil {
		return &ast.File{Name: &ast.Ident{}}
	}
	return f
}

// topNames lists the names that a Go file declares for its package.
func topNames(f *ast.File) (pkg string, names []string) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				names = append(names, decl.Name.Name)
			}
		case *ast.GenDecl:
			names = append(names, specNames(decl.Specs)...)
		}
	}
	return f.Name.Name, slices.DeleteFunc(names, func(name string) bool { return name == "_" || name == "init" })
}

func specNames(specs []ast.Spec) (names []string) {
	for _, spec := range specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			names = append(names, spec.Name.Name)
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
