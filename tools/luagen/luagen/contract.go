package luagen

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkContract follows every path and reports a command that can fail where @contract says that it cannot: after a
// write, and for dup-only after a removal, where the command adds. What a script has read or written of a key before
// has its type; the first command on a key of another type raises an error.
func (b *body) checkContract() {
	if b.Contract.Word == "" || b.ReadOnly {
		return
	}
	c := &contract{flow: b.flow(), dupOnly: b.Contract.Word == "dup-only", steps: 20000, told: map[*luaast.Call]bool{}}
	c.list(b.Body.Body, state{clean: known{}}, nil)
}

// contract walks the script with what is known on the way.
type contract struct {
	flow
	dupOnly bool
	steps   int // what is left of them: calls of functions inside functions are walked again for each call
	told    map[*luaast.Call]bool
	inside  []*luaast.Func
	exits   []state // the returns of the function that is walked
}

// state is what happened before a place of the script, on the paths without a write so far and on those with one.
type state struct {
	clean known   // what is known on every path without a write; nil where there is no such path
	dirty known   // the same of the paths with one
	wrote written // these writes, or removals: what an error would leave behind
}

// known are the keys whose type an earlier command has shown.
type known map[any]bool

func (k known) and(other known) known {
	switch {
	case k == nil:
		return other
	case other == nil:
		return k
	}
	both := known{}
	for id := range k {
		if other[id] {
			both[id] = true
		}
	}
	return both
}

func (k known) with(ids []any) known {
	if k == nil || len(ids) == 0 {
		return k
	}
	out := maps.Clone(k)
	for _, id := range ids {
		out[id] = true
	}
	return out
}

func (s state) ended() bool { return s.clean == nil && s.dirty == nil }

func (s state) join(other state) state {
	return state{s.clean.and(other.clean), s.dirty.and(other.dirty), s.wrote.with(other.wrote)}
}

// after is the state behind a write.
func (s state) after(write *luaast.Call) state {
	return state{nil, s.dirty.and(s.clean), s.wrote.with(written{write})}
}

// unless takes back writes that are known to have changed nothing.
func (s state) unless(idle []*luaast.Call) state {
	if s.wrote = s.wrote.without(idle); len(s.wrote) == 0 {
		s.clean, s.dirty = s.clean.and(s.dirty), nil
	}
	return s
}

type argEnv = map[*luaast.Var]luaast.Expr

func (c *contract) list(list []luaast.Stmt, p state, env argEnv) state {
	for _, s := range list {
		if p.ended() || c.steps <= 0 {
			return p
		}
		c.steps--
		p = c.stmt(s, p, env)
	}
	return p
}

func (c *contract) stmt(s luaast.Stmt, p state, env argEnv) state {
	switch s := s.(type) {
	case *luaast.Return:
		p = c.exprs(s.Exprs, p, env)
		c.exits = append(c.exits, p)
		return state{}
	case *luaast.Do:
		return c.list(s.Body, p, env)
	case *luaast.If:
		return c.branches(s, p, env)
	case *luaast.While:
		return c.loop(s.Body, c.exprs([]luaast.Expr{s.Cond}, p, env), env)
	case *luaast.Repeat:
		return c.exprs([]luaast.Expr{s.Cond}, c.loop(s.Body, p, env), env)
	case *luaast.NumFor:
		return c.loop(s.Body, c.exprs([]luaast.Expr{s.Start, s.Limit}, p, env), env)
	case *luaast.GenFor:
		return c.loop(s.Body, c.exprs(s.Exprs, p, env), env)
	case *luaast.Local:
		return c.exprs(s.Exprs, p, env)
	case *luaast.Assign:
		return c.exprs(s.Exprs, p, env)
	case *luaast.CallStmt:
		p = c.exprs([]luaast.Expr{s.Call}, p, env)
		if isGlobal(s.Call.Fn, "error") {
			return state{}
		}
	}
	return p
}

