package luagen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// expiring is what a command does to the TTL of its key.
type expiring uint8

const (
	noExpiry    expiring = iota // nothing, or nothing that the rule follows
	makesKey                    // a new key gets no TTL, one that is there keeps its own
	dropsExpiry                 // SET: the key has no TTL then
	givesExpiry
	removesKey // or an element of it, or its TTL, or what cannot be told
)

var (
	makers = strings.Fields("SETNX INCR INCRBY INCRBYFLOAT DECR DECRBY APPEND SETRANGE SETBIT HSET HMSET HSETNX " +
		"HINCRBY HINCRBYFLOAT LPUSH RPUSH SADD ZADD ZINCRBY PFADD XADD")
	expirers = strings.Fields("EXPIRE PEXPIRE EXPIREAT PEXPIREAT SETEX PSETEX GETEX")
)

func (f flow) expiryOf(name string, c redisCall) expiring {
	options := c.args[min(3, len(c.args)):]
	cmd, _ := lookup(name)
	switch {
	case name == "SET" && f.hasWord(options, "EX", "PX", "EXAT", "PXAT"), slices.Contains(expirers, name):
		return givesExpiry
	case name == "SET" && (len(c.args) != 3 && !f.hasWord(options, "NX") || f.hasWord(options, "KEEPTTL", "XX")):
		return removesKey
	case name == "SET" && len(options) == 0 || name == "GETSET":
		return dropsExpiry
	case name == "SET":
		return makesKey
	case slices.Contains(makers, name) && !(name == "ZADD" && f.hasWord(c.args, "XX")):
		return makesKey
	case cmd.write:
		return removesKey
	}
	return noExpiry
}

// checkExpiry reports a write that leaves its key without a TTL on one path, where the script gives that key one on
// another. The path is one that a new key takes, or behind a SET, which drops the TTL, any. What is asked of the key
// itself, of the arguments or of the length of time is held for the program's way to say which keys get one: only a
// condition on other data, or on what a new key never is, leads to a finding.
func (b *body) checkExpiry() {
	f := b.flow()
	byKey := map[string][]redisCall{}
	for _, c := range b.commands {
		for _, a := range f.keyArgs(c) {
			if id, ok := f.stableText(c.args[a.at]); ok {
				byKey[id] = append(byKey[id], c)
			}
		}
	}
	told := map[*luaast.Call]bool{}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		for _, isNew := range []bool{true, false} {
			w := expiryWalk{flow: f, key: key, isNew: isNew, told: told, steps: 20000}
			if w.isWorth(byKey[key]) {
				w.judge()
			}
		}
	}
}

// stableText tells keys apart by what they are made of; ok is false where that may change on the way.
func (f flow) stableText(e luaast.Expr) (id string, ok bool) { return f.stableTextIn(e, 0) }

func (f flow) stableTextIn(e luaast.Expr, depth int) (id string, ok bool) {
	for depth++; ; depth += 8 {
		if depth > deepKey {
			return "", false
		}
		v := localVar(e)
		if v == nil {
			break
		}
		if v.Writes > 0 {
			return "", false
		}
		if v.Func != nil || v.Init == nil {
			return fmt.Sprintf("%s@%d", v.Name, v.Start.Off), true
		}
		e = v.Init
	}
	switch e := e.(type) {
	case *luaast.Paren:
		return f.stableTextIn(e.X, depth)
	case *luaast.Str:
		return fmt.Sprintf("%q", e.Value), true
	case *luaast.Index:
		at, ok := entry(e)
		return fmt.Sprint(at.key, at.index), ok
	case *luaast.Binary:
		left, isLeft := f.stableTextIn(e.L, depth)
		right, isRight := f.stableTextIn(e.R, depth)
		return left + " .. " + right, e.Op == ".." && isLeft && isRight
	}
	return "", false
}

// expiryWalk follows the paths of the script for one key.
type expiryWalk struct {
	flow
	key   string
	isNew bool // the key is not there at the start; else it is, with a TTL
	gives *luaast.Call
	spans map[any]bool // what the lengths of time are made of
	told  map[*luaast.Call]bool
	steps int
}

