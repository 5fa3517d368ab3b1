package luagen

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
)

// partDir is the folder of the fragments, which are text that several scripts share: below that of the scripts, or
// of all domains.
const partDir = "part"

// srcDir is the folder of the scripts with fragments where the others lie beside the Go.
const srcDir = "src"

const fragmentUse = "--< part/name.lua, alone on its line"

// marker is a line that stands for a fragment.
type marker struct {
	found      bool
	file       string // as it stands there
	col, width int
}

func markerIn(line string) marker {
	text := strings.TrimLeft(line, " \t")
	file, ok := strings.CutPrefix(strings.TrimRight(text, " \t\r"), "--<")
	if !ok {
		return marker{}
	}
	return marker{true, strings.TrimSpace(file), len(line) - len(text) + 1, len(strings.TrimRight(text, " \t\r"))}
}

// name is the fragment's file as the marker names it, part/now.lua; "" where it names none.
func (m marker) name() string {
	stem := strings.TrimSuffix(strings.TrimPrefix(m.file, partDir+"/"), ".lua")
	if m.file != partDir+"/"+stem+".lua" || !isStem(stem) {
		return ""
	}
	return m.file
}

// hasFragments reports whether a text has a line that stands for one.
func hasFragments(text string) bool {
	return strings.Contains(text, "--<") && slices.ContainsFunc(strings.Split(text, "\n"),
		func(line string) bool { return markerIn(line).found })
}

// lineSource is where a line of a text comes from.
type lineSource struct {
	file   string
	line   int
	indent int // bytes that the indentation of markers put before the line
}

// expander puts fragments into scripts. Files are named by paths from the working directory.
type expander struct {
	read  func(file string) (text string, ok bool)
	used  map[string]bool // fragments, by path
	found Diagnostics

	file  string // the script that is expanded
	crlf  bool
	inner []string // the fragments around the line, outermost first
	lines []string
	from  []lineSource
}

// expand returns the text that Redis runs, without the line that names its source, and where its lines come from.
func (x *expander) expand(src Source) (text string, from []lineSource) {
	x.file, x.crlf, x.lines, x.from, x.inner = src.File, lineEndsLike(src.Text), nil, nil, nil
	x.add(src.File, src.Text, "")
	return strings.Join(x.lines, "\n"), x.from
}

func lineEndsLike(text string) (crlf bool) {
	first, _, more := strings.Cut(text, "\n")
	return more && strings.HasSuffix(first, "\r")
}

// add appends the lines of a file, each behind the indentation of the marker that names it.
func (x *expander) add(file, text, indent string) {
	for i, line := range strings.Split(text, "\n") {
		m := markerIn(line)
		if !m.found {
			x.keep(line, lineSource{file, i + 1, len(indent)}, indent)
			continue
		}
		part, text := x.find(file, i+1, m)
		if part == "" {
			continue
		}
		x.inner = append(x.inner, part)
		x.add(part, strings.TrimSuffix(text, "\n"), indent+line[:m.col-1])
		x.inner = x.inner[:len(x.inner)-1]
	}
}

func (x *expander) keep(line string, from lineSource, indent string) {
	if len(x.inner) > 0 {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			line = indent + line
		}
		if x.crlf {
			line += "\r"
		}
	}
	x.lines, x.from = append(x.lines, line), append(x.from, from)
}

// find returns the path and text of the fragment that a marker names: that of the script's folder, or of the one above,
// which domains share.
func (x *expander) find(file string, line int, m marker) (part, text string) {
	fail := func(message, cure string) (string, string) {
		x.found = append(x.found, Diagnostic{file, Pos{line, m.col}, m.width, "F001", message, cure})
		return "", ""
	}
	name := m.name()
	if name == "" {
		return fail("a fragment line that names none", fragmentUse+"; names are lower case")
	}
	var files, have []string
	for _, dir := range partDirs(filepath.Dir(x.file)) {
		at := filepath.Join(dir, filepath.Base(name))
		if content, ok := x.read(at); ok {
			have, text = append(have, at), content
		}
		files = append(files, partsIn(dir)...)
	}
	switch {
	case len(have) == 0:
		if near := spelling.Nearest(name, files); near != "" {
			return fail("there is no "+name, "did you mean "+near+"?")
		}
		return fail("there is no "+name, "write it there, beside the scripts")
	case len(have) > 1:
		return fail(name+" is in the folder above, too", "rename one of them")
	case slices.Contains(x.inner, have[0]):
		return fail(name+" is a part of itself", "take the line out of one of them")
	}
	x.used[have[0]] = true
	return have[0], text
}

// refuse reports the fragment lines of a script that is embedded as it is: Redis would skip them as comments.
func (x *expander) refuse(src Source) {
	for i, line := range strings.Split(src.Text, "\n") {
		if m := markerIn(line); m.found {
			x.found = append(x.found, Diagnostic{src.File, Pos{i + 1, m.col}, m.width, "F001",
				"a fragment line in a script that is embedded as it is",
				"move the script and the folder part to " + srcDir + "/: luagen writes the expanded one here"})
		}
	}
}

// partDirs are the folders of the fragments for scripts of dir.
func partDirs(dir string) []string {
	return []string{filepath.Join(dir, partDir), filepath.Join(dir, "..", partDir)}
}

// partsIn lists the fragments of a folder as a marker names them.
func partsIn(dir string) (names []string) {
	for _, file := range filesIn(dir, ".lua") {
		if name := filepath.Base(file); !strings.HasPrefix(name, ".") {
			names = append(names, partDir+"/"+name)
		}
	}
	return names
}

// unused reports the fragments of a folder that no script has. One that domains share counts as used where a script or
// a fragment of any domain has it.
func (x *expander) unused(dir string) Diagnostics {
	var found Diagnostics
	shared := ""
	for i, parts := range partDirs(dir) {
		for _, name := range partsIn(parts) {
			file := filepath.Join(parts, filepath.Base(name))
			if i > 0 && shared == "" {
				shared = " " + x.siblings(filepath.Join(dir, ".."))
			}
			if !x.used[file] && (i == 0 || !strings.Contains(shared, name)) {
				found = append(found, Diagnostic{file, Pos{1, 1}, 1, "F002", "no script has this fragment",
					"remove it, or put it into a script: " + fragmentUse})
			}
		}
	}
	return found
}

// siblings are the fragment lines in the folders of a folder.
func (x *expander) siblings(dir string) string {
	var all strings.Builder
	for _, pattern := range []string{"*.lua", "*/*.lua", "*/" + partDir + "/*.lua"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			text, _ := x.read(file)
			for line := range strings.Lines(text) {
				if m := markerIn(strings.TrimSuffix(line, "\n")); m.found {
					all.WriteString(m.file + "\n")
				}
			}
		}
	}
	return all.String()
}
