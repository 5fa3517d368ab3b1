package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkRepeats reports a command that does its work again in a repeat, because no test before it meets what the first
// run left.
func (b *body) checkRepeats() {
	r := repeats{flow: b.flow()}
	for _, c := range b.commands {
		r.noteWrites(c)
	}
	for _, c := range b.commands {
		names := r.commandNames(c.node)
		r.met, r.grown = map[seenAs]bool{}, r.spots(c)
		i := slices.IndexFunc(names, func(name string) bool {
			return writes(name) && (!r.repeatable(name, c) || r.writesBack(name, c))
		})
		if i < 0 || r.isGuarded(c.node) {
			continue
		}
		b.at(
			c.node,
			"T001",
			fmt.Sprintf("@retry safe, and a repeat runs %s again, %s: no test on the way meets what the first run left",
				spoken(names[i]), r.way(c.node)),
			"ask first for a token or a mark of the call, or write ---@retry never",
		)
	}
}

// repeats finds out whether a repeat of the script would meet a test.
type repeats struct {
	flow
	changed []spot // what the script writes; of everyKey where the key is not known
	grown   []spot // what the command that is judged writes
	met     map[seenAs]bool
}

// seenAs is a variable, as it is or among the sides of an order: `stock < n` holds in the first run and in the repeat.
type seenAs struct {
	v       *luaast.Var
	ordered bool
}

// touches are writes that no read but TTL sees.
var touches = map[string]bool{"EXPIRE": true, "PEXPIRE": true, "EXPIREAT": true, "PEXPIREAT": true, "PERSIST": true,
	"PUBLISH": true}

func (r *repeats) noteWrites(c redisCall) {
	for _, name := range r.commandNames(c.node) {
		if writes(name) && !touches[name] {
			r.changed = append(r.changed, r.spots(c)...)
		}
	}
}

// isGuarded reports that a condition which a repeat finds changed stands around the node, or before it with a way out.
func (r repeats) isGuarded(n luaast.Node) bool {
	for at := n; at != nil; at = r.parents[at] {
		switch p := r.parents[at].(type) {
		case *luaast.If:
			if r.condBefore(p, at) {
				return true
			}
		case *luaast.While:
			if r.meets(p.Cond) {
				return true
			}
		case *luaast.GenFor:
			if r.meets(p.Exprs...) {
				return true
			}
		case *luaast.NumFor:
			if r.meets(p.Start, p.Limit) {
				return true
			}
		case *luaast.Binary:
			if (p.Op == "and" || p.Op == "or") && p.R == at && r.meets(p.L) {
				return true
			}
		case *luaast.Func:
			return true // its calls may be guarded: not followed
		}
		if slices.ContainsFunc(r.exitsBefore(at), func(cond luaast.Expr) bool { return r.meets(cond) }) {
			return true
		}
	}
	return false
}

// condBefore reports that one of the conditions up to the clause that holds the node is one that a repeat meets.
func (r repeats) condBefore(p *luaast.If, at luaast.Node) bool {
	for _, c := range p.Clauses {
		if c.Cond != nil && luaast.Node(c.Cond) != at && r.meets(c.Cond) {
			return true
		}
		if s, ok := at.(luaast.Stmt); ok && slices.Contains(c.Body, s) {
			return false
		}
	}
	return false
}

// meets reports that an expression has something in it that a repeat finds changed by the first run: the reply of a
// write, or of a read of a key or field that the script writes. The clock and what the script only reads are the same
// for both.
func (r repeats) meets(exprs ...luaast.Expr) bool { return r.meetsIn(exprs, false) }

func (r repeats) meetsIn(exprs []luaast.Expr, ordered bool) bool {
	found := false
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: exprs}}, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			if !ordered && (isOrder(n.Op)) {
				found = found || r.meetsIn([]luaast.Expr{n.L, n.R}, true)
				return false
			}
		case *luaast.Call:
			found = found || r.replyMeets(n, ordered) || r.localFunc(n) != nil
		case *luaast.Name:
			found = found || n.Var != nil && r.varMeets(seenAs{n.Var, ordered})
		}
		return !found
	})
	return found
}

// replyMeets judges the reply of one command.
func (r repeats) replyMeets(c *luaast.Call, ordered bool) bool {
	rc, ok := r.byNode[c]
	if !ok || len(rc.args) == 0 {
		return false
	}
	names := r.commandNames(c)
	switch {
	case len(names) == 0:
		return true
	case slices.ContainsFunc(names, func(name string) bool {
		return writes(name) || strings.HasSuffix(name, "TTL")
	}):
		return true
	}
	return slices.ContainsFunc(r.spots(rc), func(read spot) bool { return r.shows(read, ordered) })
}

func (r repeats) varMeets(at seenAs) bool {
	v := at.v
	if known, ok := r.met[at]; ok {
		return known
	}
	r.met[at] = v.Func != nil // a parameter can be anything
	if v.Func != nil {
		return true
	}
	values := r.assigned[v]
	if v.Init != nil {
		values = append([]luaast.Expr{v.Init}, values...)
	}
	if loop := r.pairVars[v]; loop != nil {
		values = append(values, loop.Exprs...)
	}
	from := r.loopVars[v] == nil && (len(values) == 0 || slices.Contains(values, nil)) || r.body.grown[v]
	for _, value := range values {
		from = from || value != nil && r.meetsIn([]luaast.Expr{value}, at.ordered)
	}
	r.met[at] = from
	return from
}
