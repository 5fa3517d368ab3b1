package luagen

import (
	"strings"
)

// tagText is the text of one tag after its name, its continuation lines joined by newlines.
type tagText struct {
	text string
	segs []segment
}

// segment says where a stretch of the joined text stands in the file.
type segment struct {
	off int
	pos Pos
}

func (t *tagText) add(text string, pos Pos) {
	if len(t.segs) > 0 {
		t.text += "\n"
	}
	t.segs = append(t.segs, segment{len(t.text), pos})
	t.text += text
}

func (t *tagText) at(off int) Pos {
	for i := len(t.segs) - 1; i >= 0; i-- {
		if s := t.segs[i]; s.off <= off {
			return Pos{s.pos.Line, s.pos.Col + off - s.off}
		}
	}
	return Pos{1, 1}
}

// scanner reads the structured part of a tag, left to right.
type scanner struct {
	tagText
	off int
	gap int // white space before off: 0, 1, or 2 for more and for a line break
}

func newScanner(t tagText) *scanner {
	s := &scanner{tagText: t}
	s.space()
	s.gap = 2
	return s
}

func (s *scanner) space() {
	s.gap = 0
	for s.off < len(s.text) {
		switch s.text[s.off] {
		case '\n', '\t':
			s.gap = 2
		case ' ', '\r':
			s.gap = min(2, s.gap+1)
		default:
			return
		}
		s.off++
	}
}

func (s *scanner) pos() Pos { return s.at(s.off) }

func (s *scanner) done() bool { return s.off >= len(s.text) }

// word returns the run of non-space bytes at off without consuming it.
func (s *scanner) word() string {
	rest := s.text[s.off:]
	if i := strings.IndexAny(rest, " \t\r\n"); i >= 0 {
		return rest[:i]
	}
	return rest
}

// ident returns the identifier at off without consuming it: letters, digits, underscores.
func (s *scanner) ident() string {
	i := s.off
	for i < len(s.text) && isWordByte(s.text[i]) {
		i++
	}
	return s.text[s.off:i]
}

func (s *scanner) skip(n int) {
	s.off += n
	s.space()
}

// accept consumes the punctuation c.
func (s *scanner) accept(c byte) bool {
	if s.done() || s.text[s.off] != c {
		return false
	}
	s.skip(1)
	return true
}

// rest consumes all that is left, as one line of prose.
func (s *scanner) rest() string {
	text := strings.Join(strings.Fields(s.text[s.off:]), " ")
	s.off = len(s.text)
	return text
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isName reports whether s can name a key, argument or field: words joined by underscores, or in camel case.
func isName(s string) bool {
	for i := range len(s) {
		if !isWordByte(s[i]) {
			return false
		}
	}
	return s != "" && s[0] >= 'a' && s[0] <= 'z'
}

// isStem reports whether s can name a file: lower-case words joined by underscores.
func isStem(s string) bool {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isWordByte(c) || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return true
}
