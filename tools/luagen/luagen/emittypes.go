package luagen

import (
	"fmt"
	"slices"
	"strings"
)

// types prints Params, enums, group elements, rows and the Result.
func (e *emitter) types() {
	e.doc(fmt.Sprintf("%sParams are the keys and arguments of %s.", e.GoName, e.GoName))
	e.printf("type %sParams struct {\n", e.GoName)
	for _, p := range e.params() {
		e.paramField(p)
	}
	e.printf("}\n\n")
	for _, enum := range e.enums() {
		e.enumDecl(enum)
	}
	for _, st := range e.structs() {
		e.structDecl(st)
	}
}

// paramField prints a short comment behind the field and a long one above it.
func (e *emitter) paramField(p param) {
	const room = 70
	if len(p.comment) > room {
		e.doc(sentence(p.comment))
		e.printf("\t%s %s\n", p.goName, p.goType)
		return
	}
	e.printf("\t%s %s // %s\n", p.goName, p.goType, p.comment)
}

// structType is one struct to print besides Params.
type structType struct {
	goType, what, doc string
	fields            []Field
	pos               Pos
}

// structs lists group elements, rows and the Result; the same fields in a group and in rows of one name are one type.
func (e *emitter) structs() []structType {
	var out []structType
	if k := e.VariadicKey(); k != nil && len(e.rowFields(k)) > 0 {
		what := "are the keys of one element of %sParams.%s."
		if e.Tied() {
			what = "is one element of %sParams.%s: its keys and its arguments."
		}
		out = append(out, structType{e.rowType(k.Name), "@keys " + k.Name, fmt.Sprintf(what, e.GoName, plural(k.Name)),
			e.rowFields(k), k.Pos})
	}
	if g := e.Group; g != nil && g.Tuple && !e.Tied() {
		out = append(out, structType{e.groupElem(), "@args " + g.Name, fmt.Sprintf("is one element of %sParams.%s.",
			e.GoName, plural(g.Name)), g.Fields, g.Pos})
	}
	if e.Reply == nil {
		return out
	}
	if e.Reply.Kind == Array && e.Reply.Elem.Kind == Tuple {
		return append(out, structType{e.rowType(""), "the reply", "is one row of the reply of " + e.GoName + ".",
			e.Reply.Elem.Fields, e.ReplyPos})
	}
	for _, f := range e.Reply.Fields {
		if f.Type.Kind != Array || f.Type.Elem.Kind != Tuple {
			continue
		}
		n := slices.IndexFunc(out, func(st structType) bool {
			return e.Group != nil && st.what == "@args "+e.Group.Name && st.goType == e.rowType(f.Name) &&
				sameFields(st.fields, f.Type.Elem.Fields)
		})
		if n >= 0 {
			out[n].doc = fmt.Sprintf("is one element of %sParams.%s and one row of %sResult.%s.", e.GoName,
				plural(e.Group.Name), e.GoName, camel(f.Name))
			continue
		}
		out = append(out, structType{e.rowType(f.Name), "the rows " + f.Name, fmt.Sprintf("is one row of %sResult.%s.",
			e.GoName, camel(f.Name)), f.Type.Elem.Fields, f.Pos})
	}
	if e.Reply.Kind == Tuple {
		out = append(out, structType{e.GoName + "Result", "the reply", "is the reply of " + e.GoName + ".",
			e.Reply.Fields, e.ReplyPos})
	}
	return out
}

func sameFields(a, b []Field) bool {
	return slices.EqualFunc(a, b, func(x, y Field) bool {
		return x.Name == y.Name && x.Type.Kind == y.Type.Kind && x.Type.Optional == y.Type.Optional &&
			sameValues(x.Type.Values, y.Type.Values)
	})
}

func (e *emitter) structDecl(st structType) {
	e.doc(st.goType + " " + st.doc)
	e.printf("type %s struct {\n", st.goType)
	for _, f := range st.fields {
		e.printf("\t%s %s\n", camel(f.Name), e.goType(f.Type, f.Name))
	}
	e.printf("}\n\n")
}

// enum is one Go type to print; the same enum in an argument and in the reply is one type.
type enum struct {
	goType, name string
	values       []EnumValue
	pos          Pos
}

func (e *emitter) enums() []enum {
	var out []enum
	add := func(t Type, name string) {
		if t.Kind == Array {
			t, name = *t.Elem, singularName(name)
		}
		if t.Kind != Enum {
			return
		}
		en := enum{e.enumType(name), name, t.Values, t.Pos}
		for _, have := range out {
			if have.goType == en.goType && sameValues(have.values, en.values) {
				return
			}
		}
		out = append(out, en)
	}
	for _, a := range e.Args {
		add(a.Type, a.Name)
	}
	if g := e.Group; g != nil {
		for _, f := range g.Fields {
			name := f.Name
			if !g.Tuple {
				name = singularName(name)
			}
			add(f.Type, name)
		}
	}
	if e.Reply != nil {
		add(*e.Reply, "")
		eachType(*e.Reply, func(t Type) {
			for _, f := range t.Fields {
				add(f.Type, f.Name)
			}
		})
	}
	return out
}

func sameValues(a, b []EnumValue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].Value != b[i].Value {
			return false
		}
	}
	return true
}

func (e *emitter) enumDecl(en enum) {
	what := en.name
	if what == "" {
		what = "reply"
	}
	e.doc(fmt.Sprintf("%s is the %s of %s.", en.goType, strings.ReplaceAll(what, "_", " "), e.GoName))
	e.printf("type %s int64\n\n// The values of %s.\nconst (\n", en.goType, en.goType)
	for _, v := range en.values {
		e.printf("\t%s%s %s = %d\n", en.goType, camel(v.Name), en.goType, v.Value)
	}
	e.printf(")\n\n// String returns the value's name in the script's header, or its number.\nfunc (v %s) String() "+
		"string {\n\tswitch v {\n", en.goType)
	for _, v := range en.values {
		e.printf("\tcase %s%s:\n\t\treturn %q\n", en.goType, camel(v.Name), v.Name)
	}
	e.printf("\t}\n\treturn strconv.FormatInt(int64(v), 10)\n}\n\n")
}
