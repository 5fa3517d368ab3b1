package luagen

import (
	"slices"
	"strconv"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// origin is where the value of an expression comes from: keys of the header, or something that is no key.
type origin struct {
	keys []*Key
	bad  string      // "" when every path leads to keys
	at   luaast.Expr // the expression that is bad
}

func (o origin) join(other origin) origin {
	if o.bad == "" {
		o.bad, o.at = other.bad, other.at
	}
	for _, k := range other.keys {
		if !slices.Contains(o.keys, k) {
			o.keys = append(o.keys, k)
		}
	}
	return o
}

// tracer follows values backwards; seen stops at recursion. When one call of a function is looked at, args holds what
// it passes for each parameter.
type tracer struct {
	*body
	seen map[*luaast.Var]bool
	args map[*luaast.Var]luaast.Expr
	done map[*luaast.Var]origin // what a variable was found to be: chains of helpers would be followed 2^n times
	read map[*luaast.Var]wordList
}

// wordList is a memory of textVar.
type wordList struct {
	texts []string
	ok    bool
}

func (b *body) tracer(args map[*luaast.Var]luaast.Expr) tracer {
	return tracer{b, map[*luaast.Var]bool{}, args, map[*luaast.Var]origin{}, map[*luaast.Var]wordList{}}
}

func bad(e luaast.Expr, what string) origin { return origin{bad: what, at: e} }

func (t tracer) key(e luaast.Expr) origin {
	switch e := e.(type) {
	case *luaast.Paren:
		return t.key(e.X)
	case *luaast.Name:
		return t.keyVar(e)
	case *luaast.Index:
		return t.keyIndex(e)
	case *luaast.Binary:
		switch e.Op {
		case "or":
			return t.key(e.L).join(t.key(e.R))
		case "and":
			return t.key(e.R)
		case "..":
			return bad(e, "a concatenation")
		}
	case *luaast.Str, *luaast.Number:
		return bad(e, "a literal")
	case *luaast.Call:
		if name := t.redisName(e.Fn); name == "call" || name == "pcall" {
			return bad(e, "reply data")
		}
		if f := t.localFunc(e); f != nil {
			return t.keyReturns(e, f)
		}
		if builtin(e) == "string.format" {
			return bad(e, "a formatted text")
		}
	case nil:
		return origin{bad: "a value that is not given"}
	}
	return bad(e, "a computed value")
}

func (t tracer) keyReturns(e *luaast.Call, f *luaast.Func) origin {
	v := localVar(e.Fn)
	if t.seen[v] {
		return origin{}
	}
	t.seen[v] = true
	o := origin{}
	for _, r := range returns(f.Body) {
		if len(r.Exprs) == 0 {
			return bad(e, "a computed value")
		}
		o = o.join(t.key(r.Exprs[0]))
	}
	if len(o.keys) == 0 && o.bad == "" {
		return bad(e, "a computed value")
	}
	return o
}

func (t tracer) keyVar(n *luaast.Name) origin {
	v := n.Var
	if v == nil {
		return bad(n, "a global")
	}
	if o, ok := t.done[v]; ok || t.seen[v] {
		return o
	}
	t.seen[v] = true
	defer delete(t.seen, v)
	o := t.keyLocal(n, v)
	t.done[v] = o
	return o
}

func (t tracer) keyLocal(n *luaast.Name, v *luaast.Var) origin {
	if e, ok := t.bound[v]; ok {
		return t.keyBinding(n, e)
	}
	if arg, ok := t.args[v]; ok && v.Writes == 0 {
		return t.key(arg)
	}
	if v.Func != nil {
		return t.keyParam(n)
	}
	if loop := t.pairVars[v]; loop != nil {
		return t.keyList(n, loop)
	}
	values := slices.Clone(t.assigned[v])
	if v.Init != nil {
		values = append(values, v.Init) // the last: most often a value until the local gets its own
	}
	if len(values) == 0 {
		return bad(n, "a value that is never set to a key")
	}
	o := origin{}
	for _, value := range values {
		if value == nil {
			return bad(n, "a computed value")
		}
		o = o.join(t.key(value))
	}
	return o
}

func (t tracer) keyBinding(n *luaast.Name, e binding) origin {
	switch {
	case !e.key:
		return bad(n, "an argument")
	case e.index < 1:
		return bad(n, undeclared)
	case e.index <= t.FixedKeys() && !t.bare:
		return origin{keys: []*Key{&t.Keys[e.index-1]}}
	}
	return t.variadicKey(n, e.index-1-t.FixedKeys())
}

// variadicKey is the origin of a variadic entry, counted from 0; below 0 when its place is not known. The group itself
// stands then for its keys: it has no type, so that any command may use it.
func (t tracer) variadicKey(e luaast.Expr, place int) origin {
	k := t.VariadicKey()
	switch {
	case t.bare:
		return origin{keys: []*Key{anyKey}}
	case k == nil:
		return bad(e, undeclared)
	case len(k.Fields) > 0 && place >= 0:
		return origin{keys: []*Key{&k.Fields[place%len(k.Fields)]}}
	}
	return origin{keys: []*Key{k}}
}

// keyParam asks every call of the function, which must be known by name alone.
func (t tracer) keyParam(n *luaast.Name) origin {
	v := n.Var
	fn := t.funcVar[v.Func]
	if fn == nil || fn.Writes > 0 || t.escaped[fn] {
		return bad(n, "a parameter of a function whose calls are not all visible")
	}
	o := origin{}
	if v.Writes > 0 {
		return bad(n, "a parameter that is assigned again")
	}
	for _, call := range t.callers[fn] {
		if v.Index >= len(call.Args) {
			return bad(n, "a parameter that a call leaves out")
		}
		o = o.join(t.key(call.Args[v.Index]))
	}
	return o
}

// keyList follows `for _, k in ipairs(list)`.
func (t tracer) keyList(n *luaast.Name, loop *luaast.GenFor) origin {
	call, ok := loop.Exprs[0].(*luaast.Call)
	if name := builtin(loop.Exprs[0]); !ok || name != "ipairs" && name != "pairs" || len(call.Args) == 0 {
		return bad(n, "a computed value")
	}
	return t.list(n, call.Args[0])
}

// list is the origin of the elements of a table.
func (t tracer) list(at, e luaast.Expr) origin {
	if isGlobal(e, "KEYS") {
		return t.allKeys()
	}
	if v := localVar(e); v != nil && v.Writes == 0 && !t.grown[v] {
		if v.Func == nil && v.Init != nil {
			e = v.Init
		}
	}
	if isGlobal(e, "ARGV") {
		return bad(at, "an argument")
	}
	table, ok := e.(*luaast.Table)
	if !ok || len(table.Items) == 0 {
		return bad(at, "an element of a computed list")
	}
	o := origin{}
	for _, item := range table.Items {
		o = o.join(t.key(item.Value))
	}
	return o
}

// undeclared is what rule K003 reports where the entry stands.
const undeclared = "a key that is not declared"

// anyKey is an entry of KEYS in a script that declares none.
var anyKey = &Key{Name: "KEYS"}

func (t tracer) allKeys() origin {
	if t.bare {
		return origin{keys: []*Key{anyKey}}
	}
	o := origin{}
	for i := range t.Keys {
		line := &t.Keys[i]
		if len(line.Fields) == 0 {
			o.keys = append(o.keys, line)
		}
		for j := range line.Fields {
			o.keys = append(o.keys, &line.Fields[j])
		}
	}
	return o
}

func (t tracer) keyIndex(e *luaast.Index) origin {
	switch {
	case isGlobal(e.Obj, "KEYS"):
		en, ok := entry(e)
		switch {
		case ok && en.index >= 1 && en.index <= t.FixedKeys() && !t.bare:
			return origin{keys: []*Key{&t.Keys[en.index-1]}}
		case ok:
			return t.variadicKey(e, en.index-1-t.FixedKeys())
		}
		if t.VariadicKey() == nil {
			return t.allKeys()
		}
		return t.variadicKey(e, t.place(e.Key))
	case isGlobal(e.Obj, "ARGV"):
		return bad(e, "an argument")
	}
	return t.list(e, e.Obj)
}

// place is which key of its group KEYS[i + 2] is, in a loop whose steps are known; else below 0.
func (t tracer) place(index luaast.Expr) int {
	if _, place, ok := t.placeOfEntry(index, true); ok {
		return place
	}
	return -1
}

// words returns the texts a string expression can have; ok is false when one of them is not a literal.
func (b *body) words(e luaast.Expr) ([]string, bool) {
	return b.tracer(nil).texts(e)
}

func (t tracer) texts(e luaast.Expr) ([]string, bool) {
	switch e := e.(type) {
	case *luaast.Str:
		return []string{e.Value}, true
	case *luaast.Paren:
		return t.texts(e.X)
	case *luaast.Binary:
		if e.Op != "or" && e.Op != "and" {
			return nil, false
		}
		right, ok := t.texts(e.R)
		if e.Op == "and" || !ok {
			return right, ok
		}
		l, isAnd := e.L.(*luaast.Binary)
		if isAnd && l.Op == "and" {
			left, ok := t.texts(l.R)
			return append(left, right...), ok
		}
		left, ok := t.texts(e.L)
		return append(left, right...), ok
	case *luaast.Name:
		return t.textVar(e.Var)
	}
	return nil, false
}

func (t tracer) textVar(v *luaast.Var) ([]string, bool) {
	if v == nil || t.seen[v] || v.Writes > 0 && v.Func != nil {
		return nil, false
	}
	if w, ok := t.read[v]; ok {
		return slices.Clone(w.texts), w.ok
	}
	t.seen[v] = true
	defer delete(t.seen, v)
	texts, ok := t.textLocal(v)
	slices.Sort(texts)
	texts = slices.Compact(texts)
	t.read[v] = wordList{texts, ok}
	return slices.Clone(texts), ok
}

// textsOf joins what is assigned to a variable; ok is false when that is no literal somewhere.
func (t tracer) textsOf(v *luaast.Var) ([]string, bool) {
	values := t.assigned[v]
	if v.Init != nil && !isNil(v.Init) {
		values = append([]luaast.Expr{v.Init}, values...)
	}
	var all []string
	for _, value := range values {
		if value == nil {
			return nil, false
		}
		words, ok := t.texts(value)
		if !ok {
			return nil, false
		}
		all = append(all, words...)
	}
	return all, len(all) > 0
}

func (t tracer) textLocal(v *luaast.Var) ([]string, bool) {
	if arg, ok := t.args[v]; ok {
		return t.texts(arg)
	}
	if v.Func == nil && v.Writes == 0 {
		return t.texts(v.Init)
	}
	if v.Func == nil {
		return t.textsOf(v)
	}
	fn := t.funcVar[v.Func]
	if fn == nil || fn.Writes > 0 || t.escaped[fn] || len(t.callers[fn]) == 0 {
		return nil, false
	}
	var all []string
	for _, call := range t.callers[fn] {
		if v.Index >= len(call.Args) {
			return nil, false
		}
		words, ok := t.texts(call.Args[v.Index])
		if !ok {
			return nil, false
		}
		all = append(all, words...)
	}
	return all, true
}

// integer returns the value of a literal, given as a number or as its text.
func integer(e luaast.Expr) (int, bool) {
	switch e := e.(type) {
	case *luaast.Number:
		return int(e.Value), true
	case *luaast.Str:
		n, err := strconv.Atoi(e.Value)
		return n, err == nil
	}
	return 0, false
}
