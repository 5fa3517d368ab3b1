package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
)

var (
	keyTypes    = []string{"string", "list", "set", "zset", "hash", "stream"}
	contracts   = []string{"all-or-nothing", "dup-only"}
	retries     = []string{"safe", "resume", "never"}
	keyTagUse   = `---@key name [type] [= "template"]  prose`
	keysTagUse  = `---@keys name [type] [= "template"]|(field [type] [= "template"], ...) [max=N]  prose`
	argTagUse   = "---@arg name type [min=N] [max=N]  prose"
	argsTagUse  = "---@args name type|(field type, ...) max=N [bytes=N]  prose"
	errorTagUse = "---@error CODE  what it means"
)

func (h *headerParser) script(s *scanner) {
	pos, word := s.pos(), s.word()
	h.once("script", pos)
	if !isExported(word) {
		h.fail(pos, len(word), "H003", "@script wants an exported Go name", "for example ---@script "+h.GoName)
		return
	}
	h.GoName = word
}

func isExported(name string) bool {
	if name == "" || name[0] < 'A' || name[0] > 'Z' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

func (h *headerParser) retry(s *scanner) { h.clause(s, "retry", retries, &h.Retry) }

func (h *headerParser) contract(s *scanner) { h.clause(s, "contract", contracts, &h.Contract) }

func (h *headerParser) clause(s *scanner, tag string, words []string, into *Clause) {
	pos, word := s.pos(), s.word()
	h.once(tag, pos)
	if !slices.Contains(words, word) {
		h.fail(pos, len(word), "H003", "@"+tag+" is one of "+strings.Join(words, " "), clauseCure(tag, words))
	}
	s.skip(len(word))
	*into = Clause{word, s.rest(), pos}
}

// clauseCure is what to write in place of an unknown word. A promise is nothing to write without a look at the script.
func clauseCure(tag string, words []string) string {
	if tag == "retry" {
		return "write ---@retry never, the default; safe and resume are promises that the script has to keep"
	}
	return "write ---@" + tag + " " + words[0]
}

func (h *headerParser) readonly(s *scanner) {
	h.once("readonly", s.pos())
	if !s.done() {
		h.fail(s.pos(), len(s.word()), "H003", "@readonly takes nothing", "remove the rest of the line")
	}
	h.ReadOnly = true
}

// slots is for layouts that others made, whose keys have no hash tag.
func (h *headerParser) slots(s *scanner) {
	pos := s.pos()
	h.clause(s, "slots", []string{"any"}, &h.Slots)
	if h.Slots.Word == "any" && h.Slots.Prose == "" {
		h.fail(pos, len("any"), "H003", "@slots any has no reason", "say whose layout it is: ---@slots any reason")
	}
}

func (h *headerParser) cost(s *scanner) {
	h.once("cost", s.pos())
	if h.Cost = s.rest(); h.Cost == "" {
		h.fail(s.pos(), 1, "H003", "@cost is empty", "for example ---@cost O(log n)")
	}
}

func (h *headerParser) errorCode(s *scanner) {
	pos, word := s.pos(), s.word()
	s.skip(len(word))
	code := Code{word, s.rest(), pos}
	if code.Text == "" {
		h.fail(pos, len(word), "H003", "@error wants a code and a text", errorTagUse)
		return
	}
	h.Errors = append(h.Errors, code)
}

// usesTag names a library that is not on every server, or has a trap.
func (h *headerParser) usesTag(s *scanner) {
	pos, word := s.pos(), s.word()
	s.skip(len(word))
	use := Clause{word, s.rest(), pos}
	if _, ok := libraries[word]; !ok {
		h.fail(pos, len(word), "H003", "@uses wants the name of a library", "libraries are bit cjson cmsgpack struct")
		return
	}
	h.Uses = append(h.Uses, use)
}

func (h *headerParser) allow(s *scanner) {
	pos, word := s.pos(), s.word()
	s.skip(len(word))
	allow := Allow{word, s.rest(), pos}
	switch {
	case !allowable(word):
		h.fail(
			pos,
			len(word),
			"H009",
			"@allow cannot switch off "+word,
			"it takes any rule but those of syntax, header and fragments (S, H, F) and of @merge (M001)",
		)
	case allow.Reason == "":
		h.fail(
			pos,
			len(word),
			"H009",
			"@allow "+word+" has no reason",
			"say why the rule does not hold here: ---@allow "+word+" reason",
		)
	default:
		h.Allows = append(h.Allows, allow)
	}
}

func (h *headerParser) key(s *scanner) {
	key, ok := h.keyHead(s, "key", keyTagUse)
	if !ok {
		return
	}
	if s.accept('=') {
		if key.Template, ok = h.template(s); !ok {
			return
		}
	}
	key.Prose = h.tail(s, keyTagUse)
	h.addKey(key)
}

func (h *headerParser) keys(s *scanner) {
	key, ok := h.keyHead(s, "keys", keysTagUse)
	if !ok {
		return
	}
	key.Variadic = true
	if key.Type == "" && s.accept('(') {
		if key.Fields, ok = h.keyFields(s); !ok {
			return
		}
	} else if s.accept('=') {
		if key.Template, ok = h.template(s); !ok {
			return
		}
	}
	opts := h.options(s, "max")
	if m := opts["max"]; m != nil {
		key.Max = int(*m)
		h.positive(key.Pos, "max", *m)
	}
	key.Prose = h.tail(s, keysTagUse)
	h.addKey(key)
}

func (h *headerParser) keyHead(s *scanner, tag, use string) (Key, bool) {
	key := Key{Pos: s.pos()}
	var ok bool
	if key.Name, ok = h.name(s, tag, use); !ok {
		return key, false
	}
	if word := s.word(); slices.Contains(keyTypes, word) {
		key.Type = word
		s.skip(len(word))
	} else if near := nearKeyType(s, word); near != "" {
		h.fail(s.pos(), len(word), "H003", fmt.Sprintf("%q is not understood here", word),
			"did you mean "+near+"? types of a key are "+strings.Join(keyTypes, ", "))
		s.skip(len(word))
	}
	return key, true
}

// nearKeyType returns the type of a key that the mistyped word was meant to be; "" where no type is close, or where the
// word begins the prose of the tag.
func nearKeyType(s *scanner, word string) string {
	behind := s.text[s.off+len(word):]
	prose := s.gap > 1 && !strings.HasPrefix(behind, "  ") && !strings.HasPrefix(strings.TrimSpace(behind), "=")
	if prose || !isName(word) {
		return ""
	}
	return spelling.Nearest(word, keyTypes)
}

// keyFields reads "name type, name)": the keys of one element.
func (h *headerParser) keyFields(s *scanner) ([]Key, bool) {
	var fields []Key
	for {
		field := Key{Name: s.ident(), Variadic: true, Pos: s.pos()}
		if !isName(field.Name) {
			h.fail(field.Pos, len(field.Name), "H003", "a group of keys wants (name type, name type)", keysTagUse)
			return nil, false
		}
		s.skip(len(field.Name))
		if word := s.ident(); slices.Contains(keyTypes, word) {
			field.Type = word
			s.skip(len(word))
		}
		if s.accept('=') {
			var ok bool
			if field.Template, ok = h.template(s); !ok {
				return nil, false
			}
		}
		if slices.ContainsFunc(fields, func(k Key) bool { return k.Name == field.Name }) {
			h.fail(field.Pos, len(field.Name), "H004", field.Name+" occurs twice in the group", "rename one of them")
		}
		fields = append(fields, field)
		if s.accept(',') {
			continue
		}
		if s.accept(')') {
			return fields, true
		}
		h.fail(
			s.pos(),
			len(s.ident()),
			"H003",
			"the group of keys is not closed",
			"write (name type, name type); types are "+strings.Join(keyTypes, " "),
		)
		return nil, false
	}
}

func (h *headerParser) addKey(key Key) {
	if n := len(h.Keys); n > 0 && h.Keys[n-1].Variadic {
		h.fail(key.Pos, len(key.Name), "H007", "a key after @keys "+h.Keys[n-1].Name, "@keys is the last key")
	}
	if !key.Variadic || h.Group == nil || h.Group.Name != key.Name {
		h.declare(key.Name, key.Pos)
	}
	h.Keys = append(h.Keys, key)
}

func (h *headerParser) arg(s *scanner) {
	arg := Arg{Pos: s.pos()}
	var ok bool
	if arg.Name, ok = h.name(s, "arg", argTagUse); !ok {
		return
	}
	if h.Group != nil {
		h.fail(arg.Pos, len(arg.Name), "H007", "an argument after @args "+h.Group.Name, "@args is the last argument")
	}
	if arg.Type, ok = h.parseType(s, false); !ok {
		return
	}
	h.checkArgType(arg.Type)
	opts := h.options(s, "min", "max")
	arg.Min, arg.Max = opts["min"], opts["max"]
	h.checkBounds(arg)
	arg.Prose = h.tail(s, argTagUse)
	h.declare(arg.Name, arg.Pos)
	h.Args = append(h.Args, arg)
}

func (h *headerParser) args(s *scanner) {
	group := Group{Pos: s.pos()}
	var ok bool
	if group.Name, ok = h.name(s, "args", argsTagUse); !ok {
		return
	}
	h.once("args", group.Pos)
	typ, ok := h.parseType(s, true)
	if !ok {
		return
	}
	h.groupFields(&group, typ)
	opts := h.options(s, "max", "bytes")
	for name, into := range map[string]*int{"max": &group.Max, "bytes": &group.Bytes} {
		if v := opts[name]; v != nil {
			*into = int(*v)
			h.positive(group.Pos, name, *v)
		}
	}
	if opts["max"] == nil {
		h.fail(group.Pos, len(group.Name), "H007", "@args without max", "bound the call, for example max=1000")
	}
	group.Prose = h.tail(s, argsTagUse)
	if k := h.VariadicKey(); k == nil || k.Name != group.Name {
		h.declare(group.Name, group.Pos)
	}
	h.Group = &group
}

// groupFields turns the type of @args into fields; a plain type is one field of the group's own name.
func (h *headerParser) groupFields(group *Group, typ Type) {
	if group.Tuple = typ.Kind == Tuple; !group.Tuple {
		h.checkArgType(typ)
		if typ.Optional {
			h.fail(
				typ.Pos,
				typ.Width,
				"H007",
				"a variadic argument cannot be optional",
				"leave it out of the list, or make it a field of a tuple",
			)
		}
		group.Fields = []Field{{group.Name, typ, group.Pos}}
		return
	}
	if typ.Optional {
		h.fail(typ.Pos, typ.Width, "H007", "a variadic group cannot be optional", "pass no elements")
	}
	for _, f := range typ.Fields {
		h.checkArgType(f.Type)
	}
	group.Fields = typ.Fields
}

func (h *headerParser) reply(s *scanner) {
	h.ReplyPos = s.pos()
	h.once("reply", h.ReplyPos)
	typ, ok := h.parseType(s, true)
	if !ok {
		return
	}
	h.checkReplyType(typ, 0)
	h.ReplyProse = h.tail(s, "---@reply type|(field type, ...)  prose")
	h.Reply = &typ
}
