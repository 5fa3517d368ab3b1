package luagen

import (
	"fmt"
	"go/ast"
	"go/parser"
	goscanner "go/scanner"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// GoScript is a script in a string literal of a Go file.
type GoScript struct {
	Name string // of the constant or variable, or of the function that takes the literal
	Text string
	Pos  Pos  // of the literal's first byte of text
	raw  bool // between back quotes: lines of the script are lines of the file
}

// place is where a place of the script is in the Go file.
func (g GoScript) place(at Pos) Pos {
	switch {
	case !g.raw:
		return g.Pos
	case at.Line == 1:
		return Pos{g.Pos.Line, g.Pos.Col + at.Col - 1}
	}
	return Pos{g.Pos.Line + at.Line - 1, at.Col}
}

// lines turns the numbers of lines in a message into those of the Go file.
func (g GoScript) lines(text string) string {
	return aLine.ReplaceAllStringFunc(text, func(word string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(word, "line "))
		return fmt.Sprintf("line %d", g.place(Pos{n, 1}).Line)
	})
}

var aLine = regexp.MustCompile(`line \d+`)

// takesScript are the functions that take the text of a script: of go-redis, rueidis, redigo and their like.
var takesScript = map[string]bool{
	"NewScript": true, "NewLuaScript": true, "NewLuaScriptReadOnly": true, "NewLuaScriptNoSha": true, "Eval": true, "EvalRO": true,
	"EvalCtx": true, "ScriptLoad": true, "NewScriptReadOnly": true,
}

// callsRedis tells a script from other text.
var callsRedis = regexp.MustCompile(`\b(redis|server)\.p?call\s*\(`)

// GoScripts lists the scripts of a Go file: literals that a function for scripts takes, directly or through a constant, and raw
// literals of several lines that call redis. A file that does not parse has none.
func GoScripts(file, text string) []GoScript {
	scripts, _ := goScripts(file, text)
	return scripts
}

// goScripts is GoScripts with the error of a file that has scripts, as it seems, and does not parse.
func goScripts(file, text string) ([]GoScript, error) {
	if !callsRedis.MatchString(text) {
		return nil, nil
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := goFinder{fset: fset, names: map[string]bool{}}
	ast.Inspect(tree, f.used)
	ast.Inspect(tree, f.find)
	return f.scripts, nil
}

// unread is the finding about a Go file that does not parse.
func unread(file string, err error) Diagnostic {
	d := Diagnostic{File: file, Pos: Pos{1, 1}, Width: 1, Rule: "S001", Message: "the Go file does not parse: " + err.Error(),
		Cure: "its scripts are not read: make it compile, go vet says more"}
	if list, ok := err.(goscanner.ErrorList); ok && len(list) > 0 {
		d.Pos, d.Message = Pos{list[0].Pos.Line, list[0].Pos.Column}, "the Go file does not parse: "+list[0].Msg
	}
	return d
}

type goFinder struct {
	fset    *token.FileSet
	names   map[string]bool // variables that are handed to a function for scripts
	scripts []GoScript
}

// used notes the names that functions for scripts take.
func (f *goFinder) used(n ast.Node) bool {
	if call, ok := n.(*ast.CallExpr); ok && takesScript[calledName(call)] {
		for _, arg := range call.Args {
			if id, ok := arg.(*ast.Ident); ok {
				f.names[id.Name] = true
			}
		}
	}
	return true
}

func calledName(call *ast.CallExpr) string {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return fn.Sel.Name
	}
	return ""
}

func (f *goFinder) find(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := calledName(n)
		if strings.HasSuffix(name, "printf") || strings.HasSuffix(name, "Errorf") || name == "Replace" || name == "ReplaceAll" {
			return false // a template, or a message
		}
		if takesScript[name] {
			for _, arg := range n.Args {
				f.add(name, arg, false)
			}
		}
	case *ast.ValueSpec:
		for i, v := range n.Values {
			if i < len(n.Names) {
				f.add(n.Names[i].Name, v, !f.names[n.Names[i].Name])
			}
		}
	case *ast.AssignStmt:
		for i, v := range n.Rhs {
			if id, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok {
				f.add(id.Name, v, !f.names[id.Name])
			}
		}
	case *ast.BinaryExpr:
		return false // put together of pieces: no piece is a script
	case *ast.BasicLit:
		f.add("", n, true)
	}
	return true
}

// add takes a literal that is a script. One that only looks like it must be a raw one of several lines.
func (f *goFinder) add(name string, e ast.Expr, looks bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return
	}
	raw := strings.HasPrefix(lit.Value, "`")
	text, err := strconv.Unquote(lit.Value)
	if err != nil || !callsRedis.MatchString(text) || looks && (!raw || !strings.Contains(strings.TrimSpace(text), "\n")) {
		return
	}
	pos := f.fset.Position(lit.Pos())
	for _, have := range f.scripts {
		if have.Pos == (Pos{pos.Line, pos.Column + 1}) {
			return
		}
	}
	f.scripts = append(f.scripts, GoScript{Name: name, Text: text, Pos: Pos{pos.Line, pos.Column + 1}, raw: raw})
}
