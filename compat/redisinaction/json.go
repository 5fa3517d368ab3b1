package redisinaction

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads JSON as Python's json module does: NaN, Infinity and -Infinity are numbers, an object may have a
// key twice. With a writer, it also writes the value as json.dumps does.
type scanner struct {
	in    []byte
	at    int
	depth int
	out   *writer
}

// maxDepth bounds the nesting that is read.
const maxDepth = 10_000

func (s *scanner) fail(what string) error { return fmt.Errorf("%s at byte %d", what, s.at) }

func (s *scanner) space() {
	for s.at < len(s.in) {
		switch s.in[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.in) {
		return s.in[s.at]
	}
	return 0
}

func (s *scanner) accept(b byte) bool {
	if s.peek() != b || s.at == len(s.in) {
		return false
	}
	s.at++
	return true
}

// value skips one value and the space around it.
func (s *scanner) value() error {
	s.space()
	var err error
	switch b := s.peek(); {
	case b == '[':
		err = s.nested(']', s.value)
	case b == '{':
		if s.out != nil {
			s.out.openObject()
			defer s.out.closeObject()
		}
		err = s.nested('}', s.member)
	case b == '"':
		_, err = s.text(false)
	case b == '-' && s.literal("-Infinity"), s.literal("NaN"), s.literal("Infinity"),
		s.literal("null"), s.literal("true"), s.literal("false"):
	default:
		err = s.number()
	}
	s.space()
	return err
}

// literal skips w if it is next.
func (s *scanner) literal(w string) bool {
	if len(s.in)-s.at < len(w) || string(s.in[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	s.out.raw(w)
	return true
}

// nested skips an array or an object.
func (s *scanner) nested(end byte, element func() error) error {
	if s.depth++; s.depth > s.out.depth() {
		return s.fail("nested too deeply")
	}
	s.out.raw(string(s.in[s.at]))
	s.at++
	s.space()
	for first := true; !s.accept(end); first = false {
		if !first {
			if !s.accept(',') {
				return s.fail("a comma was expected")
			}
			s.out.raw(", ")
		}
		if err := element(); err != nil {
			return err
		}
	}
	s.out.raw(string(end))
	s.depth--
	return nil
}

func (s *scanner) member() error {
	s.space()
	if s.peek() != '"' {
		return s.fail("a key was expected")
	}
	start := s.out.len()
	if _, err := s.text(false); err != nil {
		return err
	}
	if err := s.out.key(start); err != nil {
		return err
	}
	s.space()
	if !s.accept(':') {
		return s.fail("a colon was expected")
	}
	s.out.raw(": ")
	return s.value()
}

// errSurrogate reports that a text has no UTF-8 form.
var errSurrogate = errors.New("half of a surrogate pair")

// text skips a string. With keep it returns the string, with loneSurrogate for half a pair.
func (s *scanner) text(keep bool) (string, error) {
	s.at++
	s.out.raw(`"`)
	var text []byte
	for {
		run := s.plain()
		s.out.bytes(run)
		if keep {
			text = append(text, run...)
		}
		switch b := s.peek(); {
		case s.at == len(s.in):
			return "", s.fail("a string without an end")
		case b == '"':
			s.at++
			s.out.raw(`"`)
			return string(text), nil
		case b < 0x20:
			return "", s.fail("a control character in a string")
		}
		r, err := s.special()
		if err != nil {
			return "", err
		}
		s.out.rune(r)
		if !keep {
			continue
		}
		if utf16.IsSurrogate(r) {
			text = append(text, loneSurrogate...)
		} else {
			text = utf8.AppendRune(text, r)
		}
	}
}

// plain skips the characters that both languages write without an escape.
func (s *scanner) plain() []byte {
	start := s.at
	for s.at < len(s.in) {
		if b := s.in[s.at]; b < ' ' || b > '~' || b == '"' || b == '\\' {
			break
		}
		s.at++
	}
	return s.in[start:s.at]
}

// special skips an escape, or a character beyond ASCII.
func (s *scanner) special() (rune, error) {
	if s.in[s.at] == '\\' {
		return s.escape()
	}
	r, size := utf8.DecodeRune(s.in[s.at:])
	if r == utf8.RuneError && size == 1 {
		return 0, s.fail("not UTF-8")
	}
	s.at += size
	return r, nil
}

// loneSurrogate represents half a pair. It is not UTF-8, so that no other text contains it.
const loneSurrogate = "\xed"

// plainText reads a string without half a surrogate pair, which can be a key or a name.
func (s *scanner) plainText() (string, error) {
	s.space()
	if s.peek() != '"' {
		return "", s.fail("a string was expected")
	}
	text, err := s.text(true)
	if err == nil && !utf8.ValidString(text) {
		err = errSurrogate
	}
	s.space()
	return text, err
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape skips one escape, or the two of a surrogate pair.
func (s *scanner) escape() (rune, error) {
	if s.at+1 == len(s.in) {
		return 0, s.fail("a string without an end")
	}
	if r, ok := escapes[s.in[s.at+1]]; ok {
		s.at += 2
		return r, nil
	}
	high, ok := s.hex(s.at)
	if !ok {
		return 0, s.fail("an unknown escape")
	}
	s.at += 6
	if low, ok := s.hex(s.at); ok {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			s.at += 6
			return r, nil
		}
	}
	return high, nil
}

// hex reads an escape of four hexadecimal digits, such as \u00e9.
func (s *scanner) hex(at int) (rune, bool) {
	if len(s.in)-at < 6 || s.in[at] != '\\' || s.in[at+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, b := range s.in[at+2 : at+6] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	return r, true
}

// number skips a number.
func (s *scanner) number() error {
	start := s.at
	s.accept('-')
	whole := true
	if !s.accept('0') && s.digits() == 0 {
		s.at = start
		return s.fail("a value was expected")
	}
	if s.peek() == '.' {
		s.at++
		if whole = false; s.digits() == 0 {
			return s.fail("no digit after the point")
		}
	}
	if b := s.peek(); b == 'e' || b == 'E' {
		s.at++
		if !s.accept('+') {
			s.accept('-')
		}
		if whole = false; s.digits() == 0 {
			return s.fail("no digit in the exponent")
		}
	}
	return s.out.number(string(s.in[start:s.at]), whole)
}

func (s *scanner) digits() (n int) {
	for s.peek() >= '0' && s.peek() <= '9' {
		s.at++
		n++
	}
	return n
}
