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

	"github.com/luatomic/luatomic/internal/exact"
)

// Errors about the parts of a job, found before anything is sent. None of them quotes the job.
var (
	// ErrArgs reports that the arguments are not one JSON array that Ruby reads and writes back unchanged.
	ErrArgs = errors.New("sidekiq: arguments are not a JSON array")
	// ErrEncoding reports that a text is not UTF-8, or has half of a surrogate pair: Ruby's generator raises on it.
	ErrEncoding = errors.New("sidekiq: text is not UTF-8")
)

// Args encodes the values as the arguments of a job. A float stays a Float in Ruby, with a decimal point, even inside
// []any, map[string]any and Keywords. Inside other types encoding/json writes the value, and a float without fraction
// becomes an Integer. Errors: ErrArgs, ErrEncoding, ErrNumber.
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
		return appendFloat32(to, v)
	case []any:
		return appendList(to, v)
	case map[string]any:
		return appendMap(to, v)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return to, noJSON(value, err)
	}
	if !exact.JSON(value, text.Bytes()) {
		return to, ErrEncoding
	}
	return append(to, bytes.TrimRight(text.Bytes(), "\n")...), nil
}

// noJSON returns the reason why encoding/json, or a type of this package in the value, refuses it.
func noJSON(value any, err error) error {
	var refused *json.UnsupportedValueError
	switch {
	case errors.As(err, &refused) && refused.Value.CanFloat(), errors.Is(err, ErrNumber):
		return fmt.Errorf("%w: in %v", ErrNumber, reflect.TypeOf(value))
	case errors.Is(err, ErrEncoding):
		return fmt.Errorf("%w: in %v", ErrEncoding, reflect.TypeOf(value))
	}
	return fmt.Errorf("%w: %v has no JSON", ErrArgs, reflect.TypeOf(value))
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
	taken   bool // the text is a payload of a queue: Ruby may have written it
}

// canonicalPayload returns a payload in Ruby's form, or the payload itself where it has no such form. In V8 floats
// whose digits are not the shortest stay as they are: its generator writes such ones.
func canonicalPayload(payload []byte, v Version) []byte {
	c := canonical{scanner: scanner{text: payload, strict: true}, version: v, taken: true}
	c.space()
	if err := c.copyValue(); err != nil {
		return payload
	}
	return c.out
}

// appendCanonical appends the canonical form of a text that holds one JSON value, as a member of a payload. Text that
// is not JSON returns the given error.
func appendCanonical(to, text []byte, v Version, wrong error) ([]byte, error) {
	c := canonical{scanner: scanner{text: text, depth: 1, wrong: wrong, strict: true}, out: to, version: v}
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
		return c.copyString()
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

func (c *canonical) copyString() error {
	from := c.at
	escaped, err := c.str()
	if err != nil {
		return err
	}
	quoted := c.text[from:c.at]
	if escaped {
		c.out = appendString(c.out, string(unescape(quoted)))
	} else {
		c.out = append(c.out, quoted...)
	}
	return nil
}

func (c *canonical) copyNumber() error {
	from := c.at
	if err := c.number(); err != nil {
		return err
	}
	text := c.text[from:c.at]
	if isInteger(text) {
		if string(text) == "-0" {
			text = text[1:] // Ruby has no negative zero among its integers
		}
		c.out = append(c.out, text...)
		return nil
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return err
	}
	from = len(c.out)
	if c.out, err = appendFloat(c.out, x, c.version); err != nil || !c.taken || c.version < V8 {
		return err
	}
	if n := significant(text); n <= 17 && n != significant(c.out[from:]) {
		c.out = append(c.out[:from], text...)
	}
	return nil
}

// significant counts the digits of a float without the zeros at both ends.
func significant(float []byte) int {
	if e := bytes.IndexAny(float, "eE"); e >= 0 {
		float = float[:e]
	}
	digits := bytes.Trim(bytes.TrimLeft(float, "-"), "0.")
	return len(digits) - bytes.Count(digits, []byte("."))
}

func (c *canonical) copyArray() error { return c.copyItems('[', ']', c.copyValue) }

func (c *canonical) copyObject() error {
	outer := len(c.names)
	err := c.copyItems('{', '}', func() error {
		start := len(c.out)
		if err := c.copyString(); err != nil {
			return err
		}
		c.names = append(c.names, c.out[start:])
		return c.copyMember()
	})
	if err != nil {
		return err
	}
	return c.unique(outer)
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
