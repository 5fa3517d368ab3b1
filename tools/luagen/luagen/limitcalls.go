package luagen

import "github.com/luatomic/luatomic/tools/luagen/luaast"

// checkRep reports a text that is as long as an argument says.
func (b *body) checkRep(c *luaast.Call) {
	count := 0 // of text:rep(count)
	if builtin(c) == "string.rep" {
		count = 1
	} else if c.Method != "rep" {
		return
	}
	if count < len(c.Args) {
		b.checkLimited(c.Args[count], "the text is as long", c.Args[count])
	}
}

// checkSelfCall reports a function that calls itself as often as an argument says: one of its parameters counts the
// calls, and the function compares it with an argument or counts an argument down.
func (b *body) checkSelfCall(c *luaast.Call) {
	f := b.localFunc(c)
	if f == nil || !b.isIn(c, f) || b.endsByData(f.Body) {
		return
	}
	for _, p := range f.Params {
		op := passedStep(c, p)
		if op == "" {
			continue
		}
		for _, end := range comparedWith(p, f.Body) {
			_, toNumber := end.(*luaast.Number)
			if toNumber && op == "-" {
				end = c.Args[p.Index]
			}
			if b.checkLimited(c, "the function calls itself as often", end) {
				return
			}
		}
	}
}

// isIn reports that a node is within the function.
func (b *body) isIn(n luaast.Node, f *luaast.Func) bool {
	for ; n != nil; n = b.parents[n] {
		if n == luaast.Node(f) {
			return true
		}
	}
	return false
}

// passedStep is "+" or "-" where a call passes its function's parameter on with a number added or taken off, else "".
func passedStep(c *luaast.Call, p *luaast.Var) string {
	if p.Index >= len(c.Args) || p.Writes > 0 {
		return ""
	}
	step, ok := c.Args[p.Index].(*luaast.Binary)
	if !ok || step.Op != "+" && step.Op != "-" || localVar(step.L) != p {
		return ""
	}
	if _, isNumber := step.R.(*luaast.Number); !isNumber {
		return ""
	}
	return step.Op
}

// countsCalls reports a parameter that counts the calls of its function by itself.
func (b *body) countsCalls(p *luaast.Var) bool {
	for _, c := range b.callers[b.funcVar[p.Func]] {
		if b.isIn(c, p.Func) && passedStep(c, p) != "" {
			return true
		}
	}
	return false
}

// comparedWith are the expressions that a body compares the variable with.
func comparedWith(v *luaast.Var, body []luaast.Stmt) (ends []luaast.Expr) {
	luaast.Inspect(body, func(n, _ luaast.Node) bool {
		if e, ok := n.(*luaast.Binary); ok && (isOrder(e.Op) || e.Op == "==" || e.Op == "~=") {
			for _, side := range [][2]luaast.Expr{{e.L, e.R}, {e.R, e.L}} {
				if localVar(side[0]) == v {
					ends = append(ends, side[1])
				}
			}
		}
		return true
	})
	return ends
}
