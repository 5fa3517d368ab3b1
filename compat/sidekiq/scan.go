package sidekiq

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
)

// scanner reads JSON by the grammar of RFC 8259 and decodes nothing: the bytes it skips are kept.
type scanner struct {
	text  []byte
	at    int
	depth int
	wrong error // of all faults; nil is ErrPayload

	// strict also refuses what Ruby does not write back: a number that it reads as infinite, text that is not UTF-8 or
	// has half of a surrogate pair, and an object with a name twice.
	strict bool
	names  [][]byte // of the objects that are open, with strict
}

func (s *scanner) fault(what string) error {
	return fmt.Errorf("%w: %s at byte %d", cmp.Or(s.wrong, ErrPayload), what, s.at)
}

// next returns the byte to read, or 0 at the end: no token starts with 0.
func (s *scanner) next() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// space skips white space. Most payloads have none, so the check of one byte is small enough to be inlined.
func (s *scanner) space() {
	if s.next() <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) value() error {
	switch c := s.next(); {
	case c == '"':
		_, err := s.str()
		return err
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fault("a value was expected")
}

func (s *scanner) enter() error {
	s.at++
	s.depth++
	if s.depth > maxDepth {
		return s.fault("nested deeper than 100 levels")
	}
	s.space()
	return nil
}

func (s *scanner) leave() {
	s.at++
	s.depth--
}

// object reads an object; visit may be nil.
func (s *scanner) object(visit func(member)) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.next() == '}' {
		s.leave()
		return nil
	}
	var m member
	outer := len(s.names)
	if err := s.pair(&m, visit != nil); err != nil {
		return err
	}
	return s.rest(&m, visit, outer)
}

// rest reads the members of an object after m. The names before outer are those of the objects around it.
func (s *scanner) rest(m *member, visit func(member), outer int) error {
	for {
		if visit != nil {
			visit(*m)
		}
		s.space()
		switch s.next() {
		case ',':
			s.at++
			s.space()
		case '}':
			s.leave()
			return s.unique(outer)
		default:
			return s.fault("a comma or the end of an object was expected")
		}
		if err := s.pair(m, visit != nil); err != nil {
			return err
		}
	}
}

func (s *scanner) pair(m *member, named bool) error {
	m.from = s.at
	escaped, err := s.str()
	if err != nil {
		return err
	}
	if named || s.strict {
		m.name = s.text[m.from+1 : s.at-1]
		if escaped {
			m.name = unescape(s.text[m.from:s.at])
		}
	}
	if s.strict {
		s.names = append(s.names, m.name)
	}
	s.space()
	if s.next() != ':' {
		return s.fault("a colon was expected")
	}
	s.at++
	s.space()
	m.value = s.at
	err = s.value()
	m.end = s.at
	return err
}

// unescape decodes a string that was read, quotes included.
func unescape(quoted []byte) []byte {
	var text string
	// encoding/json accepts every string that the scanner accepts.
	_ = json.Unmarshal(quoted, &text)
	return []byte(text)
}

func (s *scanner) array() error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.next() == ']' {
		s.leave()
		return nil
	}
	for {
		if err := s.value(); err != nil {
			return err
		}
		s.space()
		switch s.next() {
		case ',':
			s.at++
			s.space()
		case ']':
			s.leave()
			return nil
		default:
			return s.fault("a comma or the end of an array was expected")
		}
	}
}

// str reads a string and reports whether it has escapes.
func (s *scanner) str() (escaped bool, err error) {
	if s.next() != '"' {
		return false, s.fault("a string was expected")
	}
	from := s.at
	s.at++
	s.plain()
	if s.next() == '"' { // the common case
		s.at++
	} else if escaped, err = s.special(); err != nil {
		return escaped, err
	}
	if s.strict {
		err = s.encoded(from, escaped)
	}
	return escaped, err
}

// special reads the remainder of a string, from a byte that is not plain.
func (s *scanner) special() (escaped bool, err error) {
	for ; ; s.at++ {
		s.plain()
		switch c := s.next(); {
		case c == '"':
			s.at++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return true, err
			}
		case s.at >= len(s.text):
			return escaped, s.fault("a string has no end")
		case c < ' ':
			return escaped, s.fault("a string has an unescaped control character")
		}
	}
}

// plain moves to the next special byte of a string: a quote, a backslash or a control character. It checks eight
// bytes at a time, as most of a job is in its strings.
func (s *scanner) plain() {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	text, at := s.text, s.at
	for at+8 <= len(text) {
		w := binary.LittleEndian.Uint64(text[at:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// The lowest top bit that is set marks the first such byte; higher ones can be wrong.
		found := ((w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if found != 0 {
			s.at = at + bits.TrailingZeros64(found)/8
			return
		}
		at += 8
	}
	for at < len(text) && text[at] >= ' ' && text[at] != '"' && text[at] != '\\' {
		at++
	}
	s.at = at
}

// escape reads from a backslash up to the last byte of its escape.
func (s *scanner) escape() error {
	s.at++
	switch s.next() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			s.at++
			if bytes.IndexByte([]byte("0123456789abcdefABCDEF"), s.next()) < 0 {
				return s.fault("four hex digits were expected")
			}
		}
		return nil
	}
	return s.fault("an escape is unknown")
}

func (s *scanner) number() error {
	from := s.at
	if err := s.numeral(); err != nil || !s.strict {
		return err
	}
	return s.finite(s.text[from:s.at])
}

func (s *scanner) numeral() error {
	if s.next() == '-' {
		s.at++
	}
	if s.next() == '0' {
		s.at++
	} else if !s.digits() {
		return s.fault("a digit was expected")
	}
	if s.next() == '.' {
		s.at++
		if !s.digits() {
			return s.fault("a digit was expected")
		}
	}
	if s.next()|0x20 == 'e' {
		s.at++
		if c := s.next(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return s.fault("a digit was expected")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	text, at := s.text, s.at
	for at < len(text) && text[at]-'0' <= 9 {
		at++
	}
	some := at > s.at
	s.at = at
	return some
}

func (s *scanner) literal(w string) error {
	if !bytes.HasPrefix(s.text[s.at:], []byte(w)) {
		return s.fault("a value was expected")
	}
	s.at += len(w)
	return nil
}
