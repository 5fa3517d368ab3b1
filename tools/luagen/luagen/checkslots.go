package luagen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkSlots reports a key whose hash tag cannot be that of another key of the script. Only keys whose text the script
// shows as far as the tag are judged: one of KEYS may have any tag, and so may what is joined to it.
func (b *body) checkSlots() {
	if b.Slots.Word == "any" {
		return
	}
	f := b.flow()
	var before []placed
	told := map[string]bool{}
	for _, c := range b.commands {
		for _, a := range f.keyArgs(c) {
			key := c.args[a.at]
			tag, ok := b.tagOf(key)
			if !ok || told[tag] {
				continue
			}
			for _, p := range before {
				if p.tag != tag && !told[tag] && b.runBoth(p.key, key) {
					told[tag] = true
					slots := "two slots"
					if strings.Contains(tag+p.tag, entryMark) {
						slots = "two slots, unless they are equal"
					}
					b.at(key, "K009", fmt.Sprintf("the key is placed by %s, and that of line %d by %s: %s",
						spokenTag(tag), p.key.Extent().Start.Line, spokenTag(p.tag), slots),
						"a Redis Cluster refuses a call with keys of two slots: give them one hash tag, "+
							"as in {user}:a and {user}:b")
				}
			}
			if len(before) < manyKeys {
				before = append(before, placed{key, tag})
			}
		}
	}
}

// manyKeys is enough to compare with: the time of the rule would grow with the square of more.
const manyKeys = 32

// placed is a key whose part that is hashed is known.
type placed struct {
	key luaast.Expr
	tag string
}

// runBoth reports two places, in the order of the text, that one call can come by: in one function, not in two clauses
// of an if, and the first not in a clause that ends with a return.
func (b *body) runBoth(first, second luaast.Expr) bool {
	around := map[luaast.Node]luaast.Node{} // of the second: each node around it, and the one inside on the way
	inside := luaast.Node(second)
	for at := b.parents[inside]; at != nil; at = b.parents[at] {
		around[at] = inside
		inside = at
	}
	inside = first
	for at := b.parents[inside]; at != nil; inside, at = at, b.parents[at] {
		other, shared := around[at]
		s, isIf := at.(*luaast.If)
		clause := b.clauseOf(s, inside)
		switch {
		case shared:
			return !isIf || clause < 0 || clause == b.clauseOf(s, other)
		case isIf && clause >= 0 && endsInReturn(s.Clauses[clause].Body):
			return false
		}
		if _, isFunc := at.(*luaast.Func); isFunc {
			return false
		}
	}
	_, inFunc := b.funcAround(second)
	return !inFunc
}

// funcAround is the function that a node stands in.
func (b *body) funcAround(n luaast.Node) (*luaast.Func, bool) {
	for at := b.parents[n]; at != nil; at = b.parents[at] {
		if f, ok := at.(*luaast.Func); ok {
			return f, true
		}
	}
	return nil, false
}

// clauseOf is the number of the clause whose body has the node as a statement, else below 0.
func (b *body) clauseOf(s *luaast.If, n luaast.Node) int {
	stmt, ok := n.(luaast.Stmt)
	if s == nil || !ok {
		return -1
	}
	return slices.IndexFunc(s.Clauses, func(c luaast.Clause) bool { return slices.Contains(c.Body, stmt) })
}

func endsInReturn(body []luaast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	_, ok := body[len(body)-1].(*luaast.Return)
	return ok
}

// unknownText stands in the text of a key for what any text may be; an entry of ARGV stands there by its name.
const unknownText = "\x00"

// entryMark encloses the name of an entry in the text of a key.
const entryMark = "\x01"

// spokenTag is a tag for a message: texts in quotes, joined with the names of entries.
func spokenTag(tag string) string {
	var parts []string
	for i, part := range strings.Split(tag, entryMark) {
		if i%2 == 0 && part != "" {
			part = "'" + part + "'"
		}
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " .. ")
}

// tagOf is the part of a key that the server hashes: between the first { and the next }, else the whole key. ok is
// false where the script does not show it.
func (b *body) tagOf(e luaast.Expr) (tag string, ok bool) {
	text := b.keyText(e, 0)
	before, after, open := strings.Cut(text, "{")
	if strings.ContainsAny(before, unknownText+entryMark) {
		return "", false // may have a tag of its own
	}
	if open {
		tag, _, open = strings.Cut(after, "}")
	}
	if !open || tag == "" {
		return text, text != "" && !strings.ContainsAny(text, unknownText+entryMark)
	}
	return tag, !strings.Contains(tag, unknownText)
}

// deepKey ends the look into a key that is joined of locals that are joined of others. A local counts as 8.
const deepKey = 64

// keyText is the text of a key as far as the script shows it.
func (b *body) keyText(e luaast.Expr, depth int) string {
	if depth > deepKey {
		return unknownText
	}
	depth++
	switch e := e.(type) {
	case *luaast.Paren:
		return b.keyText(e.X, depth)
	case *luaast.Str:
		return e.Value
	case *luaast.Number:
		if e.Value == float64(int32(e.Value)) {
			return strconv.Itoa(int(e.Value))
		}
	case *luaast.Binary:
		if e.Op == ".." {
			return b.keyText(e.L, depth) + b.keyText(e.R, depth)
		}
	case *luaast.Call:
		if builtin(e) == "tostring" && len(e.Args) == 1 {
			return b.keyText(e.Args[0], depth)
		}
	case *luaast.Index:
		return b.entryText(e)
	case *luaast.Name:
		if v := e.Var; v != nil && v.Writes == 0 && v.Func == nil && v.Init != nil {
			return b.keyText(v.Init, depth+8)
		}
	}
	return unknownText
}

// entryText names an entry of ARGV. Of one of KEYS it is the template of the header.
func (b *body) entryText(e *luaast.Index) string {
	at, ok := entry(e)
	switch {
	case !ok || at.index < 1:
	case !at.key:
		return entryMark + "ARGV[" + strconv.Itoa(at.index) + "]" + entryMark
	case !b.bare && at.index <= b.FixedKeys():
		parts, err := splitTemplate(b.Keys[at.index-1].Template)
		if err != nil {
			break
		}
		var text strings.Builder
		for _, p := range parts {
			text.WriteString(p.Text)
			if p.Param != "" {
				text.WriteString(unknownText)
			}
		}
		return text.String()
	}
	return unknownText
}
