package luagen

import (
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// truth is that of a condition on the key itself where it is new.
func (w *expiryWalk) truth(cond luaast.Expr, p expiryPath) (holds, known bool) {
	if !w.isNew {
		return false, false
	}
	switch e := cond.(type) {
	case *luaast.Paren:
		return w.truth(e.X, p)
	case *luaast.Unary:
		holds, known = w.truth(e.X, p)
		return !holds, known && e.Op == "not"
	case *luaast.Binary:
		return w.truthOf(e, p)
	}
	value, known := w.valueOfNew(cond)
	return value.there, known
}

func (w *expiryWalk) truthOf(e *luaast.Binary, p expiryPath) (holds, known bool) {
	if e.Op == "and" || e.Op == "or" {
		left, knowsLeft := w.truth(e.L, p)
		right, knowsRight := w.truth(e.R, p)
		if e.Op == "and" {
			return left && right, knowsLeft && knowsRight || knowsLeft && !left || knowsRight && !right
		}
		return left || right, knowsLeft && knowsRight || knowsLeft && left || knowsRight && right
	}
	l, knowsLeft := w.valueOfNew(e.L)
	r, knowsRight := w.valueOfNew(e.R)
	if !knowsLeft || !knowsRight {
		return false, false
	}
	switch e.Op {
	case "==":
		return l == r, true
	case "~=":
		return l != r, true
	}
	if !l.isNumber || !r.isNumber {
		return false, false
	}
	order := map[string]bool{"<": l.n < r.n, "<=": l.n <= r.n, ">": l.n > r.n, ">=": l.n >= r.n}
	holds, known = order[e.Op]
	return holds, known
}

// newValue is a value that a script finds where the key is new.
type newValue struct {
	there    bool // true in a condition
	isNumber bool
	n        float64
}

func numberOf(n float64) newValue { return newValue{true, true, n} }

// valueOfNew is the value of a literal, and of the reply of a command on the key where it is new.
func (w *expiryWalk) valueOfNew(e luaast.Expr) (newValue, bool) {
	if v := localVar(e); v != nil {
		if w.steps--; w.steps <= 0 || v.Writes > 0 || v.Func != nil || v.Init == nil {
			return newValue{}, false
		}
		return w.valueOfNew(v.Init)
	}
	switch e := e.(type) {
	case *luaast.Paren:
		return w.valueOfNew(e.X)
	case *luaast.Number:
		return numberOf(e.Value), true
	case *luaast.Const:
		return newValue{there: e.Word == "true"}, e.Word != "nil"
	case *luaast.Unary:
		n, ok := w.valueOfNew(e.X)
		return numberOf(-n.n), ok && e.Op == "-" && n.isNumber
	case *luaast.Binary:
		left, ok := w.valueOfNew(e.L)
		if e.Op != "or" || !ok {
			return newValue{}, false
		}
		if left.there {
			return left, true
		}
		return w.valueOfNew(e.R)
	case *luaast.Call:
		return w.replyOfNew(e)
	}
	return newValue{}, false
}

// replyOfNew is the reply of a command on the key that is the first one there.
func (w *expiryWalk) replyOfNew(c *luaast.Call) (newValue, bool) {
	if builtin(c) == "tonumber" && len(c.Args) == 1 {
		n, ok := w.valueOfNew(c.Args[0])
		return n, ok && (n.isNumber || !n.there)
	}
	rc, isCommand := w.byNode[c]
	if !isCommand || !w.handles(c) || rc.protected {
		return newValue{}, false
	}
	name := w.commandNames(c)[0]
	kind, _ := w.commandKind(c)
	wrote := w.isWrittenBefore(c)
	switch {
	case wrote && (name == "TTL" || name == "PTTL"):
		return numberOf(-1), !w.isGivenBefore(c)
	case wrote:
		return newValue{}, false
	case name == "INCR", name == "SETNX", name == "HSETNX":
		return numberOf(1), true
	case name == "DECR":
		return numberOf(-1), true
	case name == "INCRBY" && len(rc.args) == 3:
		n, ok := integer(rc.args[2])
		return numberOf(float64(n)), ok
	case name == "TTL", name == "PTTL":
		return numberOf(-2), true
	case kind == textOrFalse && !writes(name), kind == intOrFalse:
		return newValue{}, true
	case kind == intReply && !writes(name):
		return numberOf(0), true
	}
	return newValue{}, false
}

// isWrittenBefore reports a write of the key that stands in front of a call in the text.
func (w *expiryWalk) isWrittenBefore(c *luaast.Call) bool {
	return w.isBefore(c, func(e expiring) bool { return e != noExpiry })
}

func (w *expiryWalk) isGivenBefore(c *luaast.Call) bool {
	return w.isBefore(c, func(e expiring) bool { return e == givesExpiry })
}

func (w *expiryWalk) isBefore(c *luaast.Call, does func(expiring) bool) bool {
	return slices.ContainsFunc(w.commands, func(rc redisCall) bool {
		names := w.commandNames(rc.node)
		return rc.node.Start.Off < c.Start.Off && w.handles(rc.node) && len(names) == 1 &&
			does(w.expiryOf(names[0], rc))
	})
}
