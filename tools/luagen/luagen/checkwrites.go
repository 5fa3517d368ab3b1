package luagen

import (
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// flow follows the statements in order and finds errors returned after a write, which Redis does not take back.
type flow struct {
	*body
	writes map[*luaast.Func]bool
	seen   map[*luaast.Func]bool
	byNode map[*luaast.Call]redisCall

	setsRESP bool                 // the script changes what replies look like
	tried    map[*luaast.Var]bool // locals that the script tests
	typed    map[*luaast.Var]bool // locals whose type the script asks for
}

// written is the calls that may have written before a place in the script.
type written []*luaast.Call

// manyWrites is enough to know that there was one, whatever a test shows of some.
const manyWrites = 64

func (w written) with(more written) written {
	out := slices.Clip(w)
	for _, c := range more {
		if len(out) < manyWrites && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// without takes out calls that are known to have changed nothing.
func (w written) without(idle []*luaast.Call) written {
	return slices.DeleteFunc(slices.Clone(w), func(c *luaast.Call) bool { return slices.Contains(idle, c) })
}

func (b *body) flow() flow {
	f := flow{body: b, writes: map[*luaast.Func]bool{}, seen: map[*luaast.Func]bool{},
		byNode: map[*luaast.Call]redisCall{}}
	for _, rc := range b.commands {
		f.byNode[rc.node] = rc
	}
	return f
}

func (b *body) checkWrites() { b.flow().list(b.Body.Body, nil) }

// list returns what may have written by its end, given what may have before.
func (f flow) list(list []luaast.Stmt, before written) written {
	for _, s := range list {
		before = f.stmt(s, before)
	}
	return before
}

func (f flow) stmt(s luaast.Stmt, before written) written {
	switch s := s.(type) {
	case *luaast.Return:
		f.checkReturn(s, before)
		return before
	case *luaast.Do:
		return f.list(s.Body, before)
	case *luaast.If:
		return f.branches(s, before)
	case *luaast.While:
		return f.loop(s.Body, before.with(f.contains(s.Cond)))
	case *luaast.Repeat:
		return f.loop(s.Body, before).with(f.contains(s.Cond))
	case *luaast.NumFor:
		return f.loop(s.Body, before)
	case *luaast.GenFor:
		return f.loop(s.Body, before.with(f.contains(s.Exprs...)))
	case *luaast.LocalFunc, *luaast.FuncStmt:
		return before
	}
	return before.with(f.nodesWrite([]luaast.Stmt{s}))
}

// loop goes through the body a second time when a turn can write: the next turn comes after that write.
func (f flow) loop(body []luaast.Stmt, before written) written {
	after := f.list(body, before)
	if len(after) > 0 && len(before) == 0 && !f.endsLoop(body) {
		f.list(body, after)
	}
	return after.with(before)
}

// endsLoop reports whether the list leaves the loop around it at its end.
func (f flow) endsLoop(list []luaast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	_, isBreak := list[len(list)-1].(*luaast.Break)
	return isBreak || f.alwaysReturns(list)
}

// branches follows each clause with what is known in it: where DEL gave 0, it wrote nothing.
func (f flow) branches(s *luaast.If, before written) written {
	var out written
	hasElse := false
	for _, c := range s.Clauses {
		var idle, idleAfter []*luaast.Call
		if c.Cond == nil {
			hasElse = true
		} else {
			before = before.with(f.contains(c.Cond))
			idle, idleAfter = f.idle(c.Cond, true), f.idle(c.Cond, false)
		}
		after := f.list(c.Body, before.without(idle))
		if !f.alwaysReturns(c.Body) {
			out = out.with(after)
		}
		before = before.without(idleAfter)
	}
	if !hasElse {
		out = out.with(before)
	}
	return out
}

func (f flow) checkReturn(s *luaast.Return, before written) {
	if len(s.Exprs) != 1 || len(before) == 0 {
		return
	}
	if f.givesError(s.Exprs[0]) {
		f.at(
			s,
			"W003",
			"an error is returned after a write",
			"the write stays: test first and write then, or report it in the reply",
		)
	}
}

// givesError reports a value that is an error: made here, held by a local, or what every return of a function gives.
func (f flow) givesError(e luaast.Expr) bool {
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil {
		e = v.Init
	}
	c, isCall := e.(*luaast.Call)
	if !isCall || f.localFunc(c) == nil {
		return f.isError(e)
	}
	all := returns(f.localFunc(c).Body)
	return len(all) > 0 && !slices.ContainsFunc(all, func(r *luaast.Return) bool {
		return len(r.Exprs) == 0 || !f.isError(r.Exprs[0])
	})
}

func (f flow) contains(exprs ...luaast.Expr) written {
	return f.nodesWrite([]luaast.Stmt{&luaast.Return{Exprs: exprs}})
}

// nodesWrite lists the write commands, and the calls of local functions that have some.
func (f flow) nodesWrite(list []luaast.Stmt) written {
	var found written
	luaast.Inspect(list, func(n, _ luaast.Node) bool {
		if c, ok := n.(*luaast.Call); ok && f.callWrites(c) {
			found = append(found, c)
		}
		_, isFunc := n.(*luaast.Func)
		return !isFunc
	})
	return found
}

func (f flow) callWrites(c *luaast.Call) bool {
	fn := f.localFunc(c)
	if names, ok := f.namesHanded(c, fn); ok {
		return slices.ContainsFunc(names, writes)
	}
	if fn != nil && !f.seen[fn] {
		f.seen[fn] = true
		f.writes[fn] = len(f.nodesWrite(fn.Body)) > 0
		return f.writes[fn]
	} else if fn != nil {
		return f.writes[fn]
	}
	return slices.ContainsFunc(f.commandNames(c), writes)
}

// writes reports whether a command of that full name may write.
func writes(name string) bool {
	cmd, _ := lookup(name)
	return cmd.write
}

// namesHanded are the commands of a call to a function that does nothing but run the command it is given.
func (f flow) namesHanded(c *luaast.Call, fn *luaast.Func) ([]string, bool) {
	if fn == nil || len(fn.Body) != 1 {
		return nil, false
	}
	ret, ok := fn.Body[0].(*luaast.Return)
	if !ok || len(ret.Exprs) != 1 {
		return nil, false
	}
	inner, ok := ret.Exprs[0].(*luaast.Call)
	if !ok || len(f.byNode[inner].args) == 0 {
		return nil, false
	}
	v := localVar(f.byNode[inner].args[0])
	if v == nil || v.Func != fn || v.Index >= len(c.Args) {
		return nil, false
	}
	handed := argEnv{}
	for i, p := range fn.Params {
		if i < len(c.Args) {
			handed[p] = c.Args[i]
		}
	}
	return f.tracer(handed).namesOf(f.byNode[inner].args)
}

// commandNames are the full names of the commands that a call of redis.call can run.
func (f flow) commandNames(c *luaast.Call) []string {
	names, _ := f.tracer(nil).namesOf(f.byNode[c].args)
	return names
}
