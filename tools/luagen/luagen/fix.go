package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Fix gives the fixed entries of KEYS and ARGV the names that the header declares: a line that binds them at the top,
// the names in place of the entries, and locals renamed. It changes nothing else, and leaves an entry alone where
// another value has its name. A name that a fragment of the script has stays. What comes back runs as the source did.
func Fix(file, source string) (string, error) {
	for range 2 { // a renamed local can give way to a name
		s, found := parseAny(file, source)
		if s.bare {
			return "", fmt.Errorf("luagen: %q has no header: write one, or have luagen init draft it", file)
		}
		if s.Body == nil || s.partial {
			return "", found.withoutWarnings()
		}
		var ignored Diagnostics
		b := newBody(s, &ignored)
		b.checkBindings()
		f := fixer{body: b, shared: fragmentWords(file, source)}
		f.rename()
		if len(f.edits) == 0 {
			f.name()
		}
		fixed := apply(source, f.edits)
		if _, err := luaast.Parse(fixed); err != nil {
			return source, nil // no room for more locals
		}
		if fixed == source {
			break
		}
		source = fixed
	}
	return source, nil
}

// change replaces the bytes from start to end.
type change struct {
	start, end int
	text       string
}

func apply(source string, edits []change) string {
	slices.SortFunc(edits, func(a, b change) int { return b.start - a.start })
	for _, e := range edits {
		source = source[:e.start] + e.text + source[e.end:]
	}
	return source
}

// linesLike gives the lines of a text the ends that the first line of the source has: LF or CRLF.
func linesLike(source, text string) string {
	if first, _, _ := strings.Cut(source, "\n"); strings.HasSuffix(first, "\r") {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

type fixer struct {
	*body
	shared map[string]bool // the words of its fragments
	edits  []change
}

// fragmentWords are the words of the fragments that a script names. Those that cannot be read have none.
func fragmentWords(file, source string) map[string]bool {
	words := map[string]bool{}
	if !hasFragments(source) {
		return words
	}
	x := newExpander()
	text, from := x.expand(Source{file, source})
	for i, line := range strings.Split(text, "\n") {
		if from[i].file == file {
			continue
		}
		for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return r > 0x7f || !isWordByte(byte(r)) }) {
			words[word] = true
		}
	}
	return words
}

// rename gives locals of a declared entry its name.
func (f *fixer) rename() {
	for _, v := range f.Body.Vars {
		e, ok := f.bound[v]
		want, declared := f.declared(e)
		if !ok || !declared || v.Name == want || f.isDeclared(v.Name) || f.taken(want) || f.shared[v.Name] {
			continue
		}
		if e.key && !e.raw || f.boundTo(e) > 1 {
			continue
		}
		edits := []change{{v.Start.Off, v.End, want}}
		luaast.Inspect(f.Body.Body, func(n, _ luaast.Node) bool {
			if name, ok := n.(*luaast.Name); ok && name.Var == v {
				edits = append(edits, change{name.Start.Off, name.End, want})
			}
			return true
		})
		f.edits = append(f.edits, edits...)
	}
}

// boundTo counts the locals of an entry.
func (f *fixer) boundTo(e binding) int {
	n := 0
	for _, have := range f.bound {
		have.raw = e.raw
		if have == e {
			n++
		}
	}
	return n
}

// taken reports whether any local or global has the name.
func (f *fixer) taken(name string) bool {
	return slices.ContainsFunc(f.Body.Vars, func(v *luaast.Var) bool { return v.Name == name }) ||
		slices.ContainsFunc(
			f.Body.Globals,
			func(g luaast.Global) bool { return g.Name.Name == name },
		) || f.shared[name] || knownGlobals[name] || luaast.IsKeyword(name)
}

// name binds the entries that are used without a name, and uses the names.
func (f *fixer) name() {
	lines := ""
	for _, isKey := range []bool{true, false} {
		var names, entries []string
		for i := range f.fixed(isKey) {
			e := binding{key: isKey, index: i + 1}
			want, _ := f.declared(e)
			uses := f.uses(e)
			if len(uses) == 0 || f.rebound(e) {
				continue
			}
			if f.taken(want) {
				f.useNamed(e, want, uses)
				continue
			}
			names, entries = append(names, want), append(entries, e.String())
			for _, u := range uses {
				f.edits = append(f.edits, change{u.Start.Off, u.End, want})
			}
		}
		if len(names) > 0 {
			lines += "local " + strings.Join(names, ", ") + " = " + strings.Join(entries, ", ") + "\n"
		}
	}
	if lines != "" {
		f.edits = append(f.edits, change{f.top(), f.top(), linesLike(f.Source, lines)})
	}
}

// useNamed uses the local that has the name of the entry already, behind its statement. It must be one of the whole
// script, and every local of that name must always have the value of the entry.
func (f *fixer) useNamed(e binding, name string, uses []*luaast.Index) {
	other := func(v *luaast.Var) bool {
		return v.Name == name && (v.Writes > 0 || f.bound[v] != binding{e.key, e.index, true})
	}
	if slices.ContainsFunc(f.Body.Vars, other) {
		return
	}
	for _, stmt := range f.Body.Body {
		local, ok := stmt.(*luaast.Local)
		if !ok || !slices.ContainsFunc(local.Vars, func(v *luaast.Var) bool { return v.Name == name }) {
			continue
		}
		for _, u := range uses {
			if u.Start.Off >= local.End {
				f.edits = append(f.edits, change{u.Start.Off, u.End, name})
			}
		}
		return
	}
}

// uses lists where an entry stands in the code.
func (f *fixer) uses(e binding) []*luaast.Index {
	var list []*luaast.Index
	luaast.Inspect(f.Body.Body, func(n, _ luaast.Node) bool {
		if i, ok := n.(*luaast.Index); ok {
			if have, ok := entry(i); ok && have == e {
				list = append(list, i)
			}
		}
		return true
	})
	return list
}

// rebound reports that the script writes to the entry, or to KEYS and ARGV themselves.
func (f *fixer) rebound(e binding) bool {
	found := false
	luaast.Inspect(f.Body.Body, func(n, _ luaast.Node) bool {
		if a, ok := n.(*luaast.Assign); ok {
			for _, target := range a.Targets {
				i, ok := target.(*luaast.Index)
				found = found || ok && isGlobal(i.Obj, e.list())
			}
		}
		if c, ok := n.(*luaast.Call); ok && strings.HasPrefix(library(c.Fn), "table.") && len(c.Args) > 0 {
			found = found ||
				isGlobal(c.Args[0], e.list()) && (library(c.Fn) == "table.remove" || library(c.Fn) == "table.insert" ||
					library(c.Fn) == "table.sort")
		}
		return !found
	})
	return found
}

// top is the place of the first statement, at the start of its line, or of a fragment above it.
func (f *fixer) top() int {
	off := f.Body.Body[0].Extent().Start.Off
	at := 0
	for line := range strings.Lines(f.Source[:off]) {
		if markerIn(strings.TrimSuffix(line, "\n")).found {
			return at
		}
		at += len(line)
	}
	start := strings.LastIndexByte(f.Source[:off], '\n') + 1
	if strings.TrimSpace(f.Source[start:off]) == "" {
		return start
	}
	return off
}
