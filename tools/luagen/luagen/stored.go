package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// storing describes a command that reads one value.
type storing struct {
	at int // the argument that names the field or the member; 0: the key holds the value alone
	// by lists the commands that leave a value there: the first argument that names one, and the step to the next.
	by map[string][2]int
}

var (
	storesValue = map[string][2]int{"SET": {}, "SETEX": {}, "PSETEX": {}, "SETNX": {}, "GETSET": {}, "INCR": {},
		"INCRBY": {}, "INCRBYFLOAT": {}, "DECR": {}, "DECRBY": {}, "APPEND": {}}
	storesField = map[string][2]int{"HSET": {2, 2}, "HMSET": {2, 2}, "HSETNX": {2, one}, "HINCRBY": {2, one},
		"HINCRBYFLOAT": {2, one}}
	storesMember = map[string][2]int{"ZADD": {3, 1}, "ZINCRBY": {3, one}}

	readsStored = map[string]storing{"GET": {0, storesValue}, "HGET": {2, storesField},
		"ZSCORE": {2, storesMember}, "ZRANK": {2, storesMember}, "ZREVRANK": {2, storesMember}}

	// replacing are the commands that may leave nothing of what a key held, beside those that remove.
	replacing = map[string]bool{"RENAME": true, "RENAMENX": true, "MOVE": true, "COPY": true, "RESTORE": true,
		"FLUSHDB": true, "FLUSHALL": true, "HGETDEL": true}
)

func takesAway(name string) bool {
	return removes[name] || replacing[name] || strings.HasSuffix(name, "STORE")
}

// isStored reports that on each way to a read, the script has stored what it reads, and has removed nothing since.
func (f flow) isStored(e luaast.Expr) bool {
	call, _ := e.(*luaast.Call)
	read, ok := f.byNode[call]
	names := f.commandNames(call)
	if !ok || len(names) != 1 {
		return false
	}
	how, ok := readsStored[names[0]]
	if !ok || len(read.args) <= max(how.at, 1) {
		return false
	}
	for at := luaast.Node(call); at != nil; at = f.parents[at] {
		s, ok := at.(luaast.Stmt)
		if !ok {
			continue
		}
		if found, removed := f.storedBefore(s, read, how); found || removed {
			return found
		}
	}
	return false
}

// storedBefore looks through the statements before this one in its block, the nearest first.
func (f flow) storedBefore(s luaast.Stmt, read redisCall, how storing) (found, removed bool) {
	place := f.placeOf(s)
	if place.block == nil {
		return false, false
	}
	if isLoop(s) && f.canRemove(s) {
		return false, true
	}
	for _, before := range slices.Backward(place.block.stmts[:place.index]) {
		if f.canRemove(before) {
			return false, true
		}
		if slices.ContainsFunc(ownCalls(before), func(c *luaast.Call) bool { return f.stores(c, read, how) }) {
			return true, false
		}
	}
	return false, false
}

func isLoop(s luaast.Stmt) bool {
	switch s.(type) {
	case *luaast.While, *luaast.Repeat, *luaast.NumFor, *luaast.GenFor:
		return true
	}
	return false
}

// ownCalls are the calls that a statement makes in any case, without those among other values.
func ownCalls(s luaast.Stmt) (calls []*luaast.Call) {
	var exprs []luaast.Expr
	switch s := s.(type) {
	case *luaast.CallStmt:
		exprs = []luaast.Expr{s.Call}
	case *luaast.Local:
		exprs = s.Exprs
	case *luaast.Assign:
		exprs = s.Exprs
	}
	for _, e := range exprs {
		c, ok := e.(*luaast.Call)
		if ok && builtin(c) == "tonumber" && len(c.Args) == 1 {
			c, ok = c.Args[0].(*luaast.Call)
		}
		if ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// stores reports a call that leaves a value where the read looks for it.
func (f flow) stores(c *luaast.Call, read redisCall, how storing) bool {
	w, ok := f.byNode[c]
	names := f.commandNames(c)
	if !ok || w.protected || len(names) != 1 || len(w.args) < 2 || !f.isSame(w.args[1], read.args[1]) {
		return false
	}
	places, ok := how.by[names[0]]
	mayNot := slices.ContainsFunc(w.args, func(e luaast.Expr) bool {
		s, ok := e.(*luaast.Str)
		return ok && strings.EqualFold(s.Value, "XX") || f.isMulti(e)
	})
	if !ok || mayNot || how.at == 0 {
		return ok && !mayNot
	}
	for i := places[0]; i < len(w.args); i += places[1] {
		if f.isSame(w.args[i], read.args[how.at]) {
			return true
		}
	}
	return false
}

// isSame reports two expressions of one text whose variables keep their values.
func (f flow) isSame(a, b luaast.Expr) bool {
	same := f.text(a) == f.text(b)
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{a}}}, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Call:
			same = same && builtin(n) == "tostring"
		case *luaast.Name:
			same = same && (n.Var == nil || n.Var.Writes == 0)
		}
		return same
	})
	return same
}

// canRemove reports a statement in which something may be removed: a command that does so, or one that cannot be told.
func (f flow) canRemove(s luaast.Stmt) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{s}, func(n, _ luaast.Node) bool {
		if c, ok := n.(*luaast.Call); ok {
			names := f.commandNames(c)
			_, command := f.byNode[c]
			unknown := f.localFunc(c) != nil || command && len(names) == 0
			found = found || unknown || slices.ContainsFunc(names, takesAway)
		}
		return !found
	})
	return found
}
