package luagen

import (
	"fmt"
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkReply compares every return of the main chunk with @reply.
func (b *body) checkReply() {
	f := b.flow()
	f.setsRESP, f.tried = b.usesRESP(), f.triedVars()
	for _, r := range returns(b.Body.Body) {
		f.checkReplyOf(r)
	}
	if b.Reply != nil && b.Reply.Kind != Any && !b.alwaysReturns(b.Body.Body) {
		const message, cure = "a way through the script ends without return",
			"the header declares a reply: end every way with return"
		if n := len(b.Body.Body); n > 0 {
			b.at(b.Body.Body[n-1], "R007", message, cure)
		} else {
			b.header(b.ReplyPos, 1, "R007", message, cure)
		}
	}
}

func (f flow) checkReplyOf(r *luaast.Return) {
	switch {
	case len(r.Exprs) > 1:
		f.at(r.Exprs[1], "R003", "Redis sends only the first value of return", "return one table: return {a, b}")
	case f.Reply == nil && (len(r.Exprs) == 0 || isNil(r.Exprs[0])):
	case len(r.Exprs) == 0 && f.Reply.Kind == Any:
	case len(r.Exprs) == 0:
		f.at(r, "R003", "return without the declared reply", "return what ---@reply says")
	case f.Reply != nil && f.Reply.Kind == Any:
		f.checkBareValue(r.Exprs[0], true)
	default:
		v := replyCheck{body: f.body, flow: f, seen: map[luaast.Node]bool{}}
		v.value(r.Exprs[0], f.Reply, place{top: true})
	}
}

// alwaysReturns reports whether no way leads past the end of the list.
func (b *body) alwaysReturns(list []luaast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch s := list[len(list)-1].(type) {
	case *luaast.Return:
		return true
	case *luaast.Do:
		return b.alwaysReturns(s.Body)
	case *luaast.CallStmt:
		return isGlobal(s.Call.Fn, "error")
	case *luaast.If:
		for _, c := range s.Clauses {
			if !b.alwaysReturns(c.Body) {
				return false
			}
		}
		return s.Clauses[len(s.Clauses)-1].Cond == nil
	case *luaast.While:
		return isConst(s.Cond, "true") && !breaks(s.Body)
	case *luaast.Repeat:
		return (isConst(s.Cond, "false") || b.alwaysReturns(s.Body)) && !breaks(s.Body)
	}
	return false
}

// breaks reports a break out of the loop that has this body.
func breaks(body []luaast.Stmt) bool {
	found := false
	luaast.Inspect(body, func(n, _ luaast.Node) bool {
		switch n.(type) {
		case *luaast.Break:
			found = true
		case *luaast.While, *luaast.Repeat, *luaast.NumFor, *luaast.GenFor, *luaast.Func:
			return false
		}
		return !found
	})
	return found
}

func isConst(e luaast.Expr, word string) bool {
	if p, ok := e.(*luaast.Paren); ok {
		return isConst(p.X, word)
	}
	c, ok := e.(*luaast.Const)
	return ok && c.Word == word
}

func isNil(e luaast.Expr) bool { return isConst(e, "nil") }

// place says where in the reply a value stands.
type place struct {
	top   bool
	label string // the field's name, "" for the reply itself
}

func (p place) String() string {
	if p.label == "" {
		return "the reply"
	}
	return "field " + p.label
}

// replyCheck follows one returned expression to the values it can have. It judges what it can see and lets pass what it
// cannot: a decoder refuses at run time what has the wrong shape.
type replyCheck struct {
	*body
	flow    flow
	seen    map[luaast.Node]bool
	settled bool // the fraction is that of a local, which has been judged by what it gets last
}

// value checks e against t; a nil t is a script without a reply.
func (v replyCheck) value(e luaast.Expr, t *Type, p place) {
	if v.seen[e] {
		return
	}
	v.seen[e] = true
	switch x := e.(type) {
	case *luaast.Paren:
		v.value(x.X, t, p)
		return
	case *luaast.Binary:
		if x.Op == "or" || x.Op == "and" {
			v.choice(x, t, p)
			return
		}
	case *luaast.Name:
		v.variable(x, t, p)
		return
	case *luaast.Call:
		if f := v.localFunc(x); f != nil {
			v.calls(f, t, p)
			return
		}
	}
	v.leaf(e, t, p)
}

// choice checks what `and` and `or` can give: their right side, and the left side of `or` where it is no plain
// falsehood.
func (v replyCheck) choice(x *luaast.Binary, t *Type, p place) {
	v.value(x.R, t, p)
	if x.Op == "and" {
		return
	}
	if l, ok := x.L.(*luaast.Binary); ok && l.Op == "and" {
		v.value(l.R, t, p)
		return
	}
	if c, ok := x.L.(*luaast.Const); ok && c.Word != "true" {
		return
	}
	if isFalsible(x.L) {
		v.value(x.L, t, p)
	}
}

// isFalsible tells plain values from calls, whose falsehood `or` replaces.
func isFalsible(e luaast.Expr) bool {
	_, isCall := e.(*luaast.Call)
	_, isName := e.(*luaast.Name)
	return !isCall && !isName
}

func (v replyCheck) variable(x *luaast.Name, t *Type, p place) {
	local := x.Var
	if local == nil || local.Func != nil {
		return
	}
	if e, ok := v.bound[local]; ok && e.raw {
		v.shapeless(x, t, p, "an argument")
		return
	}
	if t != nil && !p.top {
		v.unset(local, x)
	}
	if local.Writes > 0 && !v.settled && t != nil && !uncut[t.Kind] && v.isFraction(x) {
		v.cut(x, p)
	}
	v.settled = v.settled || local.Writes > 0
	for _, init := range append([]luaast.Expr{local.Init}, v.assigned[local]...) {
		table, isTable := init.(*luaast.Table)
		switch {
		case init == nil, isNil(init) && init == local.Init && local.Writes > 0: // unset
		case t != nil && t.Kind == Tuple && v.isReply(init) && v.flow.measures(local):
		case isTable && v.grown[local] && v.isStart(table, t):
			v.fields(table, t.Fields)
		case isTable && v.grown[local] && (t == nil || t.Kind != Tuple || len(table.Items) == 0):
			// Elements come later: only the kind can be judged.
			if t == nil || t.Kind != Array && t.Kind != Tuple {
				v.leaf(init, t, p)
			}
		default:
			v.value(init, t, p)
		}
	}
}

// uncut are the types for which a number is wrong anyway.
var uncut = map[Kind]bool{String: true, Bytes: true, Float: true, Bool: true, Tuple: true, Array: true, Any: true}

// unset reports a local in an array that can be without a value.
func (v replyCheck) unset(local *luaast.Var, use *luaast.Name) {
	if local.Init != nil && !isNil(local.Init) || v.flow.tried[local] {
		return
	}
	if local.Writes > 0 {
		v.unsetOnAWay(local, use)
	} else if local.Init == nil && v.declares(local) != nil {
		v.at(use, "R001", use.Name+" is nil: nothing gives it a value",
			"nil cuts the array short: return false where the header says T?")
	}
}

func (v replyCheck) unsetOnAWay(local *luaast.Var, use *luaast.Name) {
	if set := v.unsetAt(local, use); set != nil {
		v.at(use, "R001", fmt.Sprintf("%s is nil where line %d gives it no value", use.Name, set.Start.Line),
			"nil cuts the array short: local "+use.Name+" = false, and T? in the header")
	}
}

// isReply reports a plain reply of a command, whose length only the server knows.
func (v replyCheck) isReply(e luaast.Expr) bool {
	c, ok := e.(*luaast.Call)
	return ok && v.redisName(c.Fn) == "call" && v.flow.replyForm(c) == reply
}

// isStart reports a table of the first fields of a tuple: the others come later.
func (v replyCheck) isStart(table *luaast.Table, t *Type) bool {
	n := len(table.Items)
	return t != nil && t.Kind == Tuple && n > 0 && n < len(t.Fields) && !v.isMulti(table.Items[n-1].Value) &&
		!slices.ContainsFunc(table.Items, func(item luaast.Item) bool { return item.Key != nil })
}

func (v replyCheck) calls(f *luaast.Func, t *Type, p place) {
	for _, r := range returns(f.Body) {
		if len(r.Exprs) > 0 {
			v.value(r.Exprs[0], t, p)
		}
	}
}

// shapeless reports a value without elements where an array is declared.
func (v replyCheck) shapeless(e luaast.Expr, t *Type, p place, what string) {
	if t != nil && (t.Kind == Tuple || t.Kind == Array) {
		v.at(
			e,
			"R003",
			fmt.Sprintf("%s is declared as an array, this is %s", p, what),
			"return a table with the declared fields in order",
		)
	}
}

func (v replyCheck) leaf(e luaast.Expr, t *Type, p place) {
	if v.isError(e) {
		if !p.top {
			v.at(e, "R006", "an error inside an array",
				"return it alone: some clients lose their place in the connection")
		}
		return
	}
	if t == nil {
		v.at(e, "R003", "the header declares no reply", "add ---@reply with the type, or return nothing")
		return
	}
	if c, ok := e.(*luaast.Const); ok {
		v.constant(c, *t, p)
		return
	}
	if table, ok := e.(*luaast.Table); ok && statusField(table) != "ok" {
		v.table(table, *t, p)
		return
	}
	v.plain(e, *t, p)
}

// isError reports an error that is made in place.
func (b *body) isError(e luaast.Expr) bool {
	if c, ok := e.(*luaast.Call); ok {
		return b.redisName(c.Fn) == "error_reply"
	}
	_, ok := errField(e)
	return ok
}

func (v replyCheck) constant(c *luaast.Const, t Type, p place) {
	switch {
	case c.Word == "nil" && p.top && t.Optional:
	case c.Word == "nil" && !p.top:
		v.at(c, "R001", "nil in "+p.String(), "nil cuts the array short: return false where the header says T?")
	case c.Word == "false" && (t.Optional || t.Kind == Bool || t.Kind == Array && !p.top):
	case c.Word == "true" && t.Kind == Bool:
	default:
		cure := "return a value of the declared type"
		if c.Word == "false" {
			cure = "false is an absent value: declare the type with ?"
		}
		v.at(c, "R003", fmt.Sprintf("%s for %s, declared as %s", c.Word, p, typeName(t)), cure)
	}
}

func (v replyCheck) table(table *luaast.Table, t Type, p place) {
	for _, item := range table.Items {
		if item.Key != nil {
			v.at(
				item.Value,
				"R003",
				"a named field in the reply",
				"Redis drops named fields: return values in the declared order",
			)
			return
		}
	}
	switch {
	case t.Kind == Tuple:
		v.tuple(table, t)
	case t.Kind == Array:
		v.rows(table, t, p)
	default:
		v.at(
			table,
			"R003",
			fmt.Sprintf("a table for %s, declared as %s", p, typeName(t)),
			"return the value itself, or declare an array",
		)
	}
}

func (v replyCheck) tuple(table *luaast.Table, t Type) {
	n := len(table.Items)
	if n > 0 && v.isMulti(table.Items[n-1].Value) {
		v.at(
			table.Items[n-1].Value,
			"R003",
			"the last value may stand for several",
			"put it in parentheses, or in a local first",
		)
		return
	}
	if n != len(t.Fields) {
		v.at(table, "R003", fmt.Sprintf("%d values returned, %d declared", n, len(t.Fields)),
			"return "+fieldList(t.Fields))
		return
	}
	v.fields(table, t.Fields)
}

// fields checks the values that the table has, each against its field.
func (v replyCheck) fields(table *luaast.Table, fields []Field) {
	for i, item := range table.Items {
		v.value(item.Value, &fields[i].Type, place{label: fields[i].Name})
	}
}

func (v replyCheck) rows(table *luaast.Table, t Type, p place) {
	n := len(table.Items)
	if n == 0 || v.isMulti(table.Items[n-1].Value) {
		return
	}
	fields := t.Elem.Fields
	if len(fields) == 0 {
		fields = []Field{{Name: p.label, Type: *t.Elem}}
	}
	if n%len(fields) != 0 {
		v.at(
			table,
			"R003",
			fmt.Sprintf("%d values do not make rows of %d", n, len(fields)),
			"rows lie flat, one after the other: "+fieldList(fields),
		)
		return
	}
	for i, item := range table.Items {
		f := fields[i%len(fields)]
		v.value(item.Value, &f.Type, place{label: f.Name})
	}
}

func fieldList(fields []Field) string {
	out := "{"
	for i, f := range fields {
		if i > 0 {
			out += ", "
		}
		out += f.Name
	}
	return out + "}"
}
