package luagen

import (
	"fmt"
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// binding says which KEYS or ARGV entry a local is named for.
type binding struct {
	key   bool
	index int  // 1-based, as in Lua
	raw   bool // the entry itself, not an expression over it
}

func (b *body) checkBindings() {
	firsts := map[binding]*luaast.Var{}
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Local:
			for _, v := range n.Vars {
				b.bind(v, firsts)
			}
		case *luaast.Name:
			if n.Var == nil && (n.Name == "KEYS" || n.Name == "ARGV") && !b.bare {
				b.checkUse(n)
			}
		}
		return true
	})
	if !b.bare {
		b.checkAllBound(firsts)
	}
}

// entry is one use of KEYS[n] or ARGV[n] with a literal n.
func entry(e luaast.Expr) (binding, bool) {
	i, ok := e.(*luaast.Index)
	if !ok || !isGlobal(i.Obj, "KEYS") && !isGlobal(i.Obj, "ARGV") {
		return binding{}, false
	}
	n, ok := i.Key.(*luaast.Number)
	if !ok || n.Value != float64(int32(n.Value)) {
		return binding{}, false
	}
	return binding{key: isGlobal(i.Obj, "KEYS"), index: int(n.Value)}, true
}

// bind notes that a local is the binding of the one entry its expression is made of.
func (b *body) bind(v *luaast.Var, firsts map[binding]*luaast.Var) {
	if v.Init == nil {
		return
	}
	var entries []binding
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{v.Init}}}, func(n, _ luaast.Node) bool {
		_, isFunc := n.(*luaast.Func)
		if e, ok := n.(luaast.Expr); ok {
			if en, ok := entry(e); ok {
				entries = append(entries, en)
			}
		}
		return !isFunc
	})
	direct, raw := entry(v.Init)
	switch {
	case len(entries) == 0:
		return
	case raw:
		direct.raw = true
		b.bound[v] = direct
	case entries[0].key || !allSame(entries) || b.isAnswer(v, entries[0]):
		return // checkUse reports it
	default:
		b.bound[v] = entries[0]
	}
	if b.bare {
		return
	}
	id := b.bound[v]
	id.raw = false
	b.checkName(v, id)
	if first := firsts[id]; first != nil {
		b.at(
			v,
			"K004",
			fmt.Sprintf("%s is bound a second time", b.bound[v]),
			fmt.Sprintf("use %s, bound on line %d", first.Name, first.Start.Line),
		)
		return
	}
	firsts[id] = v
}

// isAnswer reports a local for what a command returns, or a function of the script that takes more than the entry: it
// is the entry in another form only if it has its name.
func (b *body) isAnswer(v *luaast.Var, e binding) bool {
	c, ok := v.Init.(*luaast.Call)
	if !ok {
		return false
	}
	if b.redisName(c.Fn) != "" || isGlobal(c.Fn, "pcall") {
		return true
	}
	want, _ := b.declared(e)
	return localVar(c.Fn) != nil && len(c.Args) > 1 && v.Name != want
}

func allSame(list []binding) bool {
	for _, e := range list {
		if e != list[0] {
			return false
		}
	}
	return true
}

// String writes the binding as Lua does.
func (e binding) String() string {
	if e.key {
		return fmt.Sprintf("KEYS[%d]", e.index)
	}
	return fmt.Sprintf("ARGV[%d]", e.index)
}

// list is the table that the entry is in.
func (e binding) list() string {
	if e.key {
		return "KEYS"
	}
	return "ARGV"
}

// declared returns the header's name for an entry; ok is false outside the fixed ones.
func (b *body) declared(e binding) (string, bool) {
	switch {
	case e.index < 1:
		return "", false
	case e.key && e.index <= b.FixedKeys():
		return b.Keys[e.index-1].Name, true
	case !e.key && e.index <= len(b.Args):
		return b.Args[e.index-1].Name, true
	}
	return "", false
}

// variadic reports whether entries beyond the fixed ones exist.
func (b *body) variadic(key bool) bool {
	if key {
		return b.VariadicKey() != nil
	}
	return b.Group != nil
}

// fixed counts the entries before the variadic ones.
func (b *body) fixed(key bool) int {
	if key {
		return b.FixedKeys()
	}
	return len(b.Args)
}

// isDeclared reports whether a name is that of a fixed key or argument.
func (b *body) isDeclared(name string) bool {
	return slices.ContainsFunc(b.Keys[:b.FixedKeys()], func(k Key) bool { return k.Name == name }) ||
		slices.ContainsFunc(b.Args, func(a Arg) bool { return a.Name == name })
}

