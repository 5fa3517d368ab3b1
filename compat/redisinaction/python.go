package redisinaction

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
)

// A writer collects the output of json.dumps. The nil writer collects nothing.
type writer struct {
	b    []byte
	keys []map[string]bool // of the objects that are open
}

// Python's limits: nesting up to its recursion limit, 1000 less the depth of the program, and the length of numbers.
const (
	pythonDepth  = 500
	pythonDigits = 4300
)

func (w *writer) depth() int {
	if w == nil {
		return maxDepth
	}
	return pythonDepth
}

func (w *writer) len() int {
	if w == nil {
		return 0
	}
	return len(w.b)
}

func (w *writer) raw(text string) {
	if w != nil {
		w.b = append(w.b, text...)
	}
}

func (w *writer) bytes(text []byte) {
	if w != nil {
		w.b = append(w.b, text...)
	}
}

func (w *writer) openObject()  { w.keys = append(w.keys, make(map[string]bool)) }
func (w *writer) closeObject() { w.keys = w.keys[:len(w.keys)-1] }

// key refuses a repeated key of an object: Python keeps one of the two.
func (w *writer) key(start int) error {
	if w == nil {
		return nil
	}
	seen, name := w.keys[len(w.keys)-1], string(w.b[start:])
	if seen[name] {
		return errors.New("an object has a key twice")
	}
	seen[name] = true
	return nil
}

const hexDigits = "0123456789abcdef"

// rune writes one character, or half a surrogate pair, of a string.
func (w *writer) rune(r rune) {
	if w == nil {
		return
	}
	switch r {
	case '"', '\\':
		w.b = append(w.b, '\\', byte(r))
	case '\b':
		w.raw(`\b`)
	case '\f':
		w.raw(`\f`)
	case '\n':
		w.raw(`\n`)
	case '\r':
		w.raw(`\r`)
	case '\t':
		w.raw(`\t`)
	default:
		switch {
		case r >= ' ' && r <= '~':
			w.b = append(w.b, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			w.rune(high)
			w.rune(low)
		default:
			w.b = append(w.b, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		}
	}
}

// number writes an integer with its digits, and any other number as Python's repr of the float: the shortest digits
// that parse to the same float, with a point or an exponent.
func (w *writer) number(text string, whole bool) error {
	digits := len(text)
	if text[0] == '-' {
		digits-- // Python does not count the sign
	}
	switch {
	case w == nil:
		return nil
	case whole && text == "-0":
		w.raw("0")
		return nil
	case whole && digits > pythonDigits:
		return fmt.Errorf("an integer of %d digits, more than Python reads; send it as a string", digits)
	case whole:
		w.raw(text)
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return errors.New("a number that is out of range for a float")
	}
	w.b = appendFloat(w.b, f)
	return nil
}

func appendFloat(b []byte, f float64) []byte {
	short := strconv.AppendFloat(nil, f, 'e', -1, 64)
	exponent := 0
	for i, c := range short {
		if c == 'e' {
			exponent, _ = strconv.Atoi(string(short[i+1:]))
		}
	}
	if exponent < -4 || exponent >= 16 {
		return append(b, short...)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}
