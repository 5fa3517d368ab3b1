package luagen

import (
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// writesAfter is the last line at which an error means that the script has changed nothing, and 0 if there is none or
// its guard may have changed something.
//
// Without loops and functions the server runs a script in the order of its text, so what stands before the first write
// runs before it. The search passes local functions that change nothing and are only called before the first write. It
// stops at any other function, and at the first loop with a write. Only the loop over the rows of a script for many
// that may run again is no such loop: a row that failed is sent by itself, and then the loop has one turn.
func (s *Script) writesAfter() int {
	if g := s.guardFile; g != nil && firstEffect(g).node != nil {
		return 0
	}
	c := firstEffect(s)
	if c.node == nil {
		return s.Body.End.Line
	}
	stmt := c.statement()
	line := stmt.Extent().Start.Line
	if c.endsWith(stmt) && !c.sharesLine(line) {
		return line // a command that fails changes nothing
	}
	return line - 1
}

// effect is a place of a script where it may change something.
type effect struct {
	flow
	node  luaast.Node
	early map[*luaast.Func]bool // functions that change nothing, and are over before the place
}

// firstEffect finds the first such place in the text, and nil if the script changes nothing.
func firstEffect(s *Script) effect {
	var ignored Diagnostics
	c := effect{flow: newBody(s, &ignored).flow(), early: make(map[*luaast.Func]bool)}
	byVar := make(map[*luaast.Var]*luaast.Func)
	luaast.Inspect(s.Body.Body, func(n, _ luaast.Node) bool {
		if f, ok := n.(*luaast.LocalFunc); ok {
			byVar[f.Var], c.early[f.Func] = f.Func, true // a change in it is found as any other
		}
		return true
	})
	c.node = c.in(s.Body.Body)
	for late := true; late; {
		late = c.forgetLate(s, byVar)
	}
	c.node = c.in(s.Body.Body)
	return c
}

// forgetLate removes those of the early functions that may run at the first change or after it. It reports whether
// there are some.
func (c effect) forgetLate(s *Script, byVar map[*luaast.Var]*luaast.Func) (found bool) {
	luaast.Inspect(s.Body.Body, func(n, _ luaast.Node) bool {
		if use, ok := n.(*luaast.Name); ok && c.early[byVar[use.Var]] && c.mayBeLate(use) {
			delete(c.early, byVar[use.Var])
			found = true
		}
		return true
	})
	return found
}

// mayBeLate reports whether a use of a function is more than a call that is over before the first change.
func (c effect) mayBeLate(use *luaast.Name) bool {
	call, isCall := c.parents[use].(*luaast.Call)
	if !isCall || call.Fn != luaast.Expr(use) {
		return true
	}
	if c.node != nil && call.Extent().End > c.node.Extent().Start.Off {
		return true // behind the change, or around it: a call runs after its arguments
	}
	for n := c.parents[use]; n != nil; n = c.parents[n] {
		if f, ok := n.(*luaast.Func); ok && !c.early[f] {
			return true
		}
	}
	return false
}

func (c effect) in(list []luaast.Stmt) (first luaast.Node) {
	luaast.Inspect(list, func(n, _ luaast.Node) bool {
		if first == nil && c.changes(n) {
			first = n
		}
		return first == nil
	})
	return first
}

// changes reports whether the server may change something at the node, or runs it in another order than that of the
// text.
func (c effect) changes(n luaast.Node) bool {
	switch n := n.(type) {
	case *luaast.Func:
		return !c.early[n]
	case *luaast.While, *luaast.Repeat, *luaast.NumFor, *luaast.GenFor:
		return !(c.Script.repeats() && c.visitsRows(n)) && c.repeats(n)
	case *luaast.Call:
		_, isCommand := c.byNode[n]
		return isCommand && !c.reads(n)
	case *luaast.Name:
		return n.Var == nil && runsHidden[n.Name] || c.hides(n)
	case *luaast.Index:
		return c.hides(n)
	}
	return false
}

// visitsRows reports a loop over the rows of a script for many.
func (c effect) visitsRows(loop luaast.Node) bool {
	if c.Merge == 0 {
		return false
	}
	keys := len(c.Keys) // of a row
	switch n := loop.(type) {
	case *luaast.GenFor:
		call, ok := n.Exprs[0].(*luaast.Call)
		return ok && keys == 1 && builtin(call) == "ipairs" && len(call.Args) == 1 && isGlobal(call.Args[0], "KEYS")
	case *luaast.NumFor:
		if limit, ok := n.Limit.(*luaast.Binary); ok && limit.Op == "/" && n.Step == nil {
			return isNumber(n.Start, 1) && isCount(limit.L, "KEYS") && isNumber(limit.R, keys)
		}
		whole := n.Step == nil && keys == 1 || isNumber(n.Step, keys)
		return isNumber(n.Start, 1) && isCount(n.Limit, "KEYS") && whole
	}
	return false
}

func isNumber(e luaast.Expr, value int) bool {
	n, ok := e.(*luaast.Number)
	return ok && n.Value == float64(value)
}

// isCount reports #list for a global list.
func isCount(e luaast.Expr, list string) bool {
	count, ok := e.(*luaast.Unary)
	return ok && count.Op == "#" && isGlobal(count.X, list)
}

// runsHidden are the globals through which a script runs what its text does not show.
var runsHidden = map[string]bool{"loadstring": true, "load": true, "setfenv": true, "getfenv": true, "_G": true}

// repeats reports whether a turn of a loop may change something.
func (c effect) repeats(loop luaast.Node) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{loop.(luaast.Stmt)}, func(n, _ luaast.Node) bool {
		found = found || n != loop && c.changes(n)
		return !found
	})
	return found
}