// expiryPath is one way through the script up to a place.
type expiryPath struct {
	wrote   *luaast.Call // that left the key without a TTL
	there   bool         // the script has written the key
	settled bool         // a condition is the program's way to say that this path has no TTL
	gate    luaast.Expr  // the last condition on other data, nil for none
	holds   bool
	ended   bool
}

// isWorth reports a key that is written and gets a TTL in one function, and notes the latter.
func (w *expiryWalk) isWorth(calls []redisCall) bool {
	writes := false
	w.spans = map[any]bool{}
	in, _ := w.funcAround(calls[0].node)
	for _, c := range calls {
		if f, _ := w.funcAround(c.node); f != in || in != nil || c.protected {
			return false
		}
		names := w.commandNames(c.node)
		if len(names) != 1 || names[0] == "PERSIST" {
			return false
		}
		switch w.expiryOf(names[0], c) {
		case makesKey:
			writes = writes || w.isNew
		case dropsExpiry:
			writes = true
		case givesExpiry:
			w.gives = c.node
			for _, arg := range c.args[2:] {
				w.rootsOf(arg, w.spans, map[*luaast.Var]bool{})
			}
		}
	}
	return writes && w.gives != nil
}

func (w *expiryWalk) judge() {
	paths := w.list(w.Body.Body, []expiryPath{{}})
	if w.steps <= 0 {
		return
	}
	for _, p := range paths {
		if p.wrote == nil || p.settled || w.told[p.wrote] {
			continue
		}
		w.told[p.wrote] = true
		name := w.commandNames(p.wrote)[0]
		where, what := "", "leaves a key without a TTL"
		if w.expiryOf(name, w.byNode[p.wrote]) == dropsExpiry {
			what = "drops the TTL of a key"
		}
		switch {
		case p.gate != nil && p.holds:
			where = fmt.Sprintf(" on the path line %d %s", p.gate.Extent().Start.Line, w.short(p.gate))
		case p.gate != nil:
			where = fmt.Sprintf(" on the path line %d not (%s)", p.gate.Extent().Start.Line, w.short(p.gate))
		case what[0] == 'l':
			where = " where the key is new"
		}
		w.at(p.wrote, "W004", fmt.Sprintf("%s %s%s, and line %d gives it one", name, what, where,
			w.gives.Extent().Start.Line),
			"give the TTL with the write or right behind it, on each path")
	}
}

// list follows some statements. What has ended comes out with the rest.
func (w *expiryWalk) list(stmts []luaast.Stmt, paths []expiryPath) []expiryPath {
	for _, s := range stmts {
		var out []expiryPath
		for _, p := range paths {
			if w.steps--; w.steps <= 0 {
				return nil
			}
			if p.ended {
				out = append(out, p)
				continue
			}
			out = append(out, w.stmt(s, p)...)
		}
		met := map[expiryPath]bool{}
		paths = slices.DeleteFunc(out, func(p expiryPath) bool {
			again := met[p]
			met[p] = true
			return again
		})
	}
	return paths
}

func (w *expiryWalk) stmt(s luaast.Stmt, p expiryPath) []expiryPath {
	switch s := s.(type) {
	case *luaast.Return:
		p = w.exprs(p, s.Exprs...)
		p.ended = true
	case *luaast.Do:
		return w.list(s.Body, []expiryPath{p})
	case *luaast.If:
		return w.branches(s, p)
	case *luaast.While:
		return w.loop(s.Body, p)
	case *luaast.Repeat:
		return w.loop(s.Body, p)
	case *luaast.NumFor:
		return w.loop(s.Body, p)
	case *luaast.GenFor:
		return w.loop(s.Body, p)
	case *luaast.Local:
		p = w.exprs(p, s.Exprs...)
	case *luaast.Assign:
		p = w.exprs(p, s.Exprs...)
	case *luaast.CallStmt:
		p = w.exprs(p, s.Call)
		p.ended = isGlobal(s.Call.Fn, "error")
	}
	return []expiryPath{p}
}

