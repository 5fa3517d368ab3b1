package luagen

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"path/filepath"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// fenced is the code with which a guard refuses; the runtime matches it.
const fenced = "FENCED"

const guardUse = "---@guard guard.lua, a file beside the script"

// guard reads the name of the file that is put before the script under lua.Guard.
func (h *headerParser) guard(s *scanner) {
	pos, word := s.pos(), s.word()
	h.once("guard", pos)
	s.skip(len(word))
	switch {
	case !isStem(strings.TrimSuffix(word, ".lua")) || !strings.HasSuffix(word, ".lua"):
		h.fail(pos, len(word), "H003", "@guard wants the name of a .lua file", guardUse)
	case word == h.File:
		h.fail(pos, len(word), "H003", "a script is not its own guard", guardUse)
	case !s.done():
		h.fail(s.pos(), len(s.word()), "H003", "@guard takes the name of one file", "remove the rest of the line")
	default:
		h.Guard, h.GuardPos = word, pos
	}
}

// guardedText is what runs under lua.Guard: the guard, then the script, each byte for byte.
func (s *Script) guardedText() string { return s.guardFile.Source + s.Source }

// splitGuards takes the files that are guards of others out of the list, and gives each script its guard.
func splitGuards(all []*Script) (scripts, guards []*Script, found Diagnostics) {
	byFile := map[string]*Script{}
	for _, s := range all {
		byFile[s.File] = s
	}
	for _, s := range all {
		if s.Guard == "" {
			continue
		}
		fail := func(message, cure string) {
			found = append(found, Diagnostic{s.File, s.GuardPos, len(s.Guard), "F003", message, cure})
		}
		switch g := byFile[s.Guard]; {
		case g == nil:
			fail("there is no "+s.Guard+" beside the script",
				"write it; the one for leases of luatomic is scripts/guard.lua in its module: copy it")
		case g.ReadOnly || g.Contract.Word != "":
			fail(s.Guard+" is a script with a function of its own", "a guard has no header of tags")
		default:
			s.guardFile = g
			if !slices.Contains(guards, g) {
				guards = append(guards, g)
			}
		}
	}
	scripts = slices.DeleteFunc(slices.Clone(all), func(s *Script) bool { return slices.Contains(guards, s) })
	return scripts, guards, found
}

// checkGuard looks at the text of a guard: it has no header, and nothing of it may be seen by the script behind it.
func checkGuard(g *Script) Diagnostics {
	s := &Script{File: g.File, Source: g.Source}
	var found Diagnostics
	h := headerParser{Script: s, diags: &found}
	if h.parseBody(); s.Body == nil {
		return found
	}
	newBody(s, &found).checkGlobals()
	fail := func(pos luaast.Pos, width int, message, cure string) {
		found = append(found, Diagnostic{g.File, Pos{pos.Line, pos.Col}, max(1, width), "F003", message, cure})
	}
	for _, stmt := range s.Body.Body {
		e := stmt.Extent()
		switch stmt.(type) {
		case *luaast.Local, *luaast.LocalFunc:
			fail(e.Start, e.Width(), "the script behind the guard would see this local",
				"put all of the guard between do and end")
		case *luaast.Return:
			fail(e.Start, e.Width(), "no script would run behind this return",
				"return where the lease is not held: if not held then return ... end")
		}
	}
	if !strings.HasSuffix(g.Source, "\n") {
		end := s.Body.End
		fail(end, 1, "the guard does not end with a line feed",
			"end its last line: the script's first one comes right behind it")
	}
	return found
}

// guardVar is the variable that holds the text of a guard.
func (e *emitter) guardVar() string { return lowerFirst(e.guardFile.GoName) + "Source" }

// guardFiles embed the guards.
func guardFiles(guards []*Script, cfg Config, t target) ([]File, error) {
	var files []File
	for _, g := range guards {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s%s%s\n\npackage %s\n\nimport _ \"embed\"\n\n", generated, cmp.Or(g.origin, g.File),
			doNotEdit, t.pkg)
		fmt.Fprintf(&b, "//go:embed %s\nvar %sSource string\n", g.File, lowerFirst(g.GoName))
		text, err := format.Source(b.Bytes())
		if err != nil {
			return nil, fmt.Errorf("luagen: %s: printed Go that does not parse: %w", g.File, err)
		}
		files = append(files, File{filepath.Join(cfg.Out, g.File+".go"), text})
	}
	return files, nil
}
