package luagen

import (
	"fmt"
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkLoops reports loops, texts and calls of a function by itself that are as many as an argument says, where the
// script itself sets no limit: one call with a large number then blocks the server, after a write for good. A limit in
// the header holds for callers of the generated function alone.
func (b *body) checkLoops() {
	b.findLimited()
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch loop := n.(type) {
		case *luaast.NumFor:
			if !b.readsElements(loop) && !b.endsByData(loop.Body) {
				b.checkLoopEnd(loop.Limit, loop.Limit, loop.Start)
			}
		case *luaast.While:
			b.checkTurns(loop.Cond, true, loop.Body)
		case *luaast.Repeat:
			b.checkTurns(loop.Cond, false, loop.Body)
		case *luaast.Call:
			b.checkRep(loop)
			b.checkSelfCall(loop)
		}
		return true
	})
}

func (b *body) checkLoopEnd(at luaast.Expr, bounds ...luaast.Expr) {
	for _, e := range bounds {
		if b.checkLimited(at, "the loop runs as often", e) {
			return
		}
	}
}

// checkLimited reports a number that an argument sets. The message begins with what is so many.
func (b *body) checkLimited(at luaast.Node, what string, e luaast.Expr) bool {
	v := b.unboundedArg(e, map[*luaast.Var]bool{})
	if v != "" {
		b.at(at, "L001", fmt.Sprintf("%s as the argument %s says", what, v),
			fmt.Sprintf("limit it in the script: local count = math.min(%s, 1000)", v))
	}
	return v != ""
}

// checkTurns reports a condition that never ends its loop, one that compares a counter with an argument, and one that
// counts the argument itself down. The loop goes on while the condition is as runs says.
func (b *body) checkTurns(cond luaast.Expr, runs bool, body []luaast.Stmt) {
	if b.endsByData(body) {
		return
	}
	switch e := cond.(type) {
	case *luaast.Paren:
		b.checkTurns(e.X, runs, body)
	case *luaast.Unary:
		if e.Op == "not" {
			b.checkTurns(e.X, !runs, body)
		}
	case *luaast.Const, *luaast.Number, *luaast.Str:
		if runs != (isNil(e) || isConst(e, "false")) {
			b.checkWayOut(e, body)
		}
	case *luaast.Binary:
		if e.Op == "or" && runs || e.Op == "and" && !runs {
			b.checkTurns(e.L, runs, body)
			b.checkTurns(e.R, runs, body)
		}
		b.checkCounter(e, runs, body)
	}
}

// checkWayOut judges a loop without an end of its own by its only way out.
func (b *body) checkWayOut(cond luaast.Expr, body []luaast.Stmt) {
	if !leaves(body) {
		b.at(cond, "L001", "the loop never ends", "leave it with break or return, or count its turns")
		return
	}
	var out luaast.Expr
	for _, s := range body {
		switch s := s.(type) {
		case *luaast.If:
			if out != nil || len(s.Clauses) > 1 {
				return
			}
			out = s.Clauses[0].Cond
			if !leaves(s.Clauses[0].Body) {
				return
			}
		case *luaast.Assign, *luaast.CallStmt:
		default:
			return
		}
	}
	b.checkTurns(out, false, body)
}

// checkCounter reports a comparison of a counter with an argument. One for equality is so where each turn takes a step.
func (b *body) checkCounter(e *luaast.Binary, runs bool, body []luaast.Stmt) {
	equal := e.Op == "~=" && runs || e.Op == "==" && !runs
	if equal || isOrder(e.Op) {
		for _, side := range [][2]luaast.Expr{{e.L, e.R}, {e.R, e.L}} {
			v := localVar(side[0])
			if v == nil || v.Writes == 0 || equal && !steps(v, body, "+", "-") {
				continue
			}
			_, toNumber := side[1].(*luaast.Number)
			switch b.unboundedArg(side[0], map[*luaast.Var]bool{}) {
			case "":
				b.checkLoopEnd(side[1], side[1])
			default:
				if toNumber && steps(v, body, "-") {
					b.checkLoopEnd(e, side[0])
				}
			}
		}
	}
}

