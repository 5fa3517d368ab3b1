package luagen

import (
	"path"
	"regexp"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Vet reads one file and judges it: against its header where it has one, else the body alone.
func Vet(file, source string, targets ...string) Diagnostics {
	s, found := parseAny(file, source)
	s.targets = targets
	return append(found, s.judge()...).sorted()
}

// judge compares the body with its header, or judges it alone where there is none.
func (s *Script) judge() Diagnostics {
	if s.Body == nil {
		return nil
	}
	var found Diagnostics
	newBody(s.inBody(), &found).check()
	return s.allowed(found)
}

// parseAny reads a file with or without a header.
func parseAny(file, source string) (*Script, Diagnostics) {
	base := path.Base(strings.ReplaceAll(file, "\\", "/"))
	stem, isLua := strings.CutSuffix(base, ".lua")
	if hasHeader(source) && (isLua || isStem(stem)) {
		s, found := Parse(base, source)
		s.File = file
		for i := range found {
			found[i].File = file
		}
		return s, found
	}
	s := &Script{File: file, Source: source, bare: true}
	var found Diagnostics
	h := headerParser{Script: s, diags: &found}
	h.parseBody()
	return s, found
}

// contractTags are the tags of which every header has one.
var contractTags = regexp.MustCompile(`(?m)^---@(contract|readonly)\b`)

// hasHeader reports whether a file starts with a header, also behind a byte order mark and a comment above it. Other
// tags are also those of editors.
func hasHeader(source string) bool {
	source = strings.TrimPrefix(source, byteOrderMark)
	return (strings.HasPrefix(source, "---") || linesAbove(source) > 0) && contractTags.MatchString(source)
}

// includes is a comment by which other tools put the text of further files into the script.
var includes = regexp.MustCompile(`(?mi)^[ \t]*--+[ \t]*[@$#&]?include\b`)

// checkBareReply finds what is wrong with a reply, in every way to read it.
func (b *body) checkBareReply() {
	for _, r := range returns(b.Body.Body) {
		for i, e := range r.Exprs {
			if i > 0 {
				b.at(e, "R003", "Redis sends only the first value of return", "return one table: return {a, b}")
				break
			}
			b.checkBareValue(e, true)
		}
	}
}

func (b *body) checkBareValue(e luaast.Expr, top bool) {
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil && !b.grown[v] && v.Func == nil {
		if _, ok := v.Init.(*luaast.Table); ok {
			e = v.Init
		}
	}
	switch x := e.(type) {
	case *luaast.Table:
		if _, ok := errField(x); !ok && !isStatus(x) {
			b.checkBareTable(x)
		} else if ok && !top {
			b.at(x, "R006", "an error inside an array",
				"return it alone: some clients lose their place in the connection")
		}
	case *luaast.Call:
		if b.redisName(x.Fn) == "error_reply" && !top {
			b.at(x, "R006", "an error inside an array",
				"return it alone: some clients lose their place in the connection")
		}
	case *luaast.Binary:
		if b.isFraction(x) {
			b.at(x, "R002", "the reply can have a fraction",
				"Redis cuts it off: say so with math.floor(...), or return text")
		}
	}
}

// isStatus reports {ok = ...} and the forms of RESP3.
func isStatus(t *luaast.Table) bool {
	switch statusField(t) {
	case "ok", "double", "map", "set", "big_number":
		return true
	}
	return false
}

// statusField is the name of a table's first field, "" where it has none.
func statusField(t *luaast.Table) string {
	if len(t.Items) == 0 {
		return ""
	}
	if key, ok := t.Items[0].Key.(*luaast.Str); ok {
		return key.Value
	}
	return ""
}

func (b *body) checkBareTable(t *luaast.Table) {
	for i, item := range t.Items {
		switch {
		case item.Key != nil && isNumberOrUnknown(item.Key):
		case item.Key != nil:
			b.at(item.Value, "R003", "a named field in the reply",
				"Redis drops named fields: return values in an agreed order")
			return
		case isNil(item.Value) && i < len(t.Items)-1:
			b.at(item.Value, "R001", "nil in the reply", "nil cuts the array short: return false")
			return
		case !isNil(item.Value):
			b.checkBareValue(item.Value, false)
		}
	}
}

func isNumberOrUnknown(e luaast.Expr) bool {
	_, text := e.(*luaast.Str)
	return !text
}
