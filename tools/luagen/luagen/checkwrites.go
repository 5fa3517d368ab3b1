package luagen

import (
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// flow follows the statements in order and finds errors returned after a write, which Redis does not take back.
type flow struct {
	*body
	writes map[*luaast.Func]bool
	seen   map[*luaast.Func]bool
}

func (b *body) checkWrites() {
	f := flow{b, map[*luaast.Func]bool{}, map[*luaast.Func]bool{}}
	f.list(b.Body.Body, false)
}

// list returns whether a write may have happened by its end, given whether one may have before.
func (f flow) list(list []luaast.Stmt, written bool) bool {
	for _, s := range list {
		written = f.stmt(s, written)
	}
	return written
}

func (f flow) stmt(s luaast.Stmt, written bool) bool {
	switch s := s.(type) {
	case *luaast.Return:
		f.checkReturn(s, written)
		return written
	case *luaast.Do:
		return f.list(s.Body, written)
	case *luaast.If:
		return f.branches(s, written)
	case *luaast.While:
		return f.loop(s.Body, written || f.contains(s.Cond))
	case *luaast.Repeat:
		return f.loop(s.Body, written) || f.contains(s.Cond)
	case *luaast.NumFor:
		return f.loop(s.Body, written)
	case *luaast.GenFor:
		return f.loop(s.Body, written || f.contains(s.Exprs...))
	case *luaast.LocalFunc, *luaast.FuncStmt:
		return written
	}
	return written || f.stmtWrites(s)
}

// loop looks a second time when a turn can write: the next turn comes after that write.
func (f flow) loop(body []luaast.Stmt, written bool) bool {
	after := f.list(body, written)
	if after && !written && !f.endsLoop(body) {
		f.list(body, true)
	}
	return after
}

// endsLoop reports whether the list leaves the loop around it at its end.
func (f flow) endsLoop(list []luaast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	_, isBreak := list[len(list)-1].(*luaast.Break)
	return isBreak || f.alwaysReturns(list)
}

func (f flow) branches(s *luaast.If, written bool) bool {
	out, hasElse := false, false
	for _, c := range s.Clauses {
		if c.Cond == nil {
			hasElse = true
		} else {
			written = written || f.contains(c.Cond)
		}
		after := f.list(c.Body, written)
		if !f.alwaysReturns(c.Body) {
			out = out || after
		}
	}
	return out || !hasElse && written
}

func (f flow) checkReturn(s *luaast.Return, written bool) {
	if len(s.Exprs) != 1 || !written {
		return
	}
	e := s.Exprs[0]
	c, isCall := e.(*luaast.Call)
	_, isTable := errField(e)
	if isTable || isCall && f.redisName(c.Fn) == "error_reply" {
		f.at(s, "W003", "an error is returned after a write", "the write stays: test first and write then, or report it in the reply")
	}
}

func (f flow) stmtWrites(s luaast.Stmt) bool { return f.nodesWrite([]luaast.Stmt{s}) }

func (f flow) contains(exprs ...luaast.Expr) bool {
	return f.nodesWrite([]luaast.Stmt{&luaast.Return{Exprs: exprs}})
}

// nodesWrite looks for write commands, and for calls of local functions that have some.
func (f flow) nodesWrite(list []luaast.Stmt) bool {
	found := false
	luaast.Inspect(list, func(n, _ luaast.Node) bool {
		c, ok := n.(*luaast.Call)
		if ok {
			found = found || f.callWrites(c)
		}
		_, isFunc := n.(*luaast.Func)
		return !isFunc && !found
	})
	return found
}

func (f flow) callWrites(c *luaast.Call) bool {
	if fn := f.localFunc(c); fn != nil && !f.seen[fn] {
		f.seen[fn] = true
		f.writes[fn] = f.nodesWrite(fn.Body)
		return f.writes[fn]
	} else if fn != nil {
		return f.writes[fn]
	}
	for _, rc := range f.commands {
		if rc.node != c || len(rc.args) == 0 {
			continue
		}
		names, _ := f.words(rc.args[0])
		for _, name := range names {
			if cmd, ok := commands[strings.ToUpper(name)]; ok && cmd.write {
				return true
			}
		}
	}
	return false
}