func (c *contract) branches(s *luaast.If, p state, env argEnv) state {
	var out state
	hasElse := false
	for _, clause := range s.Clauses {
		inside := p
		if clause.Cond == nil {
			hasElse = true
		} else {
			p = c.exprs([]luaast.Expr{clause.Cond}, p, env)
			inside, p = p.unless(c.idle(clause.Cond, true)), p.unless(c.idle(clause.Cond, false))
		}
		out = out.join(c.list(clause.Body, inside, env))
	}
	if !hasElse {
		out = out.join(p)
	}
	return out
}

// loop walks the body twice: the second turn comes after the writes of the first, and meets other keys of a list. A row
// of a script for many is sent again by itself when another one fails.
func (c *contract) loop(body []luaast.Stmt, before state, env argEnv) state {
	once := c.list(body, before, env)
	if !once.ended() && c.Merge == 0 && !c.endsLoop(body) {
		again := once
		sure := before.clean.and(before.dirty)
		again.clean, again.dirty = lasting(once.clean, sure), lasting(once.dirty, sure)
		c.list(body, again, env)
	}
	out := once.join(before) // a loop may have no turn
	out.clean, out.dirty = out.clean.with(once.clean.rows()), out.dirty.with(once.dirty.rows())
	return out
}

// rows are the keys of the list that @keys declares: where a loop over them has no turn, there are none to know of.
func (k known) rows() []any {
	var rows []any
	for id := range k {
		if line, ok := id.(*Key); ok && line.Variadic {
			rows = append(rows, id)
		}
	}
	return rows
}

// lasting is what a turn of a loop leaves known for the next one: not the element of a list that it was at.
func lasting(once, before known) known {
	if once == nil {
		return nil
	}
	out := known{}
	for id := range once {
		if k, isLine := id.(*Key); isLine && !k.Variadic || before[id] {
			out[id] = true
		}
	}
	return out
}

// exprs follows the calls of some expressions in the order in which they run: arguments first.
func (c *contract) exprs(exprs []luaast.Expr, p state, env argEnv) state {
	var calls []*luaast.Call
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: exprs}}, func(n, _ luaast.Node) bool {
		if call, ok := n.(*luaast.Call); ok {
			calls = append(calls, call)
		}
		_, isFunc := n.(*luaast.Func)
		return !isFunc
	})
	slices.SortStableFunc(calls, func(a, b *luaast.Call) int { return a.End - b.End })
	for _, call := range calls {
		p = c.call(call, p, env)
	}
	return p
}

func (c *contract) call(call *luaast.Call, p state, env argEnv) state {
	if rc, ok := c.byNode[call]; ok {
		return c.command(rc, p, env)
	}
	fn := c.localFunc(call)
	if fn == nil || slices.Contains(c.inside, fn) || c.steps <= 0 {
		return p
	}
	inner := maps.Clone(env)
	if inner == nil {
		inner = argEnv{}
	}
	for i, param := range fn.Params {
		if i < len(call.Args) {
			inner[param] = call.Args[i]
		}
	}
	outside := c.exits
	c.inside, c.exits = append(c.inside, fn), nil
	out := c.list(fn.Body, p, inner)
	for _, exit := range c.exits {
		out = out.join(exit)
	}
	c.inside, c.exits = c.inside[:len(c.inside)-1], outside
	return out
}

