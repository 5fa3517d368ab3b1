package luagen

import (
	"errors"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Parse reads one script. It returns what it understood even when diagnostics are not empty.
func Parse(file, source string) (*Script, Diagnostics) {
	stem := strings.TrimSuffix(file, ".lua")
	s := &Script{File: file, Stem: stem, GoName: camel(stem), Source: source}
	var diags Diagnostics
	if !isName(stem) {
		diags = append(diags, Diagnostic{file, Pos{1, 1}, 1, "H001", "the file's name is not lower case words joined by _",
			"rename it, for example to lock_release.lua"})
		return s, diags
	}
	h := headerParser{Script: s, diags: &diags, seen: map[string]bool{}, names: map[string]Pos{}}
	h.parseHeader()
	h.parseBody()
	return s, diags.sorted()
}

func (h *headerParser) parseBody() {
	chunk, err := luaast.Parse(h.Source)
	var syntax *luaast.Error
	if errors.As(err, &syntax) {
		h.fail(Pos{syntax.Pos.Line, syntax.Pos.Col}, syntax.Width, "S001", syntax.Message, "Redis runs Lua 5.1")
		return
	}
	h.Body = chunk
}
