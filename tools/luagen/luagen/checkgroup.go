package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkComputed judges KEYS[expr] and ARGV[expr].
func (b *body) checkComputed(i *luaast.Index, isKey bool) {
	name := i.Obj.(*luaast.Name).Name
	if !b.variadic(isKey) {
		b.wholes[name] = true
		return
	}
	loop, place, ok := b.placeOfEntry(i.Key, isKey)
	if !ok || !b.checkStep(loop, place, i, isKey) {
		return
	}
	switch {
	case isKey && len(b.VariadicKey().Fields) > 0:
		b.checkFieldName(i, b.VariadicKey().Name, fieldNames(keyFields(b.VariadicKey())), place)
	case !isKey && b.Group.Tuple:
		b.checkFieldName(i, b.Group.Name, fieldNames(b.Group.Fields), place)
	}
}

// indexParts takes i, i + 2 and i - 1 apart.
func indexParts(e luaast.Expr) (*luaast.Var, int, bool) {
	if v := localVar(e); v != nil {
		return v, 0, true
	}
	op, ok := e.(*luaast.Binary)
	if !ok || op.Op != "+" && op.Op != "-" {
		return nil, 0, false
	}
	v := localVar(op.L)
	n, ok := op.R.(*luaast.Number)
	if v == nil || !ok {
		return nil, 0, false
	}
	if op.Op == "-" {
		return v, -int(n.Value), true
	}
	return v, int(n.Value), true
}

func (b *body) stride(isKey bool) int {
	if isKey {
		return len(b.VariadicKey().Elements())
	}
	return len(b.Group.Fields)
}

// placeOfEntry is which entry of its group KEYS[i + 2] or ARGV[i + 2] is in the first turn of a loop; it is below 0 for
// a fixed one. A loop that counts something else, by a start that is no literal, cannot be judged.
func (b *body) placeOfEntry(index luaast.Expr, isKey bool) (loop *luaast.NumFor, place int, ok bool) {
	v, offset, ok := indexParts(index)
	if loop = b.loopVars[v]; !ok || loop == nil {
		return nil, 0, false
	}
	start, ok := loop.Start.(*luaast.Number)
	if !ok {
		return nil, 0, false
	}
	return loop, int(start.Value) + offset - b.fixed(isKey) - 1, true
}

// checkStep compares a loop over the entries with the header: each turn has a group of its own, whatever the loop
// counts from.
func (b *body) checkStep(loop *luaast.NumFor, place int, i *luaast.Index, isKey bool) bool {
	step := 1
	if loop.Step != nil {
		n, ok := integer(loop.Step)
		if !ok {
			return false
		}
		step = n
	}
	stride := b.stride(isKey)
	if step == stride && place >= 0 && place < stride {
		return true
	}
	name, start, want := i.Obj.(*luaast.Name).Name, loop.Start.(*luaast.Number).Value, b.fixed(isKey)+1
	if step == stride && start == float64(want) {
		b.at(i, "A002", fmt.Sprintf("offset %d is outside the group of %d", place, stride),
			fmt.Sprintf("an element stands at %s[%s] to %s[%s + %d]", name, loop.Var.Name, name,
				loop.Var.Name, stride-1))
		return false
	}
	cure := fmt.Sprintf("for %s = %d, #%s, %d do", loop.Var.Name, want, name, stride)
	if stride == 1 {
		cure = fmt.Sprintf("for %s = %d, #%s do", loop.Var.Name, want, name)
	}
	d := Diagnostic{b.File, Pos{loop.Span.Start.Line, loop.Span.Start.Col}, len("for"), "A002",
		fmt.Sprintf("the loop over %s starts at %v and steps by %v", name, start, step), "the header says: " + cure}
	*b.found = append(*b.found, d)
	return false
}

// checkFieldName wants `local id = ARGV[i]` to be named as the field is.
func (b *body) checkFieldName(i *luaast.Index, group string, names []string, offset int) {
	want := names[offset]
	var expr luaast.Expr = i
	if call, ok := b.parents[i].(*luaast.Call); ok && builtin(call) == "tonumber" {
		expr = call
	}
	local, ok := b.parents[expr].(*luaast.Local)
	if !ok {
		return
	}
	for k, e := range local.Exprs {
		if e == expr && k < len(local.Vars) && local.Vars[k].Name != want {
			rule := "K004"
			if slices.Contains(names, local.Vars[k].Name) {
				rule = "K008" // one would be taken for the other
			}
			b.at(local.Vars[k], rule, fmt.Sprintf("this field of %s is declared as %s, not %s", group, want,
				local.Vars[k].Name),
				"give the local the declared name, or fix the order in the header")
		}
	}
}