// loop has its turns or none: a key that it handles is left to the program.
func (w *expiryWalk) loop(body []luaast.Stmt, p expiryPath) []expiryPath {
	luaast.Inspect(body, func(n, _ luaast.Node) bool {
		c, ok := n.(*luaast.Call)
		p.settled = p.settled || ok && w.handles(c)
		return true
	})
	return []expiryPath{p}
}

// handles reports a command on the key, or what may have one.
func (w *expiryWalk) handles(c *luaast.Call) bool {
	rc, ok := w.byNode[c]
	if !ok {
		return w.localFunc(c) != nil && w.writesIn(w.localFunc(c))
	}
	names := w.commandNames(c)
	if len(names) != 1 {
		return true
	}
	return slices.ContainsFunc(w.keyArgs(rc), func(a keyArg) bool {
		id, known := w.stableText(rc.args[a.at])
		return !known && writes(names[0]) || known && id == w.key
	})
}

// writesIn reports a function with a command that writes.
func (w *expiryWalk) writesIn(f *luaast.Func) bool {
	found := false
	luaast.Inspect(f.Body, func(n, _ luaast.Node) bool {
		if c, ok := n.(*luaast.Call); ok {
			names := w.commandNames(c)
			_, isCommand := w.byNode[c]
			found = found || w.localFunc(c) != nil ||
				isCommand && (len(names) == 0 || slices.ContainsFunc(names, writes))
		}
		return !found
	})
	return found
}

// exprs follows the calls of expressions.
func (w *expiryWalk) exprs(p expiryPath, exprs ...luaast.Expr) expiryPath {
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: exprs}}, func(n, _ luaast.Node) bool {
		if op, ok := n.(*luaast.Binary); ok && (op.Op == "and" || op.Op == "or") {
			luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{op.R}}}, func(n, _ luaast.Node) bool {
				c, ok := n.(*luaast.Call)
				names := w.commandNames(c)
				p.settled = p.settled || ok && w.handles(c) && !(len(names) == 1 && !writes(names[0]))
				return true
			})
		}
		if c, ok := n.(*luaast.Call); ok && w.handles(c) {
			p = w.command(p, c)
		}
		_, isFunc := n.(*luaast.Func)
		return !isFunc
	})
	return p
}

func (w *expiryWalk) command(p expiryPath, c *luaast.Call) expiryPath {
	names := w.commandNames(c)
	if len(names) != 1 {
		p.settled = true
		return p
	}
	switch w.expiryOf(names[0], w.byNode[c]) {
	case makesKey:
		if w.isNew && !p.there {
			p.wrote = c
		}
		p.there = true
	case dropsExpiry:
		p.wrote, p.there = c, true
	case givesExpiry:
		p.wrote, p.there = nil, true
	case removesKey:
		p.wrote, p.settled = nil, true
	}
	return p
}

// branches takes the clauses of an if. A clause whose paths all end with nothing written says nothing of the others.
func (w *expiryWalk) branches(s *luaast.If, p expiryPath) (out []expiryPath) {
	hasElse, matters := false, w.matters(s)
	for _, clause := range s.Clauses {
		if clause.Cond == nil {
			if hasElse = matters; matters {
				out = append(out, w.list(clause.Body, []expiryPath{p})...)
			}
			break
		}
		p = w.exprs(p, clause.Cond)
		if !matters {
			continue
		}
		truth, known := w.truth(clause.Cond, p)
		if known && !truth {
			continue
		}
		inside, outside := w.gated(clause.Cond, p, true), w.gated(clause.Cond, p, false)
		if known {
			return append(out, w.list(clause.Body, []expiryPath{p})...)
		}
		taken := w.list(clause.Body, []expiryPath{inside})
		if !slices.ContainsFunc(taken, func(t expiryPath) bool { return !t.ended || t.wrote != nil }) {
			outside = p
		}
		out, p = append(out, taken...), outside
	}
	if !hasElse {
		out = append(out, p)
	}
	return out
}