// steps reports that a turn adds a number to the variable, or takes it off.
func steps(v *luaast.Var, body []luaast.Stmt, ops ...string) bool {
	found := false
	luaast.Inspect(body, func(n, _ luaast.Node) bool {
		a, ok := n.(*luaast.Assign)
		if !ok || len(a.Targets) != 1 || len(a.Exprs) != 1 || localVar(a.Targets[0]) != v {
			return !found
		}
		op, ok := a.Exprs[0].(*luaast.Binary)
		if ok && slices.Contains(ops, op.Op) && localVar(op.L) == v {
			_, isNumber := op.R.(*luaast.Number)
			found = found || isNumber
		}
		return !found
	})
	return found
}

// endsByData reports a loop that is left when a command of the turn finds nothing more.
func (b *body) endsByData(body []luaast.Stmt) bool {
	found := false
	luaast.Inspect(body, func(n, _ luaast.Node) bool {
		s, ok := n.(*luaast.If)
		if !ok {
			return !found
		}
		for _, c := range s.Clauses {
			found = found || c.Cond != nil && leaves(c.Body) && b.readsReply(c.Cond, body)
		}
		return !found
	})
	return found
}

// readsReply reports a condition over the reply of a command in the loop.
func (b *body) readsReply(cond luaast.Expr, body []luaast.Stmt) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{cond}}}, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Call:
			found = found || b.runsCommand(n)
		case *luaast.Name:
			for _, value := range b.valuesOf(n.Var) {
				in := value.Extent().Start.Off
				found = found || b.calls(value) && in > body[0].Extent().Start.Off &&
					in < body[len(body)-1].Extent().End
			}
		}
		return !found
	})
	return found
}

// runsCommand reports a command, and a call of a local function with one in it.
func (b *body) runsCommand(c *luaast.Call) bool {
	if b.redisName(c.Fn) != "" {
		return true
	}
	f, found := b.localFunc(c), false
	if f != nil {
		luaast.Inspect(f.Body, func(n, _ luaast.Node) bool {
			inner, ok := n.(*luaast.Call)
			found = found || ok && b.redisName(inner.Fn) != ""
			return !found
		})
	}
	return found
}

// calls reports an expression with a command in it, or a call of a function of the script.
func (b *body) calls(e luaast.Expr) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{e}}}, func(n, _ luaast.Node) bool {
		c, ok := n.(*luaast.Call)
		found = found || ok && (b.redisName(c.Fn) != "" || b.localFunc(c) != nil)
		return !found
	})
	return found
}

// valuesOf are the expressions that give a local its values.
func (b *body) valuesOf(v *luaast.Var) []luaast.Expr {
	if v == nil {
		return nil
	}
	return slices.DeleteFunc(append([]luaast.Expr{v.Init}, b.assigned[v]...),
		func(e luaast.Expr) bool { return e == nil })
}

func isOrder(op string) bool { return op == "<" || op == ">" || op == "<=" || op == ">=" }

// readsElements reports a loop that reads list elements by its number, or arguments by a computed one: where they run
// out, it ends with an error.
func (b *body) readsElements(loop *luaast.NumFor) bool {
	return b.readsIn(loop.Body, loop.Var, map[*luaast.Func]bool{})
}

