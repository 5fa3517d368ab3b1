package luagen

import (
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// unsetAt is the if without an else that alone gives the local a value, nil where there is none or where the way to the
// use shows more: another statement that can leave, a condition around the use, a test of the local.
func (b *body) unsetAt(v *luaast.Var, use luaast.Node) *luaast.If {
	decl := b.declares(v)
	if decl == nil {
		return nil
	}
	block, at := b.placeOf(decl).block, b.parentIn(use, b.placeOf(decl).block)
	s, ok := b.onlyIf(v, block)
	if at == nil || !ok || len(s.Clauses) == 0 || s.Clauses[len(s.Clauses)-1].Cond == nil {
		return nil
	}
	_, isReturn := at.(*luaast.Return)
	from, to := b.placeOf(s).index, b.placeOf(at).index
	if !isReturn || from > to || leaves(block.stmts[from+1:to]) {
		return nil
	}
	return s
}

// declares is the statement that makes the local without a value: `local v`, `local v = nil`, `local u, v = 1`.
func (b *body) declares(v *luaast.Var) *luaast.Local {
	s := b.locals[v]
	if s == nil || v.Init != nil && !isNil(v.Init) {
		return nil
	}
	if n := len(s.Exprs); v.Init == nil && n > 0 && b.isMulti(s.Exprs[n-1]) {
		return nil
	}
	return s
}

// onlyIf is the one if of the block in which all assignments to the local stand.
func (b *body) onlyIf(v *luaast.Var, block *block) (*luaast.If, bool) {
	var only luaast.Stmt
	one := true
	for _, use := range b.names[v] {
		a, ok := b.parents[use].(*luaast.Assign)
		if !ok || !slices.Contains(a.Targets, luaast.Expr(use)) {
			continue
		}
		in := b.parentIn(a, block)
		one = one && in != nil && (only == nil || only == in)
		only = in
	}
	s, ok := only.(*luaast.If)
	return s, ok && one
}

// parentIn is the statement of the block that holds the node, nil where a function stands between them, or none does.
func (b *body) parentIn(n luaast.Node, block *block) luaast.Stmt {
	for at := n; at != nil; at = b.parents[at] {
		if s, ok := at.(luaast.Stmt); ok && b.placeOf(s).block == block {
			return s
		}
		if _, isFunc := at.(*luaast.Func); isFunc {
			return nil
		}
	}
	return nil
}
