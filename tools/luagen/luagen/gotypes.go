package luagen

import "fmt"

// goKinds are the Go types of the plain kinds, and the names of the runtime's methods that read and write them.
var goKinds = map[Kind]struct{ goType, method string }{
	Int: {"int64", "Int"}, Uint: {"uint64", "Uint"}, Bool: {"bool", "Bool"}, Float: {"float64", "Float"},
	String: {"string", "String"}, Bytes: {"[]byte", "Bytes"}, Millis: {"time.Duration", "Milliseconds"},
	Seconds: {"time.Duration", "Seconds"}, Any: {"any", "Any"}, TimeMillis: {"time.Time", "TimeMilli"},
	TimeSeconds: {"time.Time", "TimeSec"},
}

// goType names the Go type of t; name is the declared name that enums and rows derive theirs from.
func (e *emitter) goType(t Type, name string) string {
	base := ""
	switch t.Kind {
	case Array:
		if t.Elem.Kind == Tuple {
			return "[]" + e.rowType(name)
		}
		return "[]" + e.goType(*t.Elem, singularName(name))
	case Enum:
		base = e.enumType(name)
	case Tuple:
		base = e.GoName + "Result"
	default:
		base = goKinds[t.Kind].goType
	}
	if t.Optional {
		return "lua.Opt[" + base + "]"
	}
	return base
}

// rowType is the struct of one element of a group or of rows; name "" is the whole reply.
func (e *emitter) rowType(name string) string {
	if name == "" {
		return e.GoName + "Row"
	}
	return e.GoName + singular(name)
}

func (e *emitter) enumType(name string) string {
	if name == "" {
		return e.GoName + "Result"
	}
	return e.GoName + camel(name)
}

// resultType is what the generated function returns; "" for a script without a reply.
func (e *emitter) resultType() string {
	if e.Reply == nil {
		return ""
	}
	return e.goType(*e.Reply, "")
}

// param is one field of the Params struct.
type param struct {
	goName, goType, comment string
	name                    string // in the header
	pos                     Pos
}

// params lists the fields: template parameters, keys the caller passes, arguments, the group.
func (e *emitter) params() []param {
	var out []param
	for _, p := range e.templateParams() {
		out = append(out, param{camel(p.name), "string", p.comment, p.name, p.pos})
	}
	for i, k := range e.Keys {
		if k.Template != "" && !k.Variadic {
			continue
		}
		goType, place := "string", fmt.Sprintf("KEYS[%d]", i+1)
		if k.Variadic {
			goType, place = "[]string", place+" and on"
			if k.Template != "" {
				place += fmt.Sprintf(", %q", k.Template)
			}
			if len(k.Fields) > 0 {
				place = fmt.Sprintf("%s, %d for each", place, len(k.Fields))
			}
			if len(e.rowFields(&k)) > 0 {
				goType = "[]" + e.rowType(k.Name)
			}
			if e.Tied() {
				place += fmt.Sprintf("; ARGV[%d] and on", len(e.Args)+1)
			}
			if k.Max > 0 {
				place += fmt.Sprintf(", at most %d", k.Max)
			}
		}
		out = append(out, param{e.keyField(k), goType, fieldComment(place, k.Type, k.Prose), k.Name, k.Pos})
	}
	for i, a := range e.Args {
		if e.isTemplateParam(a.Name) {
			continue
		}
		out = append(out, param{camel(a.Name), e.goType(a.Type, a.Name), fieldComment(fmt.Sprintf("ARGV[%d]", i+1),
			wireNote(a), a.Prose), a.Name, a.Pos})
	}
	if g := e.Group; g != nil && !e.Tied() {
		place := fmt.Sprintf("ARGV[%d] and on, at most %d", len(e.Args)+1, g.Max)
		out = append(out, param{plural(g.Name), "[]" + e.groupElem(), fieldComment(place, "", g.Prose),
			g.Name, g.Pos})
	}
	return out
}

func (e *emitter) keyField(k Key) string {
	if k.Variadic {
		return plural(k.Name)
	}
	return camel(k.Name)
}

// keyFields are the keys of one element as fields of its struct; none for plain @keys.
func keyFields(k *Key) []Field {
	var fields []Field
	for _, f := range k.Fields {
		fields = append(fields, Field{f.Name, Type{Kind: String}, f.Pos})
	}
	return fields
}

func (e *emitter) groupElem() string {
	if e.Group.Tuple {
		return e.rowType(e.Group.Name)
	}
	return e.goType(e.Group.Fields[0].Type, singularName(e.Group.Name))
}

// templateParam is a parameter of one or more key templates.
type templateParam struct {
	name, comment string
	pos           Pos // of the first key
}

func (e *emitter) templateParams() []templateParam {
	var out []templateParam
	for i, line := range e.Keys {
		for j, k := range line.Elements() {
			parts, _ := splitTemplate(k.Template)
			for _, p := range parts {
				if p.Param == "" || hasParam(out, p.Param) || line.Variadic && p.Param == line.Name {
					continue
				}
				comment := fmt.Sprintf("in KEYS[%d], %q", i+j+1, k.Template)
				for n, a := range e.Args {
					if a.Name == p.Param {
						comment += fmt.Sprintf("; also ARGV[%d]", n+1)
					}
				}
				out = append(out, templateParam{p.Param, comment, k.Pos})
			}
		}
	}
	return out
}

func hasParam(params []templateParam, name string) bool {
	for _, p := range params {
		if p.name == name {
			return true
		}
	}
	return false
}

func (e *emitter) isTemplateParam(name string) bool { return hasParam(e.templateParams(), name) }

func fieldComment(place, note, prose string) string {
	if note != "" {
		place += ", " + note
	}
	if prose != "" {
		place += ": " + prose
	}
	return place
}

// wireNote tells the unit and the bounds, which the Go type does not.
func wireNote(a Arg) string {
	note := map[Kind]string{Millis: "ms", Seconds: "s", TimeMillis: "Unix milliseconds",
		TimeSeconds: "Unix seconds"}[a.Type.Kind]
	bounds := ""
	switch {
	case a.Min != nil && a.Max != nil:
		bounds = fmt.Sprintf("%d to %d", *a.Min, *a.Max)
	case a.Min != nil:
		bounds = fmt.Sprintf("at least %d", *a.Min)
	case a.Max != nil:
		bounds = fmt.Sprintf("at most %d", *a.Max)
	}
	if bounds == "" || note == "" {
		return bounds + note
	}
	return bounds + " " + note
}
