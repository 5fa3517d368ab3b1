package luagen

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// name reads the name of a key, argument or field.
func (h *headerParser) name(s *scanner, tag, use string) (string, bool) {
	pos, word := s.pos(), s.word()
	if !isName(word) {
		h.fail(pos, len(word), "H003", fmt.Sprintf("@%s wants a name that starts in lower case, got %q", tag, word),
			use)
		return "", false
	}
	if (tag == "key" || tag == "arg") && luaast.IsKeyword(word) {
		h.fail(pos, len(word), "H003", word+" is a word of Lua, and no local can be named so", "choose another name")
	}
	s.skip(len(word))
	return word, true
}

// options reads name=number words, in any order, as long as their names are among the known ones.
func (h *headerParser) options(s *scanner, known ...string) map[string]*int64 {
	opts := map[string]*int64{}
	for {
		pos, word := s.pos(), s.word()
		name, text, ok := strings.Cut(word, "=")
		if !ok || name == "" || text == "" || !isName(name) {
			return opts
		}
		if !slices.Contains(known, name) {
			h.fail(pos, len(word), "H003", "unknown option "+name, "options here are "+strings.Join(known, " "))
		}
		v, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			h.fail(pos, len(word), "H003", name+" wants a whole number", "write "+name+"=100, in the unit on the wire")
		case opts[name] != nil:
			h.fail(pos, len(word), "H004", "second "+name, "keep one")
		}
		opts[name] = &v
		s.skip(len(word))
	}
}

func (h *headerParser) positive(pos Pos, name string, v int64) {
	const limit = 1 << 30
	if v < 1 || v > limit {
		h.fail(pos, 1, "H003", name+" is out of range", fmt.Sprintf("it is a count between 1 and %d", limit))
	}
}

// tail reads the prose at the end of a tag. Two spaces, or a line break, part it from what the generator reads:
// with one space a mistyped option would pass for prose.
func (h *headerParser) tail(s *scanner, use string) string {
	if s.done() {
		return ""
	}
	pos, word := s.pos(), s.word()
	rest := s.text[s.off+len(word):]
	if at := optionLike.FindStringIndex(s.text[s.off:]); at != nil {
		h.fail(s.at(s.off+at[0]), at[1]-at[0], "H003", "an option or a template in the prose, which is not read",
			"write it before the prose, as in "+use)
	} else if s.gap < 2 || strings.HasPrefix(rest, "  ") {
		h.fail(pos, len(word), "H003", fmt.Sprintf("%q is not understood here", word),
			"two spaces part the prose from the rest: "+use)
	}
	return s.rest()
}

// optionLike matches an option or a template. Before the prose it sets something, in the prose it does not.
var optionLike = regexp.MustCompile(`(?i)\b(min|max|bytes)[ \t]*=[ \t]*-?\d+|=[ \t]*"[^"\n]*"`)

// template reads the quoted text after '='.
func (h *headerParser) template(s *scanner) (string, bool) {
	pos := s.pos()
	line, _, _ := strings.Cut(s.text[s.off:], "\n")
	if !strings.HasPrefix(line, `"`) || strings.Count(line, `"`) < 2 {
		h.fail(pos, 1, "H003", "a template stands in double quotes on one line", keyTagUse)
		return "", false
	}
	text := line[1:]
	text = text[:strings.IndexByte(text, '"')]
	s.skip(len(text) + 2)
	if strings.Count(text, "{") != strings.Count(text, "}") {
		h.fail(pos, len(text)+2, "H003", "a brace without the other one", "a hash tag stands between two: {$name}")
		return "", false
	}
	if _, err := splitTemplate(text); err != nil {
		h.fail(pos, len(text)+2, "H003", err.Error(),
			`a template is text with $name for each parameter, as in "queue:{$name}:ready"`)
		return "", false
	}
	return text, true
}

// templatePart is literal text or a parameter.
type templatePart struct{ Text, Param string }

func splitTemplate(text string) ([]templatePart, error) {
	var parts []templatePart
	for i, piece := range strings.Split(text, "$") {
		if i == 0 {
			if piece != "" {
				parts = append(parts, templatePart{Text: piece})
			}
			continue
		}
		n := 0
		for n < len(piece) && isWordByte(piece[n]) {
			n++
		}
		if !isName(piece[:n]) {
			return nil, fmt.Errorf("$ without the name of a parameter")
		}
		parts = append(parts, templatePart{Param: piece[:n]})
		if piece[n:] != "" {
			parts = append(parts, templatePart{Text: piece[n:]})
		}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("the template is empty")
	}
	if strings.ContainsAny(text, "\\`") {
		return nil, fmt.Errorf("a template has no escapes")
	}
	return parts, nil
}

// hashTag returns what Redis Cluster hashes: the text between the first { and the next }.
func hashTag(template string) (string, bool) {
	_, after, ok := strings.Cut(template, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(after, "}")
	return tag, ok && tag != ""
}

// checkTemplates makes sure that all templates of the script land in one slot.
func (h *headerParser) checkTemplates() {
	var all []Key
	for _, line := range h.Keys {
		all = append(all, line.Elements()...)
	}
	var first *Key
	for i := range all {
		key := &all[i]
		if key.Template == "" {
			continue
		}
		h.templateParams(key)
		if h.Slots.Word == "any" {
			continue
		}
		tag, ok := hashTag(key.Template)
		switch {
		case !ok && (len(all) > 1 || key.Variadic):
			h.fail(key.Pos, len(key.Name), "K006", "template without a hash tag in a script of several keys",
				"put the parameter that all keys share in braces: {$name}")
		case !ok:
		case first == nil:
			first = key
		default:
			if want, _ := hashTag(first.Template); want != tag {
				h.fail(key.Pos, len(key.Name), "K006", fmt.Sprintf("hash tag {%s} differs from {%s} of %s", tag, want,
					first.Name),
					"keys of one script live in one slot: use the same tag")
			}
		}
	}
}

// templateParams declares the parameters; one that is also a string argument shares its field.
func (h *headerParser) templateParams(key *Key) {
	parts, _ := splitTemplate(key.Template)
	for _, p := range parts {
		if p.Param == "" {
			continue
		}
		for _, other := range h.Keys {
			if other.Name == p.Param && !other.Templated() {
				h.fail(key.Pos, len(key.Name), "H004", "$"+p.Param+" has the name of a key", "rename one of them")
			}
		}
		for _, arg := range h.Args {
			if arg.Name == p.Param && (arg.Type.Kind != String || arg.Type.Optional) {
				h.fail(arg.Pos, len(arg.Name), "H004", "$"+p.Param+" is also an argument, and not a string",
					"rename one of them")
			}
		}
		if h.Group != nil && h.Group.Name == p.Param && !h.Tied() {
			h.fail(h.Group.Pos, len(h.Group.Name), "H004", "$"+p.Param+" has the name of the variadic group",
				"rename one of them")
		}
	}
}
