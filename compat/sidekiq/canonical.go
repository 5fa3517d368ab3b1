package sidekiq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Errors about the parts of a job, found before anything is sent. None of them quotes the job.
var (
	// ErrArgs reports that the arguments are not one JSON array that Ruby reads and writes back unchanged.
	ErrArgs = errors.New("sidekiq: arguments are not a JSON array")
	// ErrEncoding reports that a text is not UTF-8, or has half of a surrogate pair: Ruby's generator raises on it.
	ErrEncoding = errors.New("sidekiq: text is not UTF-8")
)

// Args encodes the values as the arguments of a job. A float stays a Float in Ruby, with a decimal point, also inside
// []any and map[string]any; inside other types encoding/json writes the value, and a float without fraction becomes
// an Integer. Errors: ErrArgs, ErrEncoding, ErrNumber.
func Args(values ...any) (json.RawMessage, error) {
	out := []byte{'['}
	var err error
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendValue(out, v); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return append(out, ']'), nil
}

func appendValue(to []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(to, "null"...), nil
	case bool:
		return strconv.AppendBool(to, v), nil
	case string:
		if !utf8.ValidString(v) {
			return to, ErrEncoding
		}
		return appendString(to, v), nil
	case float64:
		return appendFloat(to, v, V8)
	case float32:
		return appendFloat(to, float64(v), V8)
	case []any:
		return appendList(to, v)
	case map[string]any:
		return appendMap(to, v)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return to, fmt.Errorf("%w: %v has no JSON", ErrArgs, reflect.TypeOf(value))
	}
	return append(to, bytes.TrimRight(text.Bytes(), "\n")...), nil
}

func appendList(to []byte, list []any) (_ []byte, err error) {
	if list == nil {
		return append(to, "null"...), nil
	}
	to = append(to, '[')
	for i, v := range list {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = appendValue(to, v); err != nil {
			return to, err
		}
	}
	return append(to, ']'), nil
}

func appendMap(to []byte, m map[string]any) (_ []byte, err error) {
	if m == nil {
		return append(to, "null"...), nil
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	to = append(to, '{')
	for i, name := range names {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = appendValue(to, name); err != nil {
			return to, err
		}
		if to, err = appendValue(append(to, ':'), m[name]); err != nil {
			return to, err
		}
	}
	return append(to, '}'), nil
}

// canonical writes a JSON value as Ruby's generator does: no spaces, its escapes, its numbers. A payload that a Ruby
// process parses and writes again then keeps its bytes. Sidekiq's own reschedule relies on that.
type canonical struct {
	scanner
	out     []byte
	version Version
}

// appendCanonical appends the canonical form of a text that holds one JSON value, as a member of a payload. Text that
// is not JSON returns the given error.
func appendCanonical(to, text []byte, v Version, wrong error) ([]byte, error) {
	c := canonical{scanner: scanner{text: text, depth: 1, wrong: wrong}, out: to, version: v}
	c.space()
	if err := c.copyValue(); err != nil {
		return to, err
	}
	c.space()
	if c.at != len(text) {
		return to, c.fault("something follows the value")
	}
	return c.out, nil
}

func (c *canonical) copyValue() error {
	from := c.at
	switch first := c.next(); {
	case first == '"':
		_, err := c.copyString()
		return err
	case first == '{':
		return c.copyObject()
	case first == '[':
		return c.copyArray()
	case first == '-' || first >= '0' && first <= '9':
		return c.copyNumber()
	}
	if err := c.value(); err != nil {
		return err
	}
	c.out = append(c.out, c.text[from:c.at]...)
	return nil
}

// copyString copies a string and returns its decoded value.
func (c *canonical) copyString() ([]byte, error) {
	from, start := c.at, len(c.out)
	escaped, err := c.str()
	if err != nil {
		return nil, err
	}
	quoted := c.text[from:c.at]
	if !utf8.Valid(quoted) || escaped && loneSurrogate(quoted) {
		return nil, fmt.Errorf("%w: the string at byte %d", ErrEncoding, from)
	}
	if escaped {
		c.out = appendString(c.out, string(unescape(quoted)))
	} else {
		c.out = append(c.out, quoted...)
	}
	return c.out[start:], nil
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

func (c *canonical) copyNumber() error {
	from := c.at
	if err := c.number(); err != nil {
		return err
	}
	text := c.text[from:c.at]
	if bytes.IndexByte(text, '.') < 0 && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		if string(text) == "-0" {
			text = text[1:] // Ruby has no negative zero among its integers
		}
		c.out = append(c.out, text...)
		return nil
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("%w: the number at byte %d", ErrNumber, from)
	}
	c.out, err = appendFloat(c.out, x, c.version)
	return err
}

func (c *canonical) copyArray() error { return c.copyItems('[', ']', c.copyValue) }

func (c *canonical) copyObject() error {
	names := make(map[string]bool)
	return c.copyItems('{', '}', func() error {
		at := c.at
		name, err := c.copyString()
		if err != nil {
			return err
		}
		if names[string(name)] {
			return fmt.Errorf("%w: an object has one name twice, at byte %d", ErrArgs, at)
		}
		names[string(name)] = true
		return c.copyMember()
	})
}

// copyItems copies a list with its brackets.
func (c *canonical) copyItems(open, end byte, item func() error) error {
	if err := c.enter(); err != nil {
		return err
	}
	c.out = append(c.out, open)
	for c.next() != end {
		if err := item(); err != nil {
			return err
		}
		c.space()
		if c.next() == end {
			break
		}
		if c.next() != ',' {
			return c.fault("a comma or the end of a list was expected")
		}
		c.at++
		c.space()
		c.out = append(c.out, ',')
		if c.next() == end {
			return c.fault("a comma precedes the end of a list")
		}
	}
	c.leave()
	c.out = append(c.out, end)
	return nil
}

func (c *canonical) copyMember() error {
	c.space()
	if c.next() != ':' {
		return c.fault("a colon was expected")
	}
	c.at++
	c.space()
	c.out = append(c.out, ':')
	return c.copyValue()
}
