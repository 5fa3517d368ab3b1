package lua

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Reply decodes one reply of a script. If a value has the wrong type, the method records an error and returns the zero
// value. Run returns the first error. No method panics.
type Reply struct {
	script string
	value  any // the whole reply, until Tuple
	items  []any
	pos    int
	tuple  bool
	root   *Reply
	err    error
}

// Tuple requires the reply to be an array of exactly n values.
func (r *Reply) Tuple(n int) {
	items, ok := r.value.([]any)
	if !ok {
		r.fail("the reply", fmt.Sprintf("an array of %d", n), r.value)
		return
	}
	if len(items) != n {
		r.fail("the reply", fmt.Sprintf("an array of %d", n), items)
		return
	}
	r.items, r.tuple = items, true
}

// next returns the next value of the tuple, or the whole scalar reply.
func (r *Reply) next() any {
	if !r.tuple {
		return r.value
	}
	if r.pos >= len(r.items) {
		return nil
	}
	v := r.items[r.pos]
	r.pos++
	return v
}

// Absent reports whether the next value is nil, and skips it if so.
func (r *Reply) Absent() bool {
	if !r.tuple {
		return r.value == nil
	}
	if r.pos < len(r.items) && r.items[r.pos] == nil {
		r.pos++
		return true
	}
	return false
}

// Fail records that the value just read does not match the header.
func (r *Reply) Fail(name, want string) {
	var v any = r.value
	if r.tuple && r.pos > 0 {
		v = r.items[r.pos-1]
	}
	r.fail(name, want, v)
}

func (r *Reply) fail(name, want string, got any) {
	at := r
	if r.root != nil {
		at = r.root
	}
	if at.err == nil {
		at.err = fmt.Errorf("%s: %w: %s at position %d: want %s, got %s; is the script on the server another version?",
			r.script, ErrBadReply, name, r.pos, want, kind(got))
	}
}

// kind returns a value's type, never the value: it may be a payload.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case int64:
		return "an integer"
	case string:
		return "a string"
	case []any:
		return fmt.Sprintf("an array of %d", len(v))
	case misfit:
		return v.String()
	}
	return fmt.Sprintf("a %T", v)
}

// Int reads an integer reply, or its decimal text, as HGET returns it. An integer beyond 2^53 that a body returns as a
// number has lost its last digits in Lua; its text has them.
func (r *Reply) Int(name string) int64 {
	v := r.next()
	switch n := v.(type) {
	case int64:
		return n
	case string:
		if i, err := strconv.ParseInt(n, 10, 64); err == nil {
			return i
		}
	}
	r.fail(name, "an integer", v)
	return 0
}

// Uint reads an integer that is not negative.
func (r *Reply) Uint(name string) uint64 {
	v := r.next()
	switch n := v.(type) {
	case int64:
		if n >= 0 {
			return uint64(n)
		}
	case string:
		if u, err := strconv.ParseUint(n, 10, 64); err == nil {
			return u
		}
	}
	r.fail(name, "an integer from 0 up", v)
	return 0
}

// Bool reads 1, 0 or nil, which is Lua's false.
func (r *Reply) Bool(name string) bool {
	v := r.next()
	switch v {
	case int64(1):
		return true
	case int64(0), nil:
		return false
	}
	r.fail(name, "1, 0 or nil", v)
	return false
}

// Float reads a number sent as text. Depending on its processor, a server sends nan or -nan for 0/0: both are read as
// NaN.
func (r *Reply) Float(name string) float64 {
	v := r.next()
	if s, ok := v.(string); ok {
		if s == "-nan" {
			return math.NaN()
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return f
		}
	}
	r.fail(name, "a number as text", v)
	return 0
}

// String reads text.
func (r *Reply) String(name string) string {
	v := r.next()
	if s, ok := v.(string); ok {
		return s
	}
	r.fail(name, "a string", v)
	return ""
}

// Bytes reads a payload.
func (r *Reply) Bytes(name string) []byte {
	v := r.next()
	if s, ok := v.(string); ok {
		return []byte(s)
	}
	r.fail(name, "a string", v)
	return nil
}

// Any returns the value as go-redis returns it: int64, string, []any, or nil for an absent value.
func (r *Reply) Any(string) any { return r.next() }

// Milliseconds reads a duration.
func (r *Reply) Milliseconds(name string) time.Duration {
	return r.duration(name, time.Millisecond)
}

// Seconds reads a duration.
func (r *Reply) Seconds(name string) time.Duration { return r.duration(name, time.Second) }

func (r *Reply) duration(name string, unit time.Duration) time.Duration {
	n := r.Int(name)
	if max := int64(math.MaxInt64 / unit); n > max || n < -max {
		r.Fail(name, "a duration of at most 292 years")
		return 0
	}
	return time.Duration(n) * unit
}

// TimeMilli reads Unix milliseconds.
func (r *Reply) TimeMilli(name string) time.Time { return time.UnixMilli(r.Int(name)) }

// TimeSec reads Unix seconds.
func (r *Reply) TimeSec(name string) time.Time { return time.Unix(r.Int(name), 0) }

// Rows reads a flat array whose length is a multiple of stride. It returns a Reply over all values and the number of
// rows. Within a tuple, false counts as an empty array, because an empty table costs the server more than some
// commands.
func (r *Reply) Rows(name string, stride int) (*Reply, int) {
	v := r.next()
	rows := &Reply{script: r.script, tuple: true, root: r}
	if r.root != nil {
		rows.root = r.root
	}
	if v == nil && r.tuple {
		return rows, 0
	}
	items, ok := v.([]any)
	if !ok || len(items)%stride != 0 {
		r.fail(name, fmt.Sprintf("an array in rows of %d", stride), v)
		return rows, 0
	}
	rows.items = items
	return rows, len(items) / stride
}
