package luagen

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
)

// partDir is the folder, below that of the scripts, of the fragments: text that several scripts share.
const partDir = "part"

const fragmentUse = "--< part/name.lua above the text and --> below it"

// expanded is a script with the text of each fragment between its two markers.
type expanded struct {
	Source               // as on the disk
	text    string       // as it has to be
	sources []lineSource // of each line of text
	drift   Diagnostics
}

// lineSource is the place on the disk of one line.
type lineSource struct {
	file   string
	line   int
	indent int // bytes that the marker's indentation put before the line
}

// fragments are the texts of part/*.lua by file, and which of them a script has.
type fragments struct {
	lines map[string][]string
	files []string
	used  map[string]bool
	found Diagnostics
}

// loadFragments reads the folder part beside the scripts. It may be missing.
func loadFragments(dir string) (*fragments, error) {
	p := &fragments{lines: map[string][]string{}, used: map[string]bool{}}
	read, err := readScripts(filepath.Join(dir, partDir), false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("luagen: %w", err)
	}
	for _, src := range read {
		file := path.Join(partDir, src.File)
		p.files = append(p.files, file)
		lines := strings.Split(strings.TrimSuffix(src.Text, "\n"), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSuffix(line, "\r")
			if m := markerIn(line); m.kind != noMarker {
				p.fail(file, i+1, m, "a marker inside a fragment",
					"a fragment has none of its own: use both in the script")
			}
		}
		p.lines[file] = lines
	}
	return p, nil
}

func (p *fragments) fail(file string, line int, m marker, message, cure string) {
	p.found = append(p.found, Diagnostic{file, Pos{line, m.col}, m.width, "F001", message, cure})
}

type markerKind uint8

const (
	noMarker markerKind = iota
	beginMarker
	endMarker
)

// marker is a line that is one of the two comments around a fragment.
type marker struct {
	kind       markerKind
	file       string // of a beginMarker
	col, width int
}

func markerIn(line string) marker {
	text := strings.TrimLeft(line, " \t")
	m := marker{col: len(line) - len(text) + 1}
	text = strings.TrimRight(text, " \t\r")
	m.width = len(text)
	if text == "-->" {
		m.kind = endMarker
	} else if file, ok := strings.CutPrefix(text, "--<"); ok {
		m.kind, m.file = beginMarker, strings.TrimSpace(file)
	}
	return m
}

// expand puts the fragments into one script.
func (p *fragments) expand(src Source) expanded {
	x := expanded{Source: src}
	var out []string
	keep := func(line string, number int) {
		out = append(out, line)
		x.sources = append(x.sources, lineSource{file: src.File, line: number})
	}
	lines := strings.Split(src.Text, "\n")
	for i := 0; i < len(lines); i++ {
		keep(lines[i], i+1)
		m := markerIn(lines[i])
		if m.kind == endMarker {
			p.fail(src.File, i+1, m, "the end of a fragment without its beginning", fragmentUse)
		}
		if m.kind != beginMarker {
			continue
		}
		end := p.regionEnd(src.File, lines, i)
		part, ok := p.find(src.File, i+1, m)
		if end < 0 {
			continue
		}
		if ok {
			first := len(out)
			for n, text := range part {
				out = append(out, indented(text, m, lines[i]))
				x.sources = append(x.sources, lineSource{m.file, n + 1, m.col - 1})
			}
			x.compare(out[first:], lines[i+1:end], m, i+2)
		}
		i = end
		keep(lines[i], i+1)
	}
	x.text = strings.Join(out, "\n")
	return x
}

// region is where the text of a fragment stands in a script, from the line of its marker to that of the end marker.
type region struct{ start, end int }

func regionsOf(source string) (all []region) {
	off, start := 0, -1
	for line := range strings.Lines(source) {
		switch m := markerIn(strings.TrimSuffix(line, "\n")); {
		case m.kind == beginMarker && start < 0:
			start = off
		case m.kind == endMarker && start >= 0:
			all, start = append(all, region{start, off}), -1
		}
		off += len(line)
	}
	return all
}

