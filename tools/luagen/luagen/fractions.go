package luagen

import (
	"math"
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// isFraction reports a number that can have digits behind the point, as far as the source shows.
func (b *body) isFraction(e luaast.Expr) bool { return b.fraction(e, map[*luaast.Var]bool{}) }

// fraction is isFraction; seen has for each local that is judged whether it is taken to have been one before.
func (b *body) fraction(e luaast.Expr, seen map[*luaast.Var]bool) bool {
	switch e := e.(type) {
	case *luaast.Paren:
		return b.fraction(e.X, seen)
	case *luaast.Number:
		return e.Value != math.Trunc(e.Value)
	case *luaast.Unary:
		return e.Op == "-" && b.fraction(e.X, seen)
	case *luaast.Binary:
		return b.fractionOf(e, seen)
	case *luaast.Call:
		return b.fractionCall(e, seen)
	case *luaast.Index:
		at, ok := entry(e)
		return ok && !at.key && at.index >= 1 && at.index <= len(b.Args) && b.Args[at.index-1].Type.Kind == Float
	case *luaast.Name:
		return b.fractionVar(e, seen)
	}
	return false
}

func (b *body) fractionOf(e *luaast.Binary, seen map[*luaast.Var]bool) bool {
	either := func() bool { return b.fraction(e.L, seen) || b.fraction(e.R, seen) }
	switch e.Op {
	case "/":
		return !b.countsGroups(e.L) && !b.cutsRest(e.L, e.R)
	case "-":
		return !b.cutsRest(e, nil) && either()
	case "+", "*", "%":
		return either()
	case "^":
		below, ok := e.R.(*luaast.Unary)
		return ok && below.Op == "-" || either()
	case "or":
		return either()
	case "and":
		return b.fraction(e.R, seen)
	}
	return false
}

// countsGroups recognizes a dividend that says how many groups there are, or which one this is: a length, or the number
// of a loop with a step.
func (b *body) countsGroups(e luaast.Expr) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{e}}}, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Unary:
			found = found || n.Op == "#"
		case *luaast.Name:
			loop := b.loopVars[n.Var]
			found = found || loop != nil && loop.Step != nil
		}
		return !found
	})
	return found
}

// cutsRest recognizes n - n % by, which the divisor divides; a nil divisor is any whole one.
func (b *body) cutsRest(e, by luaast.Expr) bool {
	if p, ok := e.(*luaast.Paren); ok {
		return b.cutsRest(p.X, by)
	}
	minus, ok := e.(*luaast.Binary)
	if !ok || minus.Op != "-" {
		return false
	}
	rest := minus.R
	if p, ok := rest.(*luaast.Paren); ok {
		rest = p.X
	}
	mod, ok := rest.(*luaast.Binary)
	return ok && mod.Op == "%" && b.text(mod.L) == b.text(minus.L) &&
		(by == nil && !b.isFraction(mod.R) || by != nil && b.text(mod.R) == b.text(by))
}

func (b *body) fractionCall(c *luaast.Call, seen map[*luaast.Var]bool) bool {
	switch builtin(c) {
	case "math.sqrt", "math.log", "math.log10", "math.exp":
		return true
	case "math.random":
		return len(c.Args) == 0
	case "tonumber", "math.min", "math.max", "math.abs":
		return slices.ContainsFunc(c.Args, func(arg luaast.Expr) bool { return b.fraction(arg, seen) })
	}
	return false
}

// fractionVar looks at what the local gets last before the use, and at what it got before that, where the last is one
// of two ways or counts on.
func (b *body) fractionVar(n *luaast.Name, seen map[*luaast.Var]bool) bool {
	v := n.Var
	if v == nil || v.Func != nil {
		return false
	}
	if before, ok := seen[v]; ok {
		return before
	}
	defer delete(seen, v)
	values := b.valuesOf(v)
	slices.SortFunc(values, func(x, y luaast.Expr) int { return y.Extent().Start.Off - x.Extent().Start.Off })
	for _, value := range values {
		if value.Extent().Start.Off > n.Start.Off {
			continue
		}
		seen[v] = false
		if b.fraction(value, seen) {
			return true
		}
		seen[v] = true
		if b.parents[b.parents[value]] == nil && !b.fraction(value, seen) {
			return false // whatever it was before
		}
	}
	return false
}
