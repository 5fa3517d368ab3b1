package luagen

import (
	"errors"
	"go/build"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// Parse reads one script. It returns what it understood even when diagnostics are not empty.
func Parse(file, source string) (*Script, Diagnostics) {
	stem := strings.TrimSuffix(file, ".lua")
	s := &Script{File: file, Stem: stem, GoName: camel(stem), Source: source}
	var diags Diagnostics
	if !isStem(stem) {
		diags = append(diags, Diagnostic{file, Pos{1, 1}, 1, "H001",
			"the file's name is not lower case words joined by _",
			"rename it, for example to " + goodStem(stem) + ".lua"})
		return s, diags
	}
	if constrained(file + ".go") {
		diags = append(
			diags,
			Diagnostic{file, Pos{1, 1}, 1, "H001", "the file's name ends like those of Go files for one system alone",
				"rename it: Go would leave out " + file + ".go on every other system"},
		)
		return s, diags
	}
	if devices.MatchString(stem) {
		diags = append(diags, Diagnostic{file, Pos{1, 1}, 1, "H001", "the file's name is that of a device of Windows",
			"rename it, for example to " + stem + "_script.lua: go:embed refuses " + file + " on every system"})
		return s, diags
	}
	if strings.HasPrefix(source, byteOrderMark) {
		diags = append(
			diags,
			Diagnostic{
				file,
				Pos{1, 1},
				len(byteOrderMark),
				"S001",
				"the file starts with a byte order mark",
				"save it as UTF-8 without one: Lua does not skip it",
			},
		)
		return s, diags
	}
	h := headerParser{Script: s, diags: &diags, seen: map[string]bool{}, names: map[string]Pos{}}
	h.parseHeader()
	if h.parseBody(); h.Body != nil && h.end > 0 {
		h.checkLoose()
	}
	diags = slices.DeleteFunc(diags, func(d Diagnostic) bool { return s.allows(d.Rule) })
	return s, diags.sorted()
}

// devices are the names that no file has on Windows, whatever stands behind the dot.
var devices = regexp.MustCompile(`^(aux|con|nul|prn|(com|lpt)[1-9])$`)

// goodStem is the nearest name that a file can have.
func goodStem(stem string) string {
	apart := func(r rune) bool { return r > 0x7f || !isWordByte(byte(r)) || r == '_' }
	good := strings.ToLower(strings.Join(strings.FieldsFunc(humps(stem), apart), "_"))
	if !isStem(good) {
		return "lock_release"
	}
	return good
}

const byteOrderMark = "\uFEFF"

// constrained reports whether the go command reads the end of a file's name as a system, as in rate_windows.lua.go. It
// asks for a system that does not exist.
func constrained(file string) bool {
	nowhere := build.Context{
		GOOS:     "nowhere",
		GOARCH:   "nothing",
		Compiler: "gc",
		OpenFile: func(string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("package p\n")), nil
		},
	}
	ok, err := nowhere.MatchFile("", file)
	return err == nil && !ok
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
