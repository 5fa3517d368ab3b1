package luagen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var kindNames = map[string]Kind{
	"int": Int, "uint": Uint, "bool": Bool, "float": Float, "string": String, "bytes": Bytes,
	"ms": Millis, "s": Seconds, "time.ms": TimeMillis, "time.s": TimeSeconds, "any": Any,
}

const typeUse = "types are int uint bool float string bytes ms s time.ms time.s enum(a=1, b=2), T? and, in replies, " +
	"T[], " +
	"(name type, ...) and any"

// parseType reads one type. The caller checks that it may stand where it does.
func (h *headerParser) parseType(s *scanner, tuples bool) (Type, bool) {
	start, pos := s.off, s.pos()
	typ := Type{Pos: pos}
	var ok bool
	switch {
	case !s.done() && s.text[s.off] == '(' && tuples:
		s.accept('(')
		typ.Kind = Tuple
		typ.Fields, ok = h.fields(s)
	case s.ident() == "enum":
		typ.Kind = Enum
		s.skip(len("enum"))
		typ.Values, ok = h.enumValues(s, pos)
	default:
		ok = h.baseType(s, &typ)
	}
	if !ok {
		return typ, false
	}
	typ.Width = len(strings.TrimRight(s.text[start:s.off], " \t\r\n"))
	return suffixes(s, typ), true
}

func (h *headerParser) baseType(s *scanner, typ *Type) bool {
	pos, name := s.pos(), s.ident()
	if rest := s.text[s.off+len(name):]; name == "time" && strings.HasPrefix(rest, ".") {
		unit := *s
		unit.off += len("time.")
		name += "." + unit.ident()
	}
	kind, ok := kindNames[name]
	if !ok {
		if name == "" {
			name = s.word()
		}
		h.fail(pos, len(name), "H005", fmt.Sprintf("%q is not a type", name), typeUse)
		return false
	}
	typ.Kind = kind
	s.skip(len(name))
	return true
}

// suffixes reads ? and []. They touch the type: "int ?" would be prose.
func suffixes(s *scanner, typ Type) Type {
	for s.gap == 0 && !s.done() {
		rest := s.text[s.off:]
		switch {
		case strings.HasPrefix(rest, "?") && !typ.Optional:
			s.skip(1)
			typ.Optional = true
			typ.Width++
		case strings.HasPrefix(rest, "[]"):
			s.skip(2)
			elem := typ
			typ = Type{Kind: Array, Elem: &elem, Pos: elem.Pos, Width: elem.Width + 2}
		default:
			return typ
		}
	}
	return typ
}

// fields reads "name type, name type)".
func (h *headerParser) fields(s *scanner) ([]Field, bool) {
	var fields []Field
	for {
		pos, name := s.pos(), s.ident()
		if !isName(name) {
			h.fail(
				pos,
				max(1, len(name)),
				"H003",
				"a tuple wants (name type, name type)",
				"names are lower case; close the tuple with )",
			)
			return nil, false
		}
		s.skip(len(name))
		typ, ok := h.parseType(s, true)
		if !ok {
			return nil, false
		}
		if slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
			h.fail(pos, len(name), "H004", name+" occurs twice in the tuple", "rename one of them")
		}
		fields = append(fields, Field{name, typ, pos})
		if s.accept(',') {
			continue
		}
		if s.accept(')') {
			return fields, true
		}
		h.fail(s.pos(), 1, "H003", "the tuple is not closed", "write (name type, name type)")
		return nil, false
	}
}

// enumValues reads "(a=1, b=0)".
func (h *headerParser) enumValues(s *scanner, pos Pos) ([]EnumValue, bool) {
	const use = "write enum(held=1, free=0): names in lower case, each with its own number"
	var values []EnumValue
	if !s.accept('(') {
		h.fail(pos, 4, "H005", "enum without values", use)
		return nil, false
	}
	for {
		at, name := s.pos(), s.ident()
		if !isName(name) {
			h.fail(at, max(1, len(name)), "H005", "bad name in enum", use)
			return nil, false
		}
		s.skip(len(name))
		v, ok := enumNumber(s)
		if !ok {
			h.fail(at, len(name), "H005", name+" has no number", use)
			return nil, false
		}
		if slices.ContainsFunc(values, func(e EnumValue) bool { return e.Name == name || e.Value == v }) {
			h.fail(at, len(name), "H005", "name or number used twice in enum", use)
		}
		values = append(values, EnumValue{name, v, at})
		if s.accept(',') {
			continue
		}
		if s.accept(')') {
			return values, true
		}
		h.fail(s.pos(), 1, "H005", "the enum is not closed", use)
		return nil, false
	}
}

