package luagen

import (
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// overwrite says of a write that replaces a value where that stands, and which command reads it.
type overwrite struct {
	read  string
	value int // the first of the values
	every int // the next is so far behind
	place int // of the field or member of a value, from the value; 0 for a key that holds the value itself
}

// one is the step of a write of one value.
const one = 1 << 16

var overwrites = map[string]overwrite{
	"SET": {"GET", 2, one, 0}, "GETSET": {"GET", 2, one, 0}, "SETEX": {"GET", 3, one, 0}, "PSETEX": {"GET", 3, one, 0},
	"HSET": {"HGET", 3, 2, -1}, "HMSET": {"HGET", 3, 2, -1}, "ZADD": {"ZSCORE", 2, 2, 1},
	"LSET": {"LINDEX", 3, one, -1}, "SETBIT": {"GETBIT", 3, one, -1}, "MSET": {"GET", 2, 2, 0},
	"EXPIRE": {"TTL", 2, one, 0}, "PEXPIRE": {"PTTL", 2, one, 0},
}

// writesBack reports that a command writes what the script has computed of the value that it replaces: a repeat
// computes on.
func (r repeats) writesBack(name string, c redisCall) bool {
	o, ok := overwrites[name]
	for at := o.value; ok && at < len(c.args) && at+o.place < len(c.args); at += o.every {
		w := writeBack{repeats: r, read: o.read, before: c.node.Start.Off, seen: map[seenAs]bool{}}
		if o.place != 0 {
			w.place = c.args[at+o.place]
		}
		if w.steps(c.args[at], false) {
			return true
		}
	}
	return false
}

// writeBack looks for a read of one value inside arithmetic.
type writeBack struct {
	repeats
	read   string
	place  luaast.Expr // the field or member; nil for a key that holds the value itself
	before int         // where the write stands: what a variable becomes behind it is not written
	seen   map[seenAs]bool
}

func (w writeBack) steps(e luaast.Expr, computed bool) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{e}}}, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			if !computed && slices.Contains(arithmetic, n.Op) {
				found = found || w.steps(n.L, true) || w.steps(n.R, true)
				return false // both sides are read: a long chain is walked once
			}
		case *luaast.Call:
			if c, ok := w.byNode[n]; ok {
				found = found || computed && w.isRead(c)
				return false
			}
		case *luaast.Name:
			found = found || n.Var != nil && w.varSteps(n.Var, computed)
		}
		return !found
	})
	return found
}

var arithmetic = []string{"+", "-", "*", "/", "%", "^", ".."}

func (w writeBack) varSteps(v *luaast.Var, computed bool) bool {
	at := seenAs{v, computed}
	if w.seen[at] {
		return false
	}
	w.seen[at] = true
	for _, value := range append(slices.Clone(w.assigned[v]), v.Init) {
		if value != nil && value.Extent().Start.Off < w.before && w.steps(value, computed) {
			return true
		}
	}
	return false
}

// isRead reports that a command reads the value that is replaced: of the same key, at the same place.
func (w writeBack) isRead(c redisCall) bool {
	names := w.commandNames(c.node)
	if len(names) != 1 || names[0] != w.read {
		return false
	}
	for _, id := range w.keyIDs(c) {
		if id == any(everyKey{}) || !slices.ContainsFunc(w.grown, func(g spot) bool { return g.key == id }) {
			return false
		}
	}
	return w.place == nil || len(c.args) > 2 && w.text(c.args[2]) == w.text(w.place)
}
