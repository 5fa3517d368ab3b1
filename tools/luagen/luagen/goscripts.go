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
	Name   string // of the constant or variable, or of the function that takes the literal
	Text   string
	Pos    Pos // of the literal's first byte of text
	pieces []piece
}

// piece is one literal of those that a plus joins.
type piece struct {
	text string
	pos  Pos  // of its first byte of text
	raw  bool // between back quotes: lines of the script are lines of the file
}

// place is where a place of the script is in the Go file: in its literal, and in a raw one on its line.
func (g GoScript) place(at Pos) Pos {
	line, col, last := 1, 1, len(g.pieces)-1 // line and col: where the piece begins in the script
	for i, p := range g.pieces {
		breaks, behind := strings.Count(p.text, "\n"), len(p.text)-strings.LastIndexByte(p.text, '\n')
		nextCol := behind
		if breaks == 0 {
			nextCol = col + len(p.text)
		}
		if i < last && (at.Line > line+breaks || at.Line == line+breaks && at.Col >= nextCol) {
			line, col = line+breaks, nextCol
			continue
		}
		switch {
		case !p.raw:
			return p.pos
		case at.Line == line:
			return Pos{p.pos.Line, p.pos.Col + at.Col - col}
		}
		return Pos{p.pos.Line + at.Line - line, at.Col}
	}
	return g.Pos
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
	"NewScript": true, "NewLuaScript": true, "NewLuaScriptReadOnly": true, "NewLuaScriptNoSha": true, "Eval": true,
	"EvalRO":  true,
	"EvalCtx": true, "ScriptLoad": true, "NewScriptReadOnly": true,
}

// callsRedis tells a script from other text.
var callsRedis = regexp.MustCompile(`\b(redis|server)\.p?call\s*\(`)

// GoScripts lists the scripts of a Go file: literals that a function for scripts takes, directly or through a constant,
// and raw literals of several lines that call redis. A file that does not parse has none.
func GoScripts(file, text string) []GoScript {
	scripts, _, _ := goScripts(file, text)
	return scripts
}

// goScripts is GoScripts with the number of scripts that are joined of literals and other text, and the error of a file
// that has scripts, as it seems, and does not parse.
func goScripts(file, text string) (scripts []GoScript, joined int, err error) {
	if !callsRedis.MatchString(text) {
		return nil, 0, nil
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	f := goFinder{fset: fset, names: map[string]bool{}}
	ast.Inspect(tree, f.used)
	ast.Inspect(tree, f.find)
	return f.scripts, f.joined, nil
}

// unread is the finding about a Go file that does not parse.
func unread(file string, err error) Diagnostic {
	d := Diagnostic{File: file, Pos: Pos{1, 1}, Width: 1, Rule: "S001",
		Message: "the Go file does not parse: " + err.Error(),
		Cure:    "its scripts are not read: make it compile, go vet says more"}
	if list, ok := err.(goscanner.ErrorList); ok && len(list) > 0 {
		d.Pos, d.Message = Pos{list[0].Pos.Line, list[0].Pos.Column}, "the Go file does not parse: "+list[0].Msg
	}
	return d
}

type goFinder struct {
	fset    *token.FileSet
	names   map[string]bool // variables that are handed to a function for scripts
	scripts []GoScript
	joined  int // scripts that have other text between their literals
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
		if strings.HasSuffix(name, "printf") || strings.HasSuffix(name, "Errorf") || name == "Replace" ||
			name == "ReplaceAll" {
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
		return false // put together of pieces: no piece is a script by itself
	case *ast.BasicLit:
		f.add("", n, true)
	}
	return true
}

// add takes a literal that is a script, or several joined by plus. One that only looks like it must be a raw one of
// several lines.
func (f *goFinder) add(name string, e ast.Expr, looks bool) {
	pieces, text := f.piecesOf(e), ""
	if joined, ok := e.(*ast.BinaryExpr); ok && pieces == nil && !looks && f.hasScript(joined) {
		f.joined++
	}
	for _, p := range pieces {
		text += p.text
	}
	if !callsRedis.MatchString(text) ||
		looks && (len(pieces) > 1 || !pieces[0].raw || !strings.Contains(strings.TrimSpace(text), "\n")) {
		return
	}
	for _, have := range f.scripts {
		if have.Pos == pieces[0].pos {
			return
		}
	}
	f.scripts = append(f.scripts, GoScript{Name: name, Text: text, Pos: pieces[0].pos, pieces: pieces})
}

// hasScript reports whether one of the literals that an expression joins calls redis.
func (f *goFinder) hasScript(e ast.Expr) bool {
	if joined, ok := e.(*ast.BinaryExpr); ok {
		return f.hasScript(joined.X) || f.hasScript(joined.Y)
	}
	pieces := f.piecesOf(e)
	return len(pieces) > 0 && callsRedis.MatchString(pieces[0].text)
}

// piecesOf are the literals that an expression joins; nil where something else is among them.
func (f *goFinder) piecesOf(e ast.Expr) []piece {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return f.piecesOf(e.X)
	case *ast.BinaryExpr:
		left, right := f.piecesOf(e.X), f.piecesOf(e.Y)
		if e.Op == token.ADD && left != nil && right != nil {
			return append(left, right...)
		}
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if pos := f.fset.Position(e.Pos()); e.Kind == token.STRING && err == nil {
			return []piece{{text, Pos{pos.Line, pos.Column + 1}, strings.HasPrefix(e.Value, "`")}}
		}
	}
	return nil
}