// command judges one command, and notes what it shows and leaves.
func (c *contract) command(rc redisCall, p state, env argEnv) state {
	names := c.namesIn(rc, env)
	if len(names) != 1 {
		return p
	}
	name := names[0]
	cmd, _ := lookup(name)
	var unknown luaast.Expr
	var shown []any
	for _, a := range c.keyArgs(rc) {
		for _, id := range c.keysOf(rc.args[a.at], env) {
			if c.canFail(rc, name, cmd, a.spec) && !p.dirty[id] && unknown == nil {
				unknown = rc.args[a.at]
			}
			if len(cmd.types) > 0 || name == "DEL" || name == "UNLINK" || name == "TYPE" {
				shown = append(shown, id)
			}
		}
	}
	if unknown != nil && !rc.protected && p.dirty != nil && (!c.dupOnly || adds[name]) {
		c.report(rc, name, unknown, p.wrote[len(p.wrote)-1])
	}
	p.clean, p.dirty = p.clean.with(shown), p.dirty.with(shown)
	if cmd.write && (!c.dupOnly || removes[name]) && !changesNothing(rc, name) {
		return p.after(rc.node)
	}
	return p
}

// changesNothing recognizes a removal of the member ”, and LTRIM to the whole list.
func changesNothing(rc redisCall, name string) bool {
	if name == "LTRIM" && len(rc.args) == 4 {
		from, isFrom := integer(rc.args[2])
		minus, isMinus := rc.args[3].(*luaast.Unary)
		if !isFrom || from != 0 || !isMinus {
			return false
		}
		to, ok := integer(minus.X)
		return ok && to == 1
	}
	member, ok := rc.args[len(rc.args)-1].(*luaast.Str)
	return ok && member.Value == "" && len(rc.args) == 3 && (name == "ZREM" || name == "SREM" || name == "HDEL")
}

// namesIn are the commands that a call can run, with what the function around was given.
func (c *contract) namesIn(rc redisCall, env argEnv) []string {
	names, _ := c.tracer(env).namesOf(rc.args)
	return names
}

func (c *contract) report(rc redisCall, name string, key luaast.Expr, wrote *luaast.Call) {
	if c.told[rc.node] {
		return
	}
	c.told[rc.node] = true
	line := wrote.Extent().Start.Line
	c.at(
		rc.node,
		"W001",
		fmt.Sprintf("%s fails where %s has another type, after the write of line %d, %s", spoken(name),
			c.short(key), line, c.way(rc.node)),
		fmt.Sprintf("@contract %s: read %s before the first write, or write it first", c.Contract.Word, c.short(key)),
	)
}

// canFail reports a command that raises an error on a key of another type. The others take any key, or replace it, as
// those that store what they read do.
func (c *contract) canFail(rc redisCall, name string, cmd command, key keySpec) bool {
	stores := strings.HasPrefix(key.keyword, "STORE") || strings.HasSuffix(name, "STORE") && key.pos == 1
	reads := name == "SET" && c.hasWord(rc.args[min(3, len(rc.args)):], "GET")
	return len(cmd.types) > 0 && !stores && (!replaces[name] || reads)
}

var (
	replaces = map[string]bool{
		"SET": true, "SETEX": true, "PSETEX": true, "SETNX": true, "MSET": true, "MSETNX": true, "MGET": true,
	}
	// adds and removes are what dup-only is about: an item is added before it is removed elsewhere.
	adds = map[string]bool{
		"LPUSH": true, "RPUSH": true, "LPUSHX": true, "RPUSHX": true, "LINSERT": true, "SADD": true, "ZADD": true,
		"HSET":   true,
		"HSETNX": true, "HMSET": true, "XADD": true, "GEOADD": true, "APPEND": true, "LMOVE": true, "RPOPLPUSH": true,
		"SMOVE": true,
	}
	removes = map[string]bool{
		"DEL": true, "UNLINK": true, "LPOP": true, "RPOP": true, "LREM": true, "LTRIM": true, "SREM": true,
		"SPOP": true, "ZREM": true,
		"ZPOPMIN": true, "ZPOPMAX": true, "HDEL": true, "XDEL": true, "GETDEL": true, "LMPOP": true, "ZMPOP": true,
		"XTRIM":            true,
		"ZREMRANGEBYSCORE": true, "ZREMRANGEBYRANK": true, "ZREMRANGEBYLEX": true,
	}
)
