// Package luacover puts marks into a Lua script that tell which of its statements ran, and turns what they told into a
// coverage profile. Marks stand on the lines of the statements, so that errors name the same lines as before.
package luacover

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/luatomic/luatomic/luatomictest/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Statement is one statement of a script, without those inside it.
type Statement struct {
	Start, End luaast.Pos // End is behind its last byte
	calls      bool       // it calls something, or leaves the function: what is not told before it may never be
	off        int
}

// Digest is the SHA-1 of a text, as Redis names scripts.
func Digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Statements lists the statements of a script in the order of the source. A script that does not parse has none.
func Statements(source string) []Statement {
	chunk, err := luaast.Parse(source)
	if err != nil {
		return nil
	}
	var all []Statement
	luaast.Inspect(chunk.Body, func(n, _ luaast.Node) bool {
		if s, ok := n.(luaast.Stmt); ok {
			if _, isBlock := s.(*luaast.Do); !isBlock {
				all = append(all, statement(source, s))
			}
		}
		return true
	})
	return all
}

func statement(source string, s luaast.Stmt) Statement {
	e := s.Extent()
	end := e.End
	calls := false
	heads, bodies := parts(s)
	for _, b := range bodies {
		if len(b) > 0 {
			end = min(end, b[0].Extent().Start.Off)
		}
	}
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: heads}}, func(n, _ luaast.Node) bool {
		_, isCall := n.(*luaast.Call)
		_, isFunc := n.(*luaast.Func)
		calls = calls || isCall
		return !isFunc
	})
	_, leaves := s.(*luaast.Return)
	text := strings.TrimRight(source[e.Start.Off:end], " \t\r\n")
	return Statement{Start: e.Start, End: behind(e.Start, text), calls: calls || leaves, off: e.Start.Off}
}

// behind is the place after the text that starts at a place.
func behind(at luaast.Pos, text string) luaast.Pos {
	lines := strings.Split(text, "\n")
	if len(lines) == 1 {
		return luaast.Pos{Line: at.Line, Col: at.Col + len(text), Off: at.Off + len(text)}
	}
	return luaast.Pos{Line: at.Line + len(lines) - 1, Col: len(lines[len(lines)-1]) + 1, Off: at.Off + len(text)}
}

// parts splits a statement into the expressions that it evaluates itself and the blocks inside it.
func parts(s luaast.Stmt) (heads []luaast.Expr, bodies [][]luaast.Stmt) {
	switch s := s.(type) {
	case *luaast.Local:
		heads = s.Exprs
		for _, e := range s.Exprs {
			if f, ok := e.(*luaast.Func); ok {
				bodies = append(bodies, f.Body)
			}
		}
	case *luaast.Assign:
		heads = append(append([]luaast.Expr{}, s.Targets...), s.Exprs...)
	case *luaast.CallStmt:
		heads = []luaast.Expr{s.Call}
	case *luaast.Return:
		heads = s.Exprs
	case *luaast.While:
		heads, bodies = []luaast.Expr{s.Cond}, [][]luaast.Stmt{s.Body}
	case *luaast.Repeat:
		bodies = [][]luaast.Stmt{s.Body}
	case *luaast.If:
		for _, c := range s.Clauses {
			if c.Cond != nil {
				heads = append(heads, c.Cond)
			}
			bodies = append(bodies, c.Body)
		}
	case *luaast.NumFor:
		heads, bodies = []luaast.Expr{s.Start, s.Limit}, [][]luaast.Stmt{s.Body}
	case *luaast.GenFor:
		heads, bodies = s.Exprs, [][]luaast.Stmt{s.Body}
	case *luaast.LocalFunc:
		bodies = [][]luaast.Stmt{s.Func.Body}
	case *luaast.FuncStmt:
		bodies = [][]luaast.Stmt{s.Func.Body}
	}
	return heads, bodies
}

// head collects marks that are new in this run, and tells them before anything is called.
const head = `local luagen_mark do local seen,new,tell={},{},redis.pcall luagen_mark=function(i,now) ` +
	`if not seen[i] then seen[i]=true new[#new+1]=i end ` +
	`if now and #new>0 then tell('PUBLISH','%s','%s '..table.concat(new,' ')) new={} end end end`

// Mark returns the script with a mark before each statement. A script with a function that has no room for one more
// upvalue, or that does not parse, comes back as it is.
func Mark(source string) string { return marked(source, luaast.Behind) }

// MarkGuard does the same with a guard. The script behind it begins on its last line.
func MarkGuard(source string) string {
	return marked(source, func(head, guard string) string { return "do " + head + " " + guard + "end " })
}

func marked(source string, behind func(head, script string) string) string {
	all := Statements(source)
	var b strings.Builder
	at := 0
	for i, s := range all {
		b.WriteString(source[at:s.off])
		if s.calls || i == len(all)-1 {
			fmt.Fprintf(&b, "luagen_mark(%d,true); ", i)
		} else {
			fmt.Fprintf(&b, "luagen_mark(%d); ", i)
		}
		at = s.off
	}
	b.WriteString(source[at:])
	text := behind(fmt.Sprintf(head, luacover.Channel, Digest(source)), b.String())
	if _, err := luaast.Parse(text); err != nil || len(all) == 0 {
		return source
	}
	return text
}

// Answer tells a test program what runs in place of a script or a guard, so that it publishes which statements ran.
func Answer(ask luacover.Ask) string {
	if ask.Name == "" {
		return MarkGuard(ask.Source)
	}
	return Mark(ask.Source)
}