func fieldNames(fields []Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func (b *body) checkIpairs(c *luaast.Call, isKey bool) {
	name := c.Args[0].(*luaast.Name).Name
	if n := b.fixed(isKey); n > 0 || b.stride(isKey) > 1 {
		b.at(c, "A002", "ipairs("+name+") visits the fixed entries too, one by one",
			fmt.Sprintf("write for i = %d, #%s, %d do", n+1, name, b.stride(isKey)))
	}
}

// unpackLimit is the most values one unpack may give: thousands of values on the Lua stack slow the server down, 8000
// raise an error.
const unpackLimit = 1000

func (b *body) checkUnpackArgs(c *luaast.Call, isKey bool) {
	name := c.Args[0].(*luaast.Name).Name
	n := b.fixed(isKey)
	from := 1.0
	if len(c.Args) > 1 {
		num, ok := c.Args[1].(*luaast.Number)
		if !ok {
			return
		}
		from = num.Value
	}
	if from != float64(n+1) && len(c.Args) < 3 && !isKey {
		b.at(
			c,
			"A002",
			fmt.Sprintf("unpack(%s) starts at %v, the group at %d", name, from, n+1),
			fmt.Sprintf("write unpack(%s, %d)", name, n+1),
		)
	}
	most := b.stride(isKey)
	if isKey {
		most *= b.VariadicKey().Max
	} else {
		most *= b.Group.Max
	}
	if len(c.Args) < 3 && (most == 0 || most > unpackLimit) {
		b.at(
			c,
			"B001",
			fmt.Sprintf("unpack(%s) without a bound", name),
			fmt.Sprintf("declare a max that gives at most %d values, or unpack in parts: unpack(%s, i, j)",
				unpackLimit, name),
		)
	}
}

// checkVariadicUsed reports a group the script never looks at, and fields that no loop reads.
func (b *body) checkVariadicUsed() {
	for _, isKey := range []bool{true, false} {
		if !b.variadic(isKey) {
			continue
		}
		used, fields, known := b.variadicUses(isKey)
		pos, name, word, fieldsOf := Pos{}, "", "ARGV", []Field(nil)
		if isKey {
			pos, name, word, fieldsOf = b.VariadicKey().Pos, b.VariadicKey().Name, "KEYS", keyFields(b.VariadicKey())
		} else {
			pos, name, fieldsOf = b.Group.Pos, b.Group.Name, b.Group.Fields
		}
		if !used {
			names := b.namesOf(name, fieldsOf)
			b.header(
				pos,
				len(names[0]),
				"K005",
				strings.Join(names, " and ")+isOrAre[len(names) > 1]+" declared and never used",
				"loop over its entries, or remove the declaration",
			)
			continue
		}
		if !known {
			continue
		}
		for k, f := range fieldsOf {
			if !fields[k] {
				b.header(
					f.Pos,
					len(f.Name),
					"K005",
					fmt.Sprintf("field %s is declared and never read", f.Name),
					fmt.Sprintf("read it as %s[i + %d], or remove it", word, k),
				)
			}
		}
	}
}

var isOrAre = map[bool]string{false: " is", true: " are"}

// namesOf are the names of a list in the header. The row of @merge has none there, but its fields have.
func (b *body) namesOf(name string, fields []Field) []string {
	if b.Merge > 0 && len(fields) > 0 {
		return fieldNames(fields)
	}
	return []string{name}
}

// variadicUses tells which fields are read; known is false as soon as one use cannot be resolved to a field.
func (b *body) variadicUses(isKey bool) (used bool, fields map[int]bool, known bool) {
	fields, known = map[int]bool{}, true
	word := "ARGV"
	if isKey {
		word = "KEYS"
	}
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		name, ok := n.(*luaast.Name)
		if !ok || !isGlobal(name, word) {
			return true
		}
		i, isIndex := parent.(*luaast.Index)
		if !isIndex {
			u, isUnary := parent.(*luaast.Unary)
			used = true
			known = known && isUnary && u.Op == "#"
			return true
		}
		if e, ok := entry(i); ok {
			if e.index > b.fixed(isKey) {
				used, known = true, false
			}
			return true
		}
		used = true
		_, place, ok := b.placeOfEntry(i.Key, isKey)
		known = known && ok
		fields[place] = true
		return true
	})
	return used, fields, known
}