func enumNumber(s *scanner) (int64, bool) {
	if !s.accept('=') {
		return 0, false
	}
	n := s.off
	if n < len(s.text) && s.text[n] == '-' {
		n++
	}
	for n < len(s.text) && s.text[n] >= '0' && s.text[n] <= '9' {
		n++
	}
	// 2^53 is where Lua's numbers stop being exact.
	v, err := strconv.ParseInt(s.text[s.off:n], 10, 54)
	s.skip(n - s.off)
	return v, err == nil
}

// checkArgType allows what one ARGV element can carry.
func (h *headerParser) checkArgType(t Type) {
	switch t.Kind {
	case Any:
		h.fail(t.Pos, t.Width, "H005", "any is a whole reply", "arguments are text: use string or bytes")
	case Array, Tuple:
		h.fail(t.Pos, t.Width, "H005", "an argument is one value", "use ---@args for a variable number of values")
	case Enum:
		values := slices.Sorted(func(yield func(int64) bool) {
			for _, v := range t.Values {
				if !yield(v.Value) {
					return
				}
			}
		})
		if n := len(values); values[n-1]-values[0] != int64(n-1) {
			h.fail(
				t.Pos,
				t.Width,
				"H005",
				"an argument's enum has gaps",
				"number its values without gaps, so that a range check covers them",
			)
		}
	}
}

// checkReplyType allows tuples one deep and rows of plain fields.
func (h *headerParser) checkReplyType(t Type, depth int) {
	switch t.Kind {
	case Any:
		if depth > 0 || t.Optional {
			h.fail(t.Pos, t.Width, "H005", "any is a whole reply, and nil is one of its values", "write ---@reply any")
		}
	case Tuple:
		if depth > 0 {
			h.fail(
				t.Pos,
				t.Width,
				"H005",
				"a tuple inside a tuple",
				"name its fields in the outer tuple, or make rows of it: (...)[]",
			)
			return
		}
		for _, f := range t.Fields {
			h.checkReplyType(f.Type, 1)
		}
	case Array:
		switch {
		case t.Optional:
			h.fail(t.Pos, t.Width, "H005", "an optional array", "an empty array says the same")
		case t.Elem.Kind == Any:
			h.fail(t.Pos, t.Width, "H005", "any is a whole reply", "write ---@reply any")
		case t.Elem.Kind == Array || t.Elem.Kind == Tuple && t.Elem.Optional:
			h.fail(t.Pos, t.Width, "H005", "an array of arrays", "use rows, (name type, ...)[]")
		}
		for _, f := range t.Elem.Fields {
			if f.Type.Kind == Array || f.Type.Kind == Tuple {
				h.fail(f.Type.Pos, f.Type.Width, "H005", "a row is flat", "a field of a row is one value")
			}
		}
	}
}

// checkBounds allows min and max where the runtime checks them.
func (h *headerParser) checkBounds(arg Arg) {
	if arg.Min == nil && arg.Max == nil {
		return
	}
	switch arg.Type.Kind {
	case Int, Millis, Seconds:
	case Uint:
		if arg.Min != nil && *arg.Min < 0 || arg.Max != nil && *arg.Max < 0 {
			h.fail(arg.Pos, len(arg.Name), "H003", "a uint has no negative bound", "use int, or a bound from 0")
		}
	default:
		h.fail(
			arg.Pos,
			len(arg.Name),
			"H003",
			"min and max hold for int, uint, ms and s only",
			"remove them, or check in the script",
		)
	}
	if arg.Min != nil && arg.Max != nil && *arg.Min > *arg.Max {
		h.fail(arg.Pos, len(arg.Name), "H003", "min is above max", "swap them")
	}
}