// indented gives a fragment's line the indentation and the end of line that its marker has.
func indented(text string, m marker, markerLine string) string {
	if text != "" {
		text = markerLine[:m.col-1] + text
	}
	if strings.HasSuffix(markerLine, "\r") {
		text += "\r"
	}
	return text
}

// regionEnd finds the end marker of the region that begins at line at; -1 after a finding.
func (p *fragments) regionEnd(file string, lines []string, at int) int {
	depth, nested := 1, false
	for i := at + 1; i < len(lines); i++ {
		switch m := markerIn(lines[i]); m.kind {
		case endMarker:
			if depth--; depth == 0 {
				return i
			}
		case beginMarker:
			p.fail(file, i+1, m, fmt.Sprintf("a fragment begins before the one of line %d ends", at+1),
				"close that one with --> first: fragments do not stand in each other")
			depth, nested = depth+1, true
		}
	}
	if !nested {
		p.fail(file, at+1, markerIn(lines[at]), "a fragment without its end",
			"write --> on the line below the text, or right below this line")
	}
	return -1
}

// find returns the lines of the fragment that a marker names.
func (p *fragments) find(file string, line int, m marker) ([]string, bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(m.file, partDir+"/"), ".lua")
	if m.file != partDir+"/"+name+".lua" || !isStem(name) {
		p.fail(file, line, m, "the beginning of a fragment that names none", fragmentUse+"; names are lower case")
		return nil, false
	}
	part, ok := p.lines[m.file]
	if !ok {
		cure := "write it there, beside the scripts"
		if near := spelling.Nearest(m.file, p.files); near != "" {
			cure = "did you mean " + near + "?"
		}
		p.fail(file, line, m, "there is no "+m.file, cure)
		return nil, false
	}
	p.used[m.file] = true
	return part, true
}

// compare notes the first line of a region that is not its fragment's; from is the number of the first one on the disk.
func (x *expanded) compare(want, have []string, m marker, from int) {
	if slices.Equal(want, have) {
		return
	}
	at := 0
	for at < len(want) && at < len(have) && want[at] == have[at] {
		at++
	}
	x.drift = append(x.drift, Diagnostic{x.File, Pos{from + at, 1}, 1 << 10, "F003",
		"this is not the text of " + m.file,
		"run luagen, which writes it anew; what is to be changed is " + m.file})
}

// unused reports the fragments that no script has.
func (p *fragments) unused() Diagnostics {
	var found Diagnostics
	for _, file := range p.files {
		if !p.used[file] {
			found = append(found, Diagnostic{file, Pos{1, 1}, 1, "F002", "no script has this fragment",
				"remove it, or put it into a script: " + fragmentUse})
		}
	}
	return found
}

// locate gives findings their place on the disk: those inside a fragment that of the fragment, once for all scripts.
func locate(found Diagnostics, scripts map[string]expanded) Diagnostics {
	seen := map[Diagnostic]bool{}
	out := found[:0]
	for _, d := range found {
		x, ok := scripts[d.File]
		if !ok || d.Pos.Line > len(x.sources) {
			out = append(out, d)
			continue
		}
		at := x.sources[d.Pos.Line-1]
		d.File, d.Pos = at.file, Pos{at.line, max(1, d.Pos.Col-at.indent)}
		if seen[d] {
			continue
		}
		seen[d] = true
		if at.file != x.File {
			d.Message += " (in " + x.File + ")"
		}
		out = append(out, d)
	}
	return out.sorted()
}

// rewritten lists the scripts whose regions are not their fragments' text.
func rewritten(scripts []expanded, dir string) []File {
	var files []File
	for _, x := range scripts {
		if x.text != x.Text {
			files = append(files, File{filepath.Join(dir, x.File), []byte(x.text)})
		}
	}
	return files
}
