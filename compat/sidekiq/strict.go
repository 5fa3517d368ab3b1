package sidekiq

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// encoded checks the string from there on that was just read.
func (s *scanner) encoded(from int, escaped bool) error {
	quoted := s.text[from:s.at]
	if !utf8.Valid(quoted) || escaped && loneSurrogate(quoted) {
		return fmt.Errorf("%w: the string at byte %d", ErrEncoding, from)
	}
	return nil
}

// loneSurrogate reports whether a string has an escape that is half of a surrogate pair without the other half.
func loneSurrogate(quoted []byte) bool {
	high := false
	for i := 0; i < len(quoted); i++ {
		var code uint64
		if quoted[i] == '\\' {
			i++
			if quoted[i] == 'u' {
				// The scanner has seen the four digits.
				code, _ = strconv.ParseUint(string(quoted[i+1:i+5]), 16, 32)
				i += 4
			}
		}
		low := code >= 0xdc00 && code < 0xe000
		if low != high {
			return true
		}
		high = code >= 0xd800 && code < 0xdc00
	}
	return false
}

// finite refuses a number that was just read when it is beyond the range of a Float; an integer has no such range.
func (s *scanner) finite(text []byte) error {
	if isInteger(text) || len(text) < 300 && !bytes.ContainsAny(text, "eE") {
		return nil
	}
	if _, err := strconv.ParseFloat(string(text), 64); err != nil {
		return fmt.Errorf("%w: the number at byte %d", ErrNumber, s.at-len(text))
	}
	return nil
}

func isInteger(number []byte) bool { return !bytes.ContainsAny(number, ".eE") }

// unique checks the names from outer on, those of an object that ends, and drops them.
func (s *scanner) unique(outer int) error {
	if !s.strict {
		return nil
	}
	names := s.names[outer:]
	s.names = s.names[:outer]
	if twice(names) {
		return fmt.Errorf("%w: the object that ends at byte %d has one name twice", ErrArgs, s.at)
	}
	return nil
}

// twice reports whether two of the names are the same. Few are compared in less time than a map is made.
func twice(names [][]byte) bool {
	if len(names) <= 16 {
		for i, name := range names {
			for _, other := range names[:i] {
				if bytes.Equal(name, other) {
					return true
				}
			}
		}
		return false
	}
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[string(name)] = true
	}
	return len(known) < len(names)
}
