package luagen

import "fmt"

// decoders prints the function that turns the reply into the result, and one for each enum of the reply.
func (e *emitter) decoders() {
	result := e.resultType()
	if result == "" {
		e.printf("func decode%s(*lua.Reply) struct{} { return struct{}{} }\n", e.GoName)
		return
	}
	e.printf("func decode%s(r *lua.Reply) %s {\n", e.GoName, result)
	switch {
	case e.Reply.Kind == Tuple:
		e.decodeTuple(result)
	case e.Reply.Kind == Array || e.Reply.Optional:
		e.printf("\tvar v %s\n", result)
		e.decodeInto("v", "r", *e.Reply, "", "reply")
		e.printf("\treturn v\n}\n\n")
	default:
		e.printf("\treturn %s\n}\n\n", e.read("r", *e.Reply, "", "reply"))
	}
	for _, en := range e.replyEnums() {
		e.enumDecoder(en)
	}
}

func (e *emitter) decodeTuple(result string) {
	e.printf("\tvar v %sResult\n", e.GoName)
	if e.Reply.Optional {
		e.printf("\tif r.Absent() {\n\treturn %s{}\n\t}\n", result)
	}
	e.printf("\tr.Tuple(%d)\n", len(e.Reply.Fields))
	for _, f := range e.Reply.Fields {
		e.decodeInto("v."+camel(f.Name), "r", f.Type, f.Name, f.Name)
	}
	if e.Reply.Optional {
		e.printf("\treturn lua.Some(v)\n}\n\n")
		return
	}
	e.printf("\treturn v\n}\n\n")
}

// decodeInto prints the statements that read one value from walker into dst. name derives Go types, label names the
// field in errors.
func (e *emitter) decodeInto(dst, walker string, t Type, name, label string) {
	switch {
	case t.Kind == Array:
		e.decodeArray(dst, walker, t, name, label)
	case t.Optional:
		t.Optional = false
		e.printf("\tif !%s.Absent() {\n\t%s = lua.Some(%s)\n\t}\n", walker, dst, e.read(walker, t, name, label))
	default:
		e.printf("\t%s = %s\n", dst, e.read(walker, t, name, label))
	}
}

func (e *emitter) decodeArray(dst, walker string, t Type, name, label string) {
	stride := max(1, len(t.Elem.Fields))
	e.printf("\tif rows, n := %s.Rows(%q, %d); n > 0 {\n", walker, label, stride)
	e.printf("\t%s = make(%s, n)\n\tfor i := range %s {\n", dst, e.goType(t, name), dst)
	if t.Elem.Kind == Tuple {
		e.printf("\te := &%s[i]\n", dst)
		for _, f := range t.Elem.Fields {
			e.decodeInto("e."+camel(f.Name), "rows", f.Type, f.Name, f.Name)
		}
	} else {
		e.decodeInto(dst+"[i]", "rows", *t.Elem, singularName(name), label)
	}
	e.printf("\t}\n\t}\n")
}

// read is the expression that takes one plain value.
func (e *emitter) read(walker string, t Type, name, label string) string {
	if t.Kind == Enum {
		return fmt.Sprintf("decode%s(%s, %q)", e.enumType(name), walker, label)
	}
	return fmt.Sprintf("%s.%s(%q)", walker, goKinds[t.Kind].method, label)
}

func (e *emitter) replyEnums() []enum {
	reply := emitter{Script: &Script{GoName: e.GoName, Reply: e.Reply}}
	return reply.enums()
}

// enumDecoder refuses a number the header does not know.
func (e *emitter) enumDecoder(en enum) {
	e.printf("func decode%s(r *lua.Reply, name string) %s {\n\tv := %s(r.Int(name))\n\tswitch v {\n\tcase ", en.goType,
		en.goType, en.goType)
	for i, v := range en.values {
		if i > 0 {
			e.printf(", ")
		}
		e.printf("%s%s", en.goType, camel(v.Name))
	}
	e.printf(":\n\tdefault:\n\tr.Fail(name, %q)\n\t}\n\treturn v\n}\n\n", enumWant(en.values))
}

func enumWant(values []EnumValue) string {
	want := "one of"
	for i, v := range values {
		if i > 0 {
			want += ","
		}
		want += fmt.Sprintf(" %d (%s)", v.Value, v.Name)
	}
	return want
}
