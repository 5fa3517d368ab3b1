package luagen

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Draft writes a header for a script that has none, out of what its body shows: names from its locals, types from the
// commands and conversions, the reply from its returns. What the body does not show, above all the contract, is a guess
// that its author reads once. The script's own text follows unchanged.
func Draft(file, source string) (string, error) {
	if hasHeader(source) {
		return "", fmt.Errorf("luagen: %q has a header already", file)
	}
	s, found := parseAny(file, source)
	if s.Body == nil {
		return "", found
	}
	var ignored Diagnostics
	b := newBody(s, &ignored)
	b.checkBindings()
	stem := strings.TrimSuffix(path.Base(file), ".lua")
	if !isStem(stem) {
		stem = goodStem(stem) // the name that H001 asks for
	}
	d := drafter{body: b, name: camel(stem), replies: b.flow()}
	d.replies.setsRESP = b.usesRESP()
	d.keys, d.args = d.entries(true), d.entries(false)
	text := d.above(source)
	return d.withTypes(file, text, source), nil
}

// drafted are the entries of KEYS or ARGV that a script uses.
type drafted struct {
	names []string
	types []string
	group []string // names of one element of the variadic rest; nil without one
}

type drafter struct {
	*body
	name       string
	replies    flow // what its commands reply
	keys, args drafted
	anyReply   bool
}

// header prints the tags.
func (d *drafter) header() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s %s\n", d.name, guessProse)
	if d.writesNothing() {
		b.WriteString("---@readonly\n")
	} else {
		fmt.Fprintf(&b, "---@contract dup-only  %s\n---@retry never  %s\n", guessContract, guessRetry)
	}
	for _, g := range d.libraries() {
		fmt.Fprintf(&b, "---@uses %s\n", g)
	}
	d.entryTags(&b, "key", d.keys)
	d.entryTags(&b, "arg", d.args)
	reply := d.replyType()
	if d.anyReply {
		reply = "any  " + guessReply
	}
	if reply != "" {
		fmt.Fprintf(&b, "---@reply %s\n", reply)
	}
	for _, code := range d.codes() {
		fmt.Fprintf(&b, "---@error %s  %s\n", code, guessError)
	}
	return b.String()
}

func (d *drafter) entryTags(b *strings.Builder, tag string, list drafted) {
	for i, name := range list.names {
		fmt.Fprintf(b, "---@%s %s\n", tag, strings.TrimSpace(name+" "+list.types[i]))
	}
	if list.group == nil {
		return
	}
	name, typ := tag+"_list", ""
	if tag == "arg" {
		typ = " string"
	}
	parts := make([]string, len(list.group))
	for i, g := range list.group {
		parts[i] = g + typ
	}
	form := "(" + strings.Join(parts, ", ") + ")"
	if len(parts) == 1 {
		name, form = list.group[0], strings.TrimSpace(typ)
		if slices.Contains(append(slices.Clone(d.keys.names), d.args.names...), name) {
			name = tag + "_list"
		}
	}
	fmt.Fprintf(b, "---@%ss %s max=1000\n", tag, strings.TrimSpace(name+" "+form))
}

// writesNothing reports that every command is known, and none writes.
func (d *drafter) writesNothing() bool {
	f := d.flow()
	for _, c := range d.commands {
		names := f.commandNames(c.node)
		if len(names) == 0 {
			return false
		}
		for _, name := range names {
			cmd, ok := lookup(name)
			if !ok || cmd.write || cmd.noscript == cmd.on || replicated[name] {
				return false
			}
		}
	}
	return true
}

func (d *drafter) libraries() []string {
	var names []string
	for _, g := range d.Body.Globals {
		if _, ok := libraries[g.Name.Name]; ok && !slices.Contains(names, g.Name.Name) {
			names = append(names, g.Name.Name)
		}
	}
	slices.Sort(names)
	return names
}

// codes lists the codes of the errors that the script returns, those that a header can declare.
func (d *drafter) codes() []string {
	var codes []string
	add := func(e luaast.Expr) {
		texts, _ := d.codeTexts(e)
		for _, text := range texts {
			word, rest, _ := strings.Cut(text, " ")
			if isCode(word) && rest != "" && !slices.Contains(reservedCodes, word) && !slices.Contains(codes, word) {
				codes = append(codes, word)
			}
		}
	}
	luaast.Inspect(d.Body.Body, func(n, parent luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Call:
			if d.redisName(n.Fn) == "error_reply" && len(n.Args) > 0 {
				add(n.Args[0])
			}
		case *luaast.Table:
			if text, ok := errField(n); ok && !isRaise(parent) {
				add(text)
			}
		}
		return true
	})
	slices.Sort(codes)
	return codes
}

// withTypes reads the draft back, and adds the type of each key that all its commands agree on.
func (d *drafter) withTypes(file, text, source string) string {
	s, found := Parse(stemFile(file), text)
	if s.Body == nil || s.partial || len(found.withoutWarnings()) > 0 {
		return text
	}
	var ignored Diagnostics
	b := newBody(s, &ignored)
	b.checkBindings()
	types := b.keyTypes()
	for i := range d.keys.names {
		if k := &s.Keys[i]; len(types[k]) == 1 {
			d.keys.types[i] = types[k][0]
		}
	}
	typed := d.above(source)
	if slices.ContainsFunc(
		Vet(stemFile(file), typed),
		func(d Diagnostic) bool { return d.Rule == "R003" || d.Rule == "R007" },
	) {
		d.anyReply = true // the guess does not hold
	}
	return d.above(source)
}

// above puts the header above the source.
func (d *drafter) above(source string) string { return linesLike(source, d.header()+"\n") + source }

func (ds Diagnostics) withoutWarnings() Diagnostics {
	return slices.DeleteFunc(slices.Clone(ds), func(d Diagnostic) bool { return d.Level() == Warning })
}

// stemFile is a name that a script can have.
func stemFile(file string) string {
	stem := strings.TrimSuffix(path.Base(file), ".lua")
	if !isStem(stem) {
		stem = "script"
	}
	return stem + ".lua"
}

// keyTypes lists for each key the types that every command on it accepts.
func (b *body) keyTypes() map[*Key][]string {
	types := map[*Key][]string{}
	f := b.flow()
	for _, c := range b.commands {
		for _, name := range f.commandNames(c.node) {
			cmd, _ := lookup(name)
			if len(cmd.types) == 0 {
				continue
			}
			for _, k := range b.keysOf(c, cmd) {
				if have, ok := types[k]; ok {
					types[k] = slices.DeleteFunc(slices.Clone(have), func(t string) bool {
						return !slices.Contains(cmd.types, t)
					})
				} else {
					types[k] = cmd.types
				}
			}
		}
	}
	return types
}

// keysOf lists the declared keys that a command is called on.
func (b *body) keysOf(c redisCall, cmd command) []*Key {
	var keys []*Key
	for _, spec := range cmd.keys {
		at, _ := spec.keyPositions(len(c.args), func(i int) (int, bool) {
			if i >= len(c.args) {
				return 0, false
			}
			return integer(c.args[i])
		}, func(i int) string {
			if s, ok := c.args[i].(*luaast.Str); ok {
				return strings.ToUpper(s.Value)
			}
			return ""
		})
		for _, i := range at {
			if i < len(c.args) {
				keys = append(keys, b.tracer(nil).argOrigin(c.args[i], i == len(c.args)-1, spec).keys...)
			}
		}
	}
	return keys
}
