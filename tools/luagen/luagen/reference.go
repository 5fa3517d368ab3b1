package luagen

import (
	"cmp"
	"fmt"
	"strings"
)

// referenceWidth is that of the lines of a reference.
const referenceWidth = 110

// Reference describes scripts in Markdown, in the order given: what each does, its keys, arguments, reply and errors,
// and what it promises.
func Reference(title string, scripts []*Script) string {
	r := &reference{}
	r.printf("# %s\n\n<!-- Written by luagen doc from the headers of the scripts. -->\n\n", title)
	headings := map[string]int{}
	for _, s := range scripts {
		first, _, _ := strings.Cut(strings.Join(s.Doc, " "), ". ")
		title := inDomain(s.Domain, s.Stem)
		at := title
		if n := headings[title]; n > 0 { // Markdown numbers headings of one text
			at += fmt.Sprint("-", n)
		}
		headings[title]++
		r.item(fmt.Sprintf("[%s](#%s): %s", title, at, escaped(sentence(strings.TrimPrefix(first, s.GoName+" ")))))
	}
	for _, s := range scripts {
		r.script(s)
	}
	return r.String()
}

type reference struct{ strings.Builder }

func (r *reference) printf(format string, args ...any) { fmt.Fprintf(r, format, args...) }

// item prints one item of a list, wrapped.
func (r *reference) item(text string) { r.wrapped("- ", text) }

// wrapped prints text behind a lead, its further lines below the first.
func (r *reference) wrapped(lead, text string) {
	for _, line := range wrap(text, referenceWidth) {
		r.printf("%s%s\n", lead, line)
		lead = strings.Repeat(" ", len(lead))
	}
}

// prose prints a description. Markdown wants an empty line between a paragraph and a list.
func (r *reference) prose(lines []string) {
	last := gap
	for _, b := range proseParts(lines) {
		if b.kind == item && last == paragraph {
			r.printf("\n")
		}
		last = b.kind
		switch b.kind {
		case paragraph:
			r.wrapped("", escaped(b.text))
		case item:
			r.wrapped(b.mark+" ", escaped(b.text))
		case verbatim:
			r.printf("    %s\n", b.text)
		case gap:
			r.printf("\n")
		}
	}
	r.printf("\n")
}

func (r *reference) script(s *Script) {
	r.printf("\n## %s\n\n", inDomain(s.Domain, s.Stem))
	r.prose(s.Doc)
	for _, k := range s.Keys {
		r.key(k, s.Merge)
	}
	for _, a := range s.Args {
		r.item("ARGV " + withProse(code(a.Name)+" "+typeText(a.Type)+boundText(a.Min, a.Max), escaped(a.Prose)))
	}
	if g := s.Group; g != nil {
		text := typeText(Type{Kind: Tuple, Fields: g.Fields})
		if !g.Tuple {
			text = typeText(g.Fields[0].Type)
		}
		r.item("ARGV " + withProse(fmt.Sprintf("%s %s, at most %d times", code(g.Name), text, g.Max), escaped(g.Prose)))
	}
	if s.Reply != nil {
		r.item("Reply " + withProse(typeText(*s.Reply), escaped(s.ReplyProse)))
	}
	for _, e := range s.Errors {
		r.item("Error " + withProse(code(e.Name), escaped(e.Text)))
	}
	r.promises(s)
}

func (r *reference) key(k Key, rows int) {
	text := cmp.Or(k.Type, "of any type")
	if len(k.Fields) > 0 {
		var parts []string
		for _, f := range k.Fields {
			parts = append(parts, strings.TrimSpace(f.Name+" "+f.Type))
		}
		text = "(" + strings.Join(parts, ", ") + ")"
	}
	if k.Variadic && rows == 0 {
		text += fmt.Sprintf(", at most %d times", k.Max)
	}
	if k.Template != "" {
		text += ", " + code(k.Template)
	}
	r.item("KEYS " + withProse(code(k.Name)+" "+text, escaped(k.Prose)))
}

func (r *reference) promises(s *Script) {
	if s.ReadOnly {
		r.item("Contract: reads only; may run on a replica")
	} else {
		r.item("Contract " + withProse(s.Contract.Word,
			escaped(cmp.Or(s.Contract.Prose, contractText[s.Contract.Word]))))
	}
	r.item("Retry " + withProse(cmp.Or(s.Retry.Word, "never"), escaped(s.Retry.Prose)))
	if s.Merge > 0 {
		r.item(fmt.Sprintf("For many: one call takes up to %d rows of KEYS and ARGV, and replies with the values of "+
			"all", s.Merge))
	}
	if s.Guard != "" {
		r.item("Guard " + code(s.Guard))
	}
	if s.Cost != "" {
		r.item("Cost " + escaped(s.Cost))
	}
}

func code(text string) string { return "`" + text + "`" }

// escaped keeps what Markdown would read as its own.
func escaped(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "|", `\|`, "[", `\[`).Replace(text)
}

func boundText(low, high *int64) string {
	switch {
	case low != nil && high != nil:
		return fmt.Sprintf(", %d to %d", *low, *high)
	case low != nil:
		return fmt.Sprintf(", %d or more", *low)
	case high != nil:
		return fmt.Sprintf(", %d or less", *high)
	}
	return ""
}

// typeText is a type as the header writes it.
func typeText(t Type) string {
	text := ""
	switch t.Kind {
	case Array:
		return typeText(*t.Elem) + "[]"
	case Tuple:
		var parts []string
		for _, f := range t.Fields {
			parts = append(parts, f.Name+" "+typeText(f.Type))
		}
		text = "(" + strings.Join(parts, ", ") + ")"
	case Enum:
		var parts []string
		for _, v := range t.Values {
			parts = append(parts, fmt.Sprintf("%s=%d", v.Name, v.Value))
		}
		text = "enum(" + strings.Join(parts, ", ") + ")"
	default:
		for name, kind := range kindNames {
			if kind == t.Kind {
				text = name
			}
		}
	}
	if t.Optional {
		text += "?"
	}
	return text
}
