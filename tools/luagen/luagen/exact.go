package luagen

import (
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// readAsNumbers are the names of the arguments that the body makes a number of, by tonumber, by arithmetic or by a
// function of math. A number of Lua has 53 bits, so the generated function refuses an integer beyond them: the script
// would work with another one.
func (s *Script) readAsNumbers() map[string]bool {
	var ignored Diagnostics
	b := newBody(s.inBody(), &ignored)
	names := map[string]bool{}
	note := func(exprs ...luaast.Expr) {
		for _, e := range exprs {
			if name := b.argName(e); name != "" {
				names[name] = true
			}
		}
	}
	luaast.Inspect(s.Body.Body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Local:
			for _, v := range n.Vars {
				if builtin(v.Init) == "tonumber" {
					note(&luaast.Name{Var: v}) // what the local is named is the field of a group
				}
			}
		case *luaast.Call:
			if name := builtin(n); name == "tonumber" || strings.HasPrefix(name, "math.") {
				note(n.Args...)
			}
		case *luaast.Binary:
			if strings.Contains("+-*/%^", n.Op) {
				note(n.L, n.R)
			}
		case *luaast.Unary:
			if n.Op == "-" {
				note(n.X)
			}
		}
		return true
	})
	return names
}

// argName is the name of the argument that an expression is; "" for anything else.
func (b *body) argName(e luaast.Expr) string {
	if v := localVar(e); v != nil {
		e = v.Init
		if c, ok := e.(*luaast.Call); ok && builtin(c) == "tonumber" && len(c.Args) > 0 {
			e = c.Args[0]
		}
		if _, ok := b.argType(v); ok && !isEntry(e) {
			return v.Name
		}
	}
	if at, ok := entry(e); ok && !at.key && at.index >= 1 && at.index <= len(b.Args) {
		return b.Args[at.index-1].Name
	}
	return ""
}

func isEntry(e luaast.Expr) bool {
	_, ok := entry(e)
	return ok
}
