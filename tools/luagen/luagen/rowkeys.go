package luagen

import "fmt"

// Tied reports that each element of @keys goes with one of @args: both lines have one name, and one list of the Go
// parameters holds both, so that neither is shorter than the other.
func (s *Script) Tied() bool {
	k := s.VariadicKey()
	return k != nil && s.Group != nil && s.Group.Name == k.Name
}

// Templated reports that the keys of an element are made of its name.
func (k *Key) Templated() bool {
	return k.Template != "" || len(k.Fields) > 0 && k.Fields[0].Template != ""
}

// checkRows checks the templates of @keys, and what ties its elements to those of @args.
func (h *headerParser) checkRows() {
	k := h.VariadicKey()
	if k == nil {
		return
	}
	if k.Templated() {
		h.checkRowTemplates(k)
	}
	if !h.Tied() {
		return
	}
	g := h.Group
	switch {
	case !g.Tuple:
		h.fail(g.Pos, len(g.Name), "H007", "@args "+g.Name+" goes with @keys "+k.Name+", and its values have no names",
			fmt.Sprintf("write ---@args %s (%s) max=%d", g.Name, "name type", g.Max))
	case k.Max != 0 && k.Max != g.Max:
		h.fail(k.Pos, len(k.Name), "H007",
			fmt.Sprintf("max=%d of @keys differs from max=%d of @args, and both are one list", k.Max, g.Max),
			"give the max once, with @args")
	}
	k.Max = g.Max
}

func (h *headerParser) checkRowTemplates(k *Key) {
	for _, one := range k.Elements() {
		switch {
		case one.Template == "":
			h.fail(one.Pos, len(one.Name), "H003", one.Name+" has no template, and others of its group have one",
				"give each key of the group a template")
		case !usesParam(one.Template, k.Name):
			h.fail(one.Pos, len(one.Name), "H003",
				"the template does not name $"+k.Name+": all elements would be one key",
				fmt.Sprintf("put the element's own part into it, as in \"stock:{$shop}:$%s\"", k.Name))
		default:
			if tag, _ := hashTag(one.Template); usesParam(tag, k.Name) && h.Slots.Word != "any" {
				h.fail(one.Pos, len(one.Name), "K006", "the hash tag {"+tag+"} is another one for each element",
					"keys of one script live in one slot: put a parameter that all share in braces")
			}
		}
	}
}

func usesParam(template, name string) bool {
	parts, _ := splitTemplate(template)
	for _, p := range parts {
		if p.Param == name {
			return true
		}
	}
	return false
}

// rowFields are the fields of the struct of one element: its name or its keys, and what @args ties to them.
func (s *Script) rowFields(k *Key) []Field {
	var fields []Field
	switch {
	case len(k.Fields) > 0 && !k.Templated():
		fields = keyFields(k)
	case s.Tied():
		fields = []Field{{k.Name, Type{Kind: String}, k.Pos}}
	}
	if s.Tied() {
		fields = append(fields, s.Group.Fields...)
	}
	return fields
}

// callRowKeys prints the loop that lays out the keys of each element.
func (e *emitter) callRowKeys(k Key) {
	field := "p." + e.keyField(k)
	e.printf("\tc.KeyGroup(%q, len(%s), %d)\n\tfor i := range %s {\n", k.Name, field, k.Max, field)
	elem := field + "[i]"
	if len(e.rowFields(&k)) > 0 {
		e.printf("\te := &%s\n", elem)
		elem = "e." + camel(k.Name)
	}
	if k.Templated() {
		e.printf("\tc.Name(%q, %s)\n", k.Name, elem)
	}
	for _, one := range k.Elements() {
		switch {
		case k.Templated():
			e.printf("\tc.Key(%q, %s)\n", one.Name, templateExpr(one.Template, k.Name, elem))
		case len(k.Fields) > 0:
			e.printf("\tc.Key(%q, e.%s)\n", one.Name, camel(one.Name))
		default:
			e.printf("\tc.Key(%q, %s)\n", one.Name, elem)
		}
	}
	e.printf("\t}\n")
}
