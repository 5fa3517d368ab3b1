package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// miss is a reply that is there only where something is stored.
type miss struct {
	command string
	what    string // the value where nothing is: "false", or "nil" behind tonumber
	where   string
}

func (m miss) String() string {
	return fmt.Sprintf("the reply of %s is %s where %s", m.command, m.what, m.where)
}

// missOf recognizes such a reply, also in a local that the script does not test.
func (f flow) missOf(e luaast.Expr) (miss, bool) {
	value, what := e, "false"
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil && v.Func == nil && !f.tried[v] {
		value = v.Init
	} else if v != nil {
		return miss{}, false
	}
	if c, ok := value.(*luaast.Call); ok && builtin(c) == "tonumber" && len(c.Args) == 1 {
		value, what = c.Args[0], "nil"
		if v := localVar(value); v != nil && f.tried[v] {
			return miss{}, false
		}
	}
	kind, name := f.kindOf(value)
	where := "there is nothing"
	if kind == statusOrFalse {
		where = "it sets nothing"
	}
	return miss{name, what, where}, kind.canMiss() && !f.isStored(value)
}

// checkMiss reports a reply that is not there where nothing is stored, in a place that needs a value.
func (f flow) checkMiss(e luaast.Expr, use string) { f.checkMissOr(e, use, "0") }

// checkMissOr is checkMiss with the value that the place takes instead.
func (f flow) checkMissOr(e luaast.Expr, use, value string) {
	m, ok := f.missOf(e)
	if !ok || f.isPart() || f.asksFirst(e) {
		return
	}
	f.at(e, "R008", fmt.Sprintf("%s, and here it is used %s", m, use),
		"test it first, or give it a value: ... or "+value)
}

// checkMissedText reports such a reply where a library or a method needs text: both raise an error. What a key holds
// that no header declares may always be there.
func (f flow) checkMissedText(c *luaast.Call) {
	if f.bare {
		return
	}
	if c.Method != "" {
		f.checkMissOr(c.Fn, "for its method "+c.Method, "''")
	}
	switch name := builtin(c); {
	case len(c.Args) == 0:
	case strings.HasPrefix(name, "string.") || name == "cjson.decode" || name == "cmsgpack.unpack":
		f.checkMissOr(c.Args[0], "in "+name, "''")
	case name == "struct.unpack" && len(c.Args) > 1:
		f.checkMissOr(c.Args[1], "in "+name, "''")
	}
}

// isPart reports a script that uses names of other files: they may have asked whether there is something.
func (f flow) isPart() bool {
	return f.elsewhere != nil && slices.ContainsFunc(f.Body.Globals, func(g luaast.Global) bool {
		return !knownGlobals[g.Name.Name] && f.elsewhere(g.Name.Name)
	})
}

// asksFirst reports that the script has asked for stored data on the way to the node: that may show that there is
// something.
func (f flow) asksFirst(n luaast.Node) bool {
	r := repeats{flow: f, changed: []spot{{key: everyKey{}}}, met: map[seenAs]bool{}}
	return r.isGuarded(n)
}

// triedVars are the locals that stand in a condition, or are compared, somewhere.
func (f flow) triedVars() map[*luaast.Var]bool {
	tried := map[*luaast.Var]bool{}
	luaast.Inspect(f.Body.Body, func(n, parent luaast.Node) bool {
		name, ok := n.(*luaast.Name)
		if ok && name.Var != nil && !tried[name.Var] {
			tried[name.Var] = f.tries(parent)
		}
		return true
	})
	return tried
}

// tries reports a node that asks whether the value in it is there.
func (f flow) tries(n luaast.Node) bool {
	switch p := n.(type) {
	case *luaast.If, *luaast.While, *luaast.Repeat:
		return true
	case *luaast.Unary:
		return p.Op == "not"
	case *luaast.Binary:
		return p.Op == "and" || p.Op == "or" || p.Op == "==" || p.Op == "~="
	case *luaast.Call:
		return builtin(p) == "type" || builtin(p) == "assert" || f.localFunc(p) != nil
	}
	return false
}

// measures reports that the script asks how long the list in the local is, or whether it has an element.
func (f flow) measures(v *luaast.Var) bool {
	found := false
	luaast.Inspect(f.Body.Body, func(n, parent luaast.Node) bool {
		if name, ok := n.(*luaast.Name); !ok || name.Var != v {
			return !found
		}
		switch p := parent.(type) {
		case *luaast.Unary:
			found = found || p.Op == "#" && f.asks(f.parents[p])
		case *luaast.Index:
			found = found || f.asks(f.parents[p])
		case *luaast.Call:
			found = found || builtin(p) == "next" && f.asks(f.parents[p])
		}
		return !found
	})
	return found
}

func (f flow) asks(n luaast.Node) bool {
	op, ok := n.(*luaast.Binary)
	return f.tries(n) || ok && isOrder(op.Op)
}

// checkMissedReplies reports a value of the reply that is not there where there is nothing, and is not declared so.
func (f flow) checkMissedReplies() {
	if f.bare || f.Reply == nil || f.Merge > 0 {
		return
	}
	for _, r := range returns(f.Body.Body) {
		if len(r.Exprs) == 0 {
			continue
		}
		table, isTable := r.Exprs[0].(*luaast.Table)
		switch {
		case !isTable:
			f.checkMissedReply(r.Exprs[0], *f.Reply, place{top: true})
		case f.Reply.Kind == Tuple && len(table.Items) == len(f.Reply.Fields):
			for i, item := range table.Items {
				f.checkMissedReply(item.Value, f.Reply.Fields[i].Type, place{label: f.Reply.Fields[i].Name})
			}
		}
	}
}

func (f flow) checkMissedReply(e luaast.Expr, t Type, p place) {
	m, ok := f.missOf(e)
	cuts := m.what == "nil" && !p.top
	takes := t.Optional || t.Kind == Bool || t.Kind == Any || t.Kind == Array || t.Kind == Tuple
	if !ok || takes && !cuts || f.asksFirst(e) {
		return
	}
	message := fmt.Sprintf("%s, and %s is declared as %s", m, p, typeName(t))
	cure := "declare " + typeName(t) + "?, or give it a value: ... or '0'"
	switch {
	case t.Kind == String && !cuts:
		cure = "declare string?, or give it a value: ... or ''"
	case takes:
		message = fmt.Sprintf("%s, and nil cuts the array short at %s", m, p)
		cure = "give it a value: ... or false"
	case cuts:
		cure = "give it a value: ... or 0, or ... or false and " + typeName(t) + "?"
	}
	f.at(e, "R008", message, cure)
}