// matters reports an if whose clauses handle the key, or leave.
func (w *expiryWalk) matters(s *luaast.If) bool {
	return slices.ContainsFunc(s.Clauses, func(clause luaast.Clause) bool {
		found := leaves(clause.Body)
		luaast.Inspect(clause.Body, func(n, _ luaast.Node) bool {
			c, ok := n.(*luaast.Call)
			found = found || ok && w.handles(c)
			return !found
		})
		return found
	})
}

// gated is the path behind a condition.
func (w *expiryWalk) gated(cond luaast.Expr, p expiryPath, holds bool) expiryPath {
	roots := map[any]bool{}
	w.rootsOf(cond, roots, map[*luaast.Var]bool{})
	if !w.isOfOthers(roots) || p.gate != nil && w.shares(p.gate, roots) && p.gate.Extent() != cond.Extent() {
		p.settled = true
		return p
	}
	p.gate, p.holds = cond, holds
	return p
}

// shares reports two conditions on one thing: they may hold together.
func (w *expiryWalk) shares(cond luaast.Expr, roots map[any]bool) bool {
	others := map[any]bool{}
	w.rootsOf(cond, others, map[*luaast.Var]bool{})
	for root := range others {
		if roots[root] {
			return true
		}
	}
	return false
}

// unknownRoot stands for what an expression is made of where that cannot be told.
type unknownRoot struct{}

// rootsOf collects what an expression is made of: commands, and entries of ARGV. A local has also the roots of the
// conditions under which it is assigned.
func (w *expiryWalk) rootsOf(e luaast.Expr, roots map[any]bool, seen map[*luaast.Var]bool) {
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{e}}}, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Call:
			_, isCommand := w.byNode[n]
			if isCommand {
				roots[n] = true
				return false
			}
			if name := builtin(n); name == "" || w.localFunc(n) != nil {
				roots[unknownRoot{}] = true
			}
		case *luaast.Index:
			if isGlobal(n.Obj, "ARGV") {
				roots[w.text(n)] = true
				return false
			}
			if isGlobal(n.Obj, "KEYS") {
				return false
			}
		case *luaast.Name:
			w.rootsOfName(n, roots, seen)
		}
		return true
	})
}

func (w *expiryWalk) rootsOfName(n *luaast.Name, roots map[any]bool, seen map[*luaast.Var]bool) {
	v := n.Var
	switch {
	case v == nil:
		if n.Name == "ARGV" {
			roots["ARGV"] = true
		}
		return
	case seen[v]:
		return
	}
	seen[v] = true
	values := w.sourcesOf(v)
	if v.Func != nil || len(values) == 0 && v.Writes == 0 && w.locals[v] == nil || w.body.grown[v] {
		roots[unknownRoot{}] = true
	}
	for _, value := range values {
		if value == nil {
			roots[unknownRoot{}] = true
			continue
		}
		w.rootsOf(value, roots, seen)
		for at := w.parents[value]; at != nil && v.Writes > 0; at = w.parents[at] {
			if s, ok := at.(*luaast.If); ok {
				for _, clause := range s.Clauses {
					if clause.Cond != nil {
						w.rootsOf(clause.Cond, roots, seen)
					}
				}
			}
		}
	}
}

// isOfOthers reports a condition on data of other keys alone, beside arguments that are no length of time. Where the
// key is there, one on its value counts as such: the value does not say what is to become of the TTL.
func (w *expiryWalk) isOfOthers(roots map[any]bool) bool {
	others := false
	for root := range roots {
		if root == any(unknownRoot{}) || w.spans[root] {
			return false
		}
		if c, ok := root.(*luaast.Call); ok {
			if w.handles(c) && (w.isNew || w.asksExpiry(c)) || w.byNode[c].protected {
				return false
			}
			others = true
		}
	}
	return others
}

// asksExpiry reports a command that tells the TTL, or may be one.
func (w *expiryWalk) asksExpiry(c *luaast.Call) bool {
	names := w.commandNames(c)
	return len(names) != 1 || strings.HasSuffix(names[0], "TTL") || strings.HasSuffix(names[0], "EXPIRETIME")
}