// readsIn looks into the local functions that the statements call, too.
func (b *body) readsIn(list []luaast.Stmt, number *luaast.Var, seen map[*luaast.Func]bool) bool {
	found := false
	luaast.Inspect(list, func(n, parent luaast.Node) bool {
		if c, ok := n.(*luaast.Call); ok {
			if f := b.localFunc(c); f != nil && !seen[f] {
				seen[f] = true
				found = found || b.readsIn(f.Body, nil, seen)
			}
		}
		i, ok := n.(*luaast.Index)
		if !ok || found {
			return !found
		}
		if a, isAssign := parent.(*luaast.Assign); isAssign && slices.Contains(a.Targets, luaast.Expr(i)) {
			return true
		}
		_, literal := entry(i)
		found = !literal && (isGlobal(i.Obj, "ARGV") || isGlobal(i.Obj, "KEYS")) ||
			number != nil && mentions(i.Key, number)
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
		if e.Op == "and" {
			return b.unboundedArg(e.R, seen)
		}
		if e.Op == "%" || opForm(e.Op) == truth && e.Op != "or" {
			return ""
		}
		if left := b.unboundedArg(e.L, seen); left != "" {
			return left
		}
		return b.unboundedArg(e.R, seen)
	case *luaast.Call:
		return b.unboundedCall(e, seen)
	case *luaast.Index:
		if isGlobal(e.Obj, "ARGV") || b.isDecoded(e.Obj) && !b.limited[b.limitKey(e)] {
			return b.text(e)
		}
	case *luaast.Name:
		return b.unboundedVar(e, seen)
	}
	return ""
}

// asLarge are the functions whose result is as large as one of their arguments.
var asLarge = map[string]bool{"tonumber": true, "tostring": true, "math.floor": true, "math.ceil": true,
	"math.max": true, "math.abs": true}

func (b *body) unboundedCall(c *luaast.Call, seen map[*luaast.Var]bool) string {
	var values []luaast.Expr
	switch f := b.localFunc(c); {
	case asLarge[builtin(c)]:
		values = c.Args
	case builtin(c) == "unpack" && len(c.Args) > 0 && isGlobal(c.Args[0], "ARGV"):
		return b.text(c)
	case f != nil && !seen[localVar(c.Fn)]:
		seen[localVar(c.Fn)] = true
		for _, r := range returns(f.Body) {
			if len(r.Exprs) > 0 && b.unboundedArg(r.Exprs[0], seen) != "" {
				return b.text(c)
			}
		}
	}
	for _, value := range values {
		if v := b.unboundedArg(value, seen); v != "" {
			return v
		}
	}
	return ""
}

// isDecoded reports a table that an argument is the text of.
func (b *body) isDecoded(e luaast.Expr) bool {
	v := localVar(e)
	if v == nil || v.Init == nil || v.Writes > 0 {
		return false
	}
	c, ok := v.Init.(*luaast.Call)
	return ok && len(c.Args) > 0 && (builtin(c) == "cjson.decode" || builtin(c) == "cmsgpack.unpack") &&
		b.unboundedArg(c.Args[0], map[*luaast.Var]bool{}) != ""
}

func (b *body) unboundedVar(n *luaast.Name, seen map[*luaast.Var]bool) string {
	v := n.Var
	if v == nil || seen[v] || b.limited[v] {
		return ""
	}
	seen[v] = true
	for _, value := range b.sourcesOf(v) {
		if arg := b.unboundedArg(value, seen); arg != "" {
			return v.Name
		}
	}
	return ""
}

// sourcesOf are the expressions that give a variable its values: those of a parameter stand in the calls, and that of a
// local may be one of several of a call.
func (b *body) sourcesOf(v *luaast.Var) []luaast.Expr {
	values := b.valuesOf(v)
	if v.Func != nil {
		if fn := b.funcVar[v.Func]; fn != nil && fn.Writes == 0 && !b.escaped[fn] {
			for _, call := range b.callers[fn] {
				if v.Index < len(call.Args) {
					values = append(values, call.Args[v.Index])
				}
			}
		}
	} else if s := b.locals[v]; v.Init == nil && s != nil && len(s.Exprs) > 0 {
		if last := s.Exprs[len(s.Exprs)-1]; b.isMulti(last) {
			values = append(values, last)
		}
	}
	return values
}

// findLimited collects what has a limit: what the script compares with something that is no argument, or that has a
// limit itself, and what math.min gives one. So arguments that are compared with each other alone have none.
func (b *body) findLimited() {
	for before := -1; before < len(b.limited); {
		before = len(b.limited)
		for _, n := range b.limits {
			for _, e := range b.limitedBy(n) {
				b.limited[b.limitKey(e)] = true
			}
		}
	}
}

// limitKey is the local, or the text of what is no local.
func (b *body) limitKey(e luaast.Expr) any {
	if v := localVar(e); v != nil {
		return v
	}
	return b.text(e)
}

// limitedBy are the expressions to which a comparison or an assignment of math.min sets a limit.
func (b *body) limitedBy(n luaast.Node) (limited []luaast.Expr) {
	switch n := n.(type) {
	case *luaast.Binary:
		for _, side := range [][2]luaast.Expr{{n.L, n.R}, {n.R, n.L}} {
			if b.isBound(side[1]) {
				limited = append(limited, side[0])
			}
		}
	case *luaast.Assign:
		for i, target := range n.Targets {
			if i < len(n.Exprs) && builtin(n.Exprs[i]) == "math.min" {
				limited = append(limited, target)
			}
		}
	}
	return limited
}

// isBound tells an upper limit from a test for a number above 0, and from a counter.
func (b *body) isBound(e luaast.Expr) bool {
	if v := localVar(e); v != nil && (v.Writes > 0 && steps(v, b.Body.Body, "+", "-") || b.countsCalls(v)) {
		return false
	}
	n, ok := e.(*luaast.Number)
	return ok && n.Value > 1 || !ok && b.unboundedArg(e, map[*luaast.Var]bool{}) == ""
}