func (b *body) checkName(v *luaast.Var, e binding) {
	want, ok := b.declared(e)
	switch {
	case !ok || v.Name == want:
	case b.isDeclared(v.Name):
		b.at(v, "K008", fmt.Sprintf("%s is declared as %s, and %s is another one", e, want, v.Name),
			"fix the order here or in the header: one would be taken for the other")
	default:
		b.at(v, "K004", fmt.Sprintf("%s is declared as %s, not %s", e, want, v.Name),
			"give the local the declared name, or fix the order in the header")
	}
	if ok && e.key && v.Writes > 0 {
		b.at(v, "K004", "the key "+v.Name+" is assigned again",
			"use another local, so that "+v.Name+" stays "+e.String())
	}
}

// movesEntries are the functions after which no number says which entry of a list is meant, from so many arguments on:
// at the end of a list table.remove and table.insert move none.
var movesEntries = map[string]int{"table.remove": 2, "table.insert": 3, "table.sort": 1}

// checkUse judges one appearance of the word KEYS or ARGV.
func (b *body) checkUse(n *luaast.Name) {
	isKey := n.Name == "KEYS"
	switch parent := b.parents[n].(type) {
	case *luaast.Index:
		if parent.Obj == luaast.Expr(n) {
			b.checkEntry(parent, isKey)
			return
		}
	case *luaast.Unary:
		return // #KEYS is a number, whatever is declared
	case *luaast.Local:
		if b.isAlias(parent, n) {
			return
		}
	case *luaast.Call:
		name := builtin(parent)
		if least := movesEntries[name]; least > 0 && len(parent.Args) >= least && parent.Args[0] == luaast.Expr(n) {
			b.at(parent, "A002", fmt.Sprintf("%s moves the entries of %s: %s[1] is another one behind it", name,
				n.Name, n.Name),
				fmt.Sprintf("bind each by its number: local a, b = %s[1], %s[2]", n.Name, n.Name))
		}
		if b.variadic(isKey) && len(parent.Args) > 0 && parent.Args[0] == luaast.Expr(n) {
			switch builtin(parent) {
			case "unpack":
				b.checkUnpackArgs(parent, isKey)
				return
			case "ipairs":
				b.checkIpairs(parent, isKey)
				return
			}
		}
	}
	b.wholes[n.Name] = true
}

// isAlias reports whether the name is the expression of a local that stands for the global.
func (b *body) isAlias(local *luaast.Local, n *luaast.Name) bool {
	for i, e := range local.Exprs {
		if e == luaast.Expr(n) && i < len(local.Vars) {
			return b.aliases[local.Vars[i]]
		}
	}
	return false
}

func (b *body) checkEntry(i *luaast.Index, isKey bool) {
	e, ok := entry(i)
	if !ok {
		b.checkComputed(i, isKey)
		return
	}
	name, fixed := b.declared(e)
	switch {
	case !fixed && (!b.variadic(isKey) || e.index < 1):
		b.at(i, "K003", fmt.Sprintf("%s is not declared", e), b.declareCure(isKey))
	case fixed && !b.bindsHere(i):
		b.at(
			i,
			"K004",
			fmt.Sprintf("%s is used without a name", e),
			fmt.Sprintf("write local %s = %s at the top and use %s", name, e, name),
		)
	}
}

func (b *body) declareCure(isKey bool) string {
	if isKey {
		return "declare it with ---@key, in the order of KEYS"
	}
	return "declare it with ---@arg, in the order of ARGV"
}

// bindsHere reports whether the entry stands in the expression of a local bound to it.
func (b *body) bindsHere(i *luaast.Index) bool {
	var last luaast.Node = i
	for n := b.parents[i]; n != nil; n = b.parents[n] {
		if local, ok := n.(*luaast.Local); ok {
			for k, expr := range local.Exprs {
				if luaast.Node(expr) == last && k < len(local.Vars) {
					_, ok := b.bound[local.Vars[k]]
					return ok
				}
			}
			return false
		}
		last = n
	}
	return false
}

func (b *body) checkAllBound(firsts map[binding]*luaast.Var) {
	for i := range b.FixedKeys() {
		k := b.Keys[i]
		b.checkBound(binding{key: true, index: i + 1}, k.Name, k.Pos, firsts)
	}
	for i, a := range b.Args {
		b.checkBound(binding{index: i + 1}, a.Name, a.Pos, firsts)
	}
	b.checkVariadicUsed()
}

func (b *body) checkBound(e binding, name string, pos Pos, firsts map[binding]*luaast.Var) {
	v := firsts[e]
	switch {
	case v == nil && b.wholes[e.list()]:
	case v == nil:
		b.header(
			pos,
			len(name),
			"K005",
			fmt.Sprintf("%s is declared and never bound", name),
			fmt.Sprintf("write local %s = %s, or remove the declaration", name, e),
		)
	case v.Reads == 0:
		b.at(v, "K005", fmt.Sprintf("%s is bound and never used", v.Name),
			"use it, or remove it here and in the header")
	}
}
