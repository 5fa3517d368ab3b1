package luagen

import (
	"fmt"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkCompare finds comparisons and tests that can never do what they say.
func (b *body) checkCompare() {
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			b.checkOperands(n)
			if n.Op == "and" || n.Op == "or" {
				b.checkTruth(n.L)
			}
		case *luaast.Unary:
			if n.Op == "not" {
				b.checkTruth(n.X)
			}
		case *luaast.If:
			for _, c := range n.Clauses {
				b.checkTruth(c.Cond)
			}
		case *luaast.While:
			b.checkTruth(n.Cond)
		}
		return true
	})
}

func (b *body) checkOperands(n *luaast.Binary) {
	switch n.Op {
	case "<", ">", "<=", ">=", "==", "~=":
	default:
		return
	}
	for _, pair := range [][2]luaast.Expr{{n.L, n.R}, {n.R, n.L}} {
		b.checkOperand(n, pair[0], pair[1])
	}
}

// checkOperand judges one side by what the other side is.
func (b *body) checkOperand(n *luaast.Binary, side, other luaast.Expr) {
	equality := n.Op == "==" || n.Op == "~="
	switch x := other.(type) {
	case *luaast.Number:
		if b.isRawArg(side) {
			b.at(n, "A001", "ARGV is text, and here it is compared with a number", "bind it with tonumber(ARGV[i])")
		}
	case *luaast.Const:
		if c := b.commandOf(side); c != "" && equality && x.Word == "nil" && !b.testedForFalse(n, side) {
			b.at(n, "R004", "redis.call never returns nil", "a miss is false: write == false, or just test the value")
		}
	case *luaast.Str:
		if c := b.commandOf(side); equality && x.Value == "OK" && c != "" {
			b.at(n, "C006", fmt.Sprintf("the reply of %s is a table, not text", c),
				"write reply.ok == 'OK', or test nothing: redis.call raises errors itself")
		}
	}
}

// testedForFalse reports whether the condition around a comparison asks for false, too, as in `v ~= nil and v ~=
// false`.
func (b *body) testedForFalse(n *luaast.Binary, side luaast.Expr) bool {
	v := localVar(side)
	if v == nil {
		return false
	}
	top := luaast.Node(n)
	for b.isCondition(b.parents[top]) {
		top = b.parents[top]
	}
	whole, ok := top.(luaast.Expr)
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{whole}}}, func(m, parent luaast.Node) bool {
		name, isName := m.(*luaast.Name)
		if !isName || name.Var != v {
			return true
		}
		switch p := parent.(type) {
		case *luaast.Unary:
			found = found || p.Op == "not"
		case *luaast.Binary:
			found = found || p.Op == "and" || p.Op == "or" || isFalse(p.L) || isFalse(p.R)
		case *luaast.Call:
			found = found || builtin(p) == "type" || builtin(p) == "tonumber"
		}
		return true
	})
	return ok && found
}

func (b *body) isCondition(n luaast.Node) bool {
	switch n := n.(type) {
	case *luaast.Binary:
		return n.Op == "and" || n.Op == "or"
	case *luaast.Unary:
		return n.Op == "not"
	case *luaast.Paren:
		return true
	}
	return false
}

func isFalse(e luaast.Expr) bool {
	c, ok := e.(*luaast.Const)
	return ok && c.Word == "false"
}

func (b *body) isRawArg(e luaast.Expr) bool {
	if i, ok := e.(*luaast.Index); ok && isGlobal(i.Obj, "ARGV") {
		return true
	}
	v := localVar(e)
	if v == nil || v.Writes > 0 {
		return false
	}
	if i, ok := v.Init.(*luaast.Index); ok && isGlobal(i.Obj, "ARGV") {
		return true
	}
	bind, ok := b.bound[v]
	return ok && bind.raw && !bind.key
}

// commandOf returns the command whose reply e is, for redis.call itself and for a local that keeps it.
func (b *body) commandOf(e luaast.Expr) string {
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil && v.Func == nil {
		e = v.Init
	}
	c, ok := e.(*luaast.Call)
	if !ok || b.redisName(c.Fn) != "call" || len(c.Args) == 0 {
		return ""
	}
	words, ok := b.words(c.Args[0])
	if !ok {
		return ""
	}
	return words[0]
}

// checkTruth reports a test of a text that is never false: "0" for a bool, "" for an absent value.
func (b *body) checkTruth(e luaast.Expr) {
	v := localVar(e)
	if v == nil || v.Writes > 0 {
		return
	}
	bind, ok := b.bound[v]
	if !ok || !bind.raw || bind.key || bind.index > len(b.Args) {
		return
	}
	switch t := b.Args[bind.index-1].Type; {
	case t.Kind == Bool:
		b.at(e, "A003", v.Name+" is '1' or '0', and both are true in Lua", fmt.Sprintf("write %s == '1'", v.Name))
	case t.Optional:
		b.at(e, "A003", v.Name+" is '' when absent, and that is true in Lua", fmt.Sprintf("write %s ~= ''", v.Name))
	}
}
