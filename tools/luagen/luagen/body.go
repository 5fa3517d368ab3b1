package luagen

import (
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// body is a script with what the checks need to know about its code.
type body struct {
	*Script
	found    *Diagnostics
	parents  map[luaast.Node]luaast.Node
	assigned map[*luaast.Var][]luaast.Expr // by assignments; nil where the value is one of several of a call
	callers  map[*luaast.Var][]*luaast.Call
	escaped  map[*luaast.Var]bool // read other than to call it
	grown    map[*luaast.Var]bool // a table that gets elements after its constructor
	growth   map[*luaast.Var][]luaast.Node
	cut      map[*luaast.Var]bool // a number or a list whose length is compared with a small number
	locals   map[*luaast.Var]*luaast.Local
	names    map[*luaast.Var][]*luaast.Name
	limits   []luaast.Node        // comparisons, and assignments of math.min
	limited  map[any]bool         // locals, and texts of other expressions, to which these set a limit
	small    map[*luaast.Var]bool // what isSmall has said
	funcVar  map[*luaast.Func]*luaast.Var
	bound    map[*luaast.Var]binding
	loopVars map[*luaast.Var]*luaast.NumFor
	pairVars map[*luaast.Var]*luaast.GenFor // the second variable of `for k, v in`
	commands []redisCall
	aliases  map[*luaast.Var]bool // locals that stand for a global
	wholes   map[string]bool      // KEYS or ARGV is used in a way that shows no single entry
	places   map[luaast.Stmt]stmtPlace
}

// redisCall is one redis.call or redis.pcall, also through pcall(redis.call, ...).
type redisCall struct {
	node      *luaast.Call
	args      []luaast.Expr // the command's name first
	protected bool
}

func newBody(s *Script, found *Diagnostics) *body {
	b := &body{
		Script: s, found: found, parents: map[luaast.Node]luaast.Node{}, assigned: map[*luaast.Var][]luaast.Expr{},
		callers: map[*luaast.Var][]*luaast.Call{}, escaped: map[*luaast.Var]bool{}, grown: map[*luaast.Var]bool{},
		funcVar: map[*luaast.Func]*luaast.Var{}, bound: map[*luaast.Var]binding{},
		loopVars: map[*luaast.Var]*luaast.NumFor{},
		pairVars: map[*luaast.Var]*luaast.GenFor{}, wholes: map[string]bool{},
		growth: map[*luaast.Var][]luaast.Node{}, small: map[*luaast.Var]bool{}, limited: map[any]bool{},
		cut: map[*luaast.Var]bool{}, locals: map[*luaast.Var]*luaast.Local{}, names: map[*luaast.Var][]*luaast.Name{},
	}
	b.aliases = globalAliases(s.Body)
	luaast.Inspect(s.Body.Body, func(n, parent luaast.Node) bool {
		b.parents[n] = parent
		b.index(n)
		return true
	})
	return b
}

// globalAliases finds the locals that stand for a global, as in `local KEYS = KEYS`, and makes each use of them a use
// of the global.
func globalAliases(chunk *luaast.Chunk) map[*luaast.Var]bool {
	aliases := map[*luaast.Var]bool{}
	for changed := true; changed; {
		changed = false
		for _, v := range chunk.Vars {
			n, ok := v.Init.(*luaast.Name)
			if ok && n.Var == nil && v.Writes == 0 && !aliases[v] && aliasable[n.Name] {
				aliases[v], changed = true, true
				rename(chunk, v, n.Name)
			}
		}
	}
	return aliases
}

// aliasable are the globals that scripts give a local name, for speed or for an editor.
var aliasable = map[string]bool{"KEYS": true, "ARGV": true, "redis": true, otherRedis: true, "table": true,
	"string": true, "math": true,
	"tonumber": true, "tostring": true, "unpack": true, "ipairs": true, "pairs": true, "type": true, "cjson": true,
	"cmsgpack": true}

func rename(chunk *luaast.Chunk, v *luaast.Var, global string) {
	luaast.Inspect(chunk.Body, func(n, _ luaast.Node) bool {
		if name, ok := n.(*luaast.Name); ok && name.Var == v {
			name.Var, name.Name = nil, global
		}
		return true
	})
}

func (b *body) index(n luaast.Node) {
	switch n := n.(type) {
	case *luaast.Local:
		for _, v := range n.Vars {
			b.locals[v] = n
			if f, ok := v.Init.(*luaast.Func); ok {
				b.funcVar[f] = v
			}
		}
	case *luaast.LocalFunc:
		b.funcVar[n.Func] = n.Var
	case *luaast.NumFor:
		b.loopVars[n.Var] = n
	case *luaast.GenFor:
		if len(n.Vars) > 1 {
			b.pairVars[n.Vars[1]] = n
		}
	case *luaast.Assign:
		b.indexAssign(n)
	case *luaast.Binary:
		b.indexComparison(n)
	case *luaast.Call:
		b.indexCall(n)
	case *luaast.Name:
		if n.Var != nil {
			b.names[n.Var] = append(b.names[n.Var], n)
		}
		if call, ok := b.parents[n].(*luaast.Call); n.Var != nil && (!ok || call.Fn != luaast.Expr(n)) {
			b.escaped[n.Var] = true
		}
	}
}

func (b *body) indexAssign(n *luaast.Assign) {
	if slices.ContainsFunc(n.Exprs, func(e luaast.Expr) bool { return builtin(e) == "math.min" }) {
		b.limits = append(b.limits, n)
	}
	for i, target := range n.Targets {
		var value luaast.Expr
		if i < len(n.Exprs) {
			value = n.Exprs[i]
		}
		switch t := target.(type) {
		case *luaast.Name:
			if t.Var != nil {
				b.assigned[t.Var] = append(b.assigned[t.Var], value)
			}
		case *luaast.Index:
			if v := localVar(t.Obj); v != nil {
				b.grown[v] = true
				b.growth[v] = append(b.growth[v], n)
			}
		}
	}
}

func (b *body) indexCall(n *luaast.Call) {
	if v := localVar(n.Fn); v != nil {
		b.callers[v] = append(b.callers[v], n)
	}
	switch b.redisName(n.Fn) {
	case "call":
		b.commands = append(b.commands, redisCall{n, n.Args, false})
	case "pcall":
		b.commands = append(b.commands, redisCall{n, n.Args, true})
	}
	if isGlobal(n.Fn, "pcall") && len(n.Args) > 1 && b.redisName(n.Args[0]) == "call" {
		b.commands = append(b.commands, redisCall{n, n.Args[1:], true})
	}
	if name := library(n.Fn); (name == "table.insert" || name == "table.remove") && len(n.Args) > 0 {
		if v := localVar(n.Args[0]); v != nil {
			b.grown[v] = true
			b.growth[v] = append(b.growth[v], n)
		}
	}
}

func (b *body) at(n luaast.Node, rule, message, cure string) {
	e := n.Extent()
	*b.found = append(*b.found, Diagnostic{b.File, Pos{e.Start.Line, e.Start.Col}, max(1, e.Width()), rule,
		message, cure})
}

func (b *body) header(pos Pos, width int, rule, message, cure string) {
	*b.found = append(*b.found, Diagnostic{b.File, pos, max(1, width), rule, message, cure})
}

// localVar returns the variable of a plain use, nil for globals and other expressions.
func localVar(e luaast.Expr) *luaast.Var {
	if n, ok := e.(*luaast.Name); ok {
		return n.Var
	}
	return nil
}

func isGlobal(e luaast.Expr, name string) bool {
	n, ok := e.(*luaast.Name)
	return ok && n.Var == nil && n.Name == name
}

// library returns "string.format" for a use of a library's function, "" for all else.
func library(e luaast.Expr) string {
	i, ok := e.(*luaast.Index)
	if !ok {
		return ""
	}
	obj, ok := i.Obj.(*luaast.Name)
	key, isText := i.Key.(*luaast.Str)
	if !ok || !isText || obj.Var != nil {
		return ""
	}
	if obj.Name == otherRedis {
		return "redis." + key.Value
	}
	return obj.Name + "." + key.Value
}

// otherRedis is the name of the table redis that Valkey has besides.
const otherRedis = "server"

// redisName returns "call" for redis.call and for a local that stands for it.
func (b *body) redisName(e luaast.Expr) string {
	if p, ok := e.(*luaast.Paren); ok {
		e = p.X
	}
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil {
		e = v.Init
	}
	if name := library(e); len(name) > 6 && name[:6] == "redis." {
		return name[6:]
	}
	return ""
}

// builtin returns the name of a called function of the standard library: "tonumber", "string.format".
func builtin(e luaast.Expr) string {
	c, ok := e.(*luaast.Call)
	if !ok || c.Method != "" {
		return ""
	}
	if n, ok := c.Fn.(*luaast.Name); ok && n.Var == nil {
		return n.Name
	}
	return library(c.Fn)
}

// localFunc returns the function a call runs, when that is one local function for sure.
func (b *body) localFunc(c *luaast.Call) *luaast.Func {
	v := localVar(c.Fn)
	if v == nil || v.Writes > 0 {
		return nil
	}
	f, _ := v.Init.(*luaast.Func)
	return f
}

// returns lists the return statements of a body without those of the functions inside it.
func returns(list []luaast.Stmt) []*luaast.Return {
	var out []*luaast.Return
	luaast.Inspect(list, func(n, _ luaast.Node) bool {
		if r, ok := n.(*luaast.Return); ok {
			out = append(out, r)
		}
		_, isFunc := n.(*luaast.Func)
		return !isFunc
	})
	return out
}

// singles are the functions of the standard library that return exactly one value.
var singles = map[string]bool{
	"tonumber": true, "tostring": true, "type": true, "math.floor": true, "math.ceil": true, "math.min": true,
	"math.max": true,
	"math.abs": true, "math.sqrt": true, "math.pow": true, "math.fmod": true, "math.log": true, "math.exp": true,
	"string.format": true, "string.sub": true, "string.lower": true, "string.upper": true, "string.rep": true,
	"string.len": true, "string.char": true, "string.reverse": true, "table.concat": true, "redis.call": true,
	"redis.pcall": true, "redis.sha1hex": true, "redis.error_reply": true, "redis.status_reply": true, "next": false,
}

// isMulti reports whether an expression at the end of a list can stand for more or fewer than one value.
func (b *body) isMulti(e luaast.Expr) bool { return b.multi(e, map[*luaast.Func]bool{}) }

func (b *body) multi(e luaast.Expr, seen map[*luaast.Func]bool) bool {
	c, ok := e.(*luaast.Call)
	if !ok {
		_, dots := e.(*luaast.Vararg)
		return dots
	}
	if singles[builtin(c)] || b.redisName(c.Fn) != "" {
		return false
	}
	f := b.localFunc(c)
	if f == nil || seen[f] {
		return f == nil
	}
	seen[f] = true
	all := returns(f.Body)
	for _, r := range all {
		if len(r.Exprs) != 1 || b.multi(r.Exprs[0], seen) {
			return true
		}
	}
	return len(all) == 0
}