// hides reports whether redis.call is used here without a command that the text names, as in `local t = {redis.call}`.
func (c effect) hides(e luaast.Expr) bool {
	name := c.redisName(e)
	isTable := isGlobal(e, "redis") || isGlobal(e, otherRedis)
	if !isTable && name != "call" && name != "pcall" {
		return false
	}
	switch p := c.parents[e].(type) {
	case *luaast.Call:
		return !slices.Contains(c.called(p), e)
	case *luaast.Index:
		return !isTable || library(p) == ""
	case *luaast.Local:
		named := func(v *luaast.Var) bool { return v.Init == e && v.Writes == 0 }
		return localVar(e) != nil || !slices.ContainsFunc(p.Vars, named) // no call of a third name is a command
	}
	return true
}

// called are the expressions of a command's call that stand for redis.call: all but the command itself.
func (c effect) called(call *luaast.Call) []luaast.Expr {
	rc, isCommand := c.byNode[call]
	if !isCommand {
		return nil
	}
	return append([]luaast.Expr{call.Fn}, call.Args[:len(call.Args)-len(rc.args)]...)
}

// reads reports whether all commands that a call can run only read. PUBLISH changes no key, but it reaches subscribers.
func (c effect) reads(call *luaast.Call) bool {
	names, all := c.tracer(nil).namesOf(c.byNode[call].args)
	return all && !slices.ContainsFunc(names, func(name string) bool {
		cmd, known := lookup(name)
		return !known || cmd.write || name == "PUBLISH" || name == "SPUBLISH"
	})
}

// statement is the statement that runs the node.
func (c effect) statement() luaast.Stmt {
	for n := c.node; ; n = c.parents[n] {
		if s, ok := n.(luaast.Stmt); ok {
			return s
		}
	}
}

// endsWith reports whether the change is a command, and the last thing that its statement does.
func (c effect) endsWith(stmt luaast.Stmt) bool {
	call, ok := c.node.(*luaast.Call)
	if !ok {
		return false
	}
	switch s := stmt.(type) {
	case *luaast.CallStmt:
		return s.Call == call
	case *luaast.Local:
		return len(s.Exprs) == 1 && s.Exprs[0] == luaast.Expr(call)
	case *luaast.Return:
		return len(s.Exprs) == 1 && s.Exprs[0] == luaast.Expr(call)
	}
	return false
}

// sharesLine reports whether something behind the change begins in the line.
func (c effect) sharesLine(line int) (shares bool) {
	luaast.Inspect(c.Body.Body, func(n, _ luaast.Node) bool {
		start := n.Extent().Start
		shares = shares || start.Line == line && start.Off >= c.node.Extent().End
		return true
	})
	return shares
}
