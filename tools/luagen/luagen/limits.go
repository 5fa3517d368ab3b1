package luagen

import (
	"fmt"
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkLoops reports loops that run as often as an argument says, where the script itself sets no limit: one call with
// a large number then blocks the server, after a write for good. A limit in the header holds for callers of the
// generated function alone.
func (b *body) checkLoops() {
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch loop := n.(type) {
		case *luaast.NumFor:
			if !b.readsElements(loop) {
				b.checkLoopEnd(loop.Limit, loop.Limit, loop.Start)
			}
		case *luaast.While:
			b.checkTurns(loop.Cond, "true", loop.Body)
		case *luaast.Repeat:
			b.checkTurns(loop.Cond, "false", loop.Body)
		}
		return true
	})
}

func (b *body) checkLoopEnd(at luaast.Expr, bounds ...luaast.Expr) {
	for _, e := range bounds {
		if v := b.unboundedArg(e, map[*luaast.Var]bool{}); v != "" {
			b.at(at, "L001", fmt.Sprintf("the loop runs as often as the argument %s says", v),
				fmt.Sprintf("limit it in the script: local count = math.min(%s, 1000)", v))
			return
		}
	}
}

// checkTurns reports a condition that never ends its loop, one that compares a counter with an argument, and one that
// counts the argument itself down.
func (b *body) checkTurns(cond luaast.Expr, endless string, body []luaast.Stmt) {
	switch e := cond.(type) {
	case *luaast.Paren:
		b.checkTurns(e.X, endless, body)
	case *luaast.Const:
		if e.Word == endless && !leaves(body) {
			b.at(e, "L001", "the loop never ends", "leave it with break or return, or count its turns")
		}
	case *luaast.Binary:
		for _, side := range [][2]luaast.Expr{{e.L, e.R}, {e.R, e.L}} {
			v := localVar(side[0])
			if !isOrder(e.Op) || v == nil || v.Writes == 0 {
				continue
			}
			_, toNumber := side[1].(*luaast.Number)
			switch b.unboundedArg(side[0], map[*luaast.Var]bool{}) {
			case "":
				b.checkLoopEnd(side[1], side[1])
			default:
				if toNumber && stepsDown(v, body) {
					b.checkLoopEnd(cond, side[0])
				}
			}
		}
	}
}

// stepsDown reports that a turn takes a number off the variable.
func stepsDown(v *luaast.Var, body []luaast.Stmt) bool {
	return slices.ContainsFunc(body, func(s luaast.Stmt) bool {
		a, ok := s.(*luaast.Assign)
		if !ok || len(a.Targets) != 1 || len(a.Exprs) != 1 || localVar(a.Targets[0]) != v {
			return false
		}
		op, ok := a.Exprs[0].(*luaast.Binary)
		if !ok || op.Op != "-" || localVar(op.L) != v {
			return false
		}
		_, ok = op.R.(*luaast.Number)
		return ok
	})
}

func isOrder(op string) bool { return op == "<" || op == ">" || op == "<=" || op == ">=" }

// readsElements reports a loop that reads list elements by its number, or arguments by a computed one: where they run
// out, it ends with an error.
func (b *body) readsElements(loop *luaast.NumFor) bool {
	found := false
	luaast.Inspect(loop.Body, func(n, parent luaast.Node) bool {
		i, ok := n.(*luaast.Index)
		if !ok || found {
			return !found
		}
		if a, isAssign := parent.(*luaast.Assign); isAssign && slices.Contains(a.Targets, luaast.Expr(i)) {
			return true
		}
		_, literal := entry(i)
		found = !literal && (isGlobal(i.Obj, "ARGV") || isGlobal(i.Obj, "KEYS")) || mentions(i.Key, loop.Var)
		return !found
	})
	return found
}

func mentions(e luaast.Expr, v *luaast.Var) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{e}}}, func(n, _ luaast.Node) bool {
		name, ok := n.(*luaast.Name)
		found = found || ok && name.Var == v
		return !found
	})
	return found
}

// unboundedArg is the name of an argument that sets the size of a number, "" where none does or a limit is set.
func (b *body) unboundedArg(e luaast.Expr, seen map[*luaast.Var]bool) string {
	switch e := e.(type) {
	case *luaast.Paren:
		return b.unboundedArg(e.X, seen)
	case *luaast.Unary:
		if e.Op == "-" {
			return b.unboundedArg(e.X, seen)
		}
	case *luaast.Binary:
		if e.Op == "%" || e.Op == "and" || opForm(e.Op) == truth && e.Op != "or" {
			return ""
		}
		if left := b.unboundedArg(e.L, seen); left != "" {
			return left
		}
		return b.unboundedArg(e.R, seen)
	case *luaast.Call:
		if name := builtin(e); (name == "tonumber" || name == "math.floor" || name == "math.ceil" ||
			name == "math.max") && len(e.Args) > 0 {
			for _, arg := range e.Args {
				if v := b.unboundedArg(arg, seen); v != "" {
					return v
				}
			}
		}
	case *luaast.Index:
		if isGlobal(e.Obj, "ARGV") {
			return b.text(e)
		}
	case *luaast.Name:
		return b.unboundedVar(e, seen)
	}
	return ""
}

func (b *body) unboundedVar(n *luaast.Name, seen map[*luaast.Var]bool) string {
	v := n.Var
	if v == nil || seen[v] || v.Func != nil || b.isLimited(v) {
		return ""
	}
	seen[v] = true
	for _, value := range append([]luaast.Expr{v.Init}, b.assigned[v]...) {
		if value == nil {
			continue
		}
		if arg := b.unboundedArg(value, seen); arg != "" {
			return v.Name
		}
	}
	return ""
}

// isLimited reports that the script compares the variable with something that is no argument, or gives it a limit by
// math.min.
func (b *body) isLimited(v *luaast.Var) bool {
	limited := false
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			_, inWhile := parent.(*luaast.While)
			_, inRepeat := parent.(*luaast.Repeat)
			if isOrder(n.Op) && !inWhile && !inRepeat {
				limited = limited || localVar(n.L) == v && isBound(n.R) || localVar(n.R) == v && isBound(n.L)
			}
		case *luaast.Assign:
			for i, target := range n.Targets {
				if localVar(target) == v && i < len(n.Exprs) && builtin(n.Exprs[i]) == "math.min" {
					limited = true
				}
			}
		}
		return !limited
	})
	return limited
}

// isBound tells an upper limit from a test for a number above 0.
func isBound(e luaast.Expr) bool {
	n, ok := e.(*luaast.Number)
	return !ok || n.Value > 1
}
