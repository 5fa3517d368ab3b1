package lua

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
)

// Call is one call of a script while it is built and run. Generated code makes it: the keys in header order, EndKeys,
// the arguments in header order. The methods record the first mistake, and Run reports it before any I/O. A Call is
// used once.
//
// The state of a small call is in this one object, so that a call costs few allocations.
type Call struct {
	script *Script
	cmd    command
	reply  Reply
	err    error
	argv   []any
	keys   int
	size   int

	done        bool  // a reply arrived
	unknown     bool  // an attempt was sent whose outcome is unknown
	noScript    bool  // the last attempt found no script
	noLoad      bool  // the server refuses SCRIPT LOAD
	failedLoads uint8 // SCRIPT LOADs that succeeded although the next EVALSHA found no script
	// replica says that an attempt reached a replica. go-redis then closes the connection after a single command, but
	// not after a pipeline.
	replica     bool
	guarded     bool   // the script is to run behind its guard
	borrowed    bool   // an argument refers to memory of the caller
	failure     *Error // of the last attempt
	used, texts uint8  // of nums and text
	batched     bool   // a batch has sent it, or will
	phase       atomic.Uint32
	ahead       *send.Ahead // whose command goes out before the call

	inline [16]any
	sent   [16]any // of argv, for one attempt
	nums   [4]int64
	text   [6]string
	binary raw
}

// counts are numbers of keys as prepared arguments, which saves an allocation for each call. They are text, because a
// cluster client parses them.
var counts = [...]any{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}

func count(n int) any {
	if n < len(counts) {
		return counts[n]
	}
	return strconv.Itoa(n)
}

// NewCall starts a call with capacity for that many keys and arguments.
func NewCall(s *Script, keyCount, argCount int) *Call {
	c := &Call{script: s}
	if n := 3 + keyCount + argCount; n <= len(c.inline) {
		c.argv = c.inline[:3]
	} else {
		c.argv = make([]any, 3, n)
	}
	return c
}

func (c *Call) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %w", c.script.Name, err)
	}
}

// Name checks a value that becomes part of a key by a template.
func (c *Call) Name(param, value string) {
	if err := keys.CheckName(param, value); err != nil {
		c.fail(err)
	}
}

// Key appends one key.
func (c *Call) Key(name, key string) {
	if key == "" {
		c.fail(fmt.Errorf("%w: key %s is empty", ErrBadName, name))
	}
	if c.keys == 0 {
		c.argv = append(c.argv, key) // go-redis routes by it, in this form only
	} else {
		c.argv = append(c.argv, c.hold(key))
	}
	c.keys++
	c.size += len(key)
}

// Keys appends the variadic keys. A max of zero means no limit.
func (c *Call) Keys(name string, all []string, max int) {
	if max > 0 && len(all) > max {
		c.fail(&SizeError{What: name, N: len(all), Max: max, Unit: "keys"})
		return
	}
	if len(all) == 0 && c.keys == 0 {
		c.fail(fmt.Errorf("%w: %s is empty; pass at least one key", ErrBadName, name))
	}
	for _, k := range all {
		c.Key(name, k)
	}
}

// KeyGroup announces n elements of several keys each. A max of zero means no limit.
func (c *Call) KeyGroup(name string, n, max int) {
	if max > 0 && n > max {
		c.fail(&SizeError{What: name, N: n, Max: max, Unit: "items"})
	}
	if n == 0 && c.keys == 0 {
		c.fail(fmt.Errorf("%w: %s is empty; pass at least one key", ErrBadName, name))
	}
}

// EndKeys separates keys from arguments.
func (c *Call) EndKeys() { c.argv[2] = count(c.keys) }

// String appends a text argument; a nil v is an absent one. The first few are
// kept inside the Call, so that neither they nor the Params need an allocation.
func (c *Call) String(v *string) {
	if v == nil {
		c.None()
		return
	}
	c.size += len(*v)
	c.argv = append(c.argv, c.hold(*v))
}

func (c *Call) hold(v string) any {
	if int(c.texts) == len(c.text) {
		return v
	}
	c.text[c.texts] = v
	c.texts++
	return &c.text[c.texts-1]
}

// StringAt appends a text argument by reference: v points into a slice of the Params, which must not change until the
// call is over.
func (c *Call) StringAt(v *string) {
	if v == nil {
		c.None()
		return
	}
	c.argv = append(c.argv, v)
	c.size += len(*v)
	c.borrowed = true
}

// Bytes appends a binary argument; a nil v is an absent one. The header of the first slice is kept inside the Call.
func (c *Call) Bytes(v *[]byte) {
	if v == nil {
		c.None()
		return
	}
	c.size += len(*v)
	c.borrowed = true
	if c.binary == nil && *v != nil {
		c.binary = *v
		c.argv = append(c.argv, &c.binary)
		return
	}
	c.argv = append(c.argv, *v)
}

// raw lets go-redis read a []byte through a pointer, without a copy of the
// slice header for each one.
type raw []byte

// MarshalBinary returns the bytes themselves.
func (r *raw) MarshalBinary() ([]byte, error) { return *r, nil }

// BytesAt appends a binary argument by reference, as StringAt does.
func (c *Call) BytesAt(v *[]byte) {
	if v == nil {
		c.None()
		return
	}
	c.argv = append(c.argv, (*raw)(v))
	c.size += len(*v)
	c.borrowed = true
}

// Bool appends 1 or 0.
func (c *Call) Bool(v bool) {
	if v {
		c.argv = append(c.argv, "1")
	} else {
		c.argv = append(c.argv, "0")
	}
}

// Int appends an integer between min and max.
func (c *Call) Int(name string, v, min, max int64) {
	if v < min || v > max {
		c.fail(&RangeError{Field: name, Value: strconv.FormatInt(v, 10), Min: bound(min), Max: bound(max)})
	}
	c.int(v)
}

// MaxExact is the largest integer that a number of Lua holds, with all below it: 2^53.
const MaxExact = 1 << 53

// Exact refuses an integer that a number of Lua cannot hold: the script would work with another one.
func (c *Call) Exact(name string, v int64) {
	if v < -MaxExact || v > MaxExact {
		c.fail(&RangeError{Field: name, Value: strconv.FormatInt(v, 10), Min: bound(-MaxExact), Max: bound(MaxExact)})
	}
}

// IntAt appends an integer by reference, as StringAt does.
func (c *Call) IntAt(v *int64) {
	c.argv = append(c.argv, v)
	c.borrowed = true
}

func (c *Call) int(v int64) {
	if int(c.used) < len(c.nums) {
		c.nums[c.used] = v
		c.argv = append(c.argv, &c.nums[c.used])
		c.used++
		return
	}
	c.argv = append(c.argv, v)
}

func bound(n int64) string {
	if n == math.MinInt64 || n == math.MaxInt64 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Uint appends an unsigned integer between min and max.
func (c *Call) Uint(name string, v, min, max uint64) {
	if v < min || v > max {
		e := &RangeError{Field: name, Value: strconv.FormatUint(v, 10), Min: strconv.FormatUint(min, 10)}
		if max != math.MaxUint64 {
			e.Max = strconv.FormatUint(max, 10)
		}
		c.fail(e)
	}
	c.argv = append(c.argv, v)
}

// Float appends the shortest text that reads back as v.
func (c *Call) Float(name string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		c.fail(&RangeError{Field: name, Value: strconv.FormatFloat(v, 'g', -1, 64)})
	}
	c.argv = append(c.argv, strconv.FormatFloat(v, 'g', -1, 64))
}

// Milliseconds appends a duration in whole milliseconds; min and max are in
// milliseconds. A positive duration under one millisecond is out of range: it
// would become zero, which often means something else.
func (c *Call) Milliseconds(name string, v time.Duration, min, max int64) {
	c.duration(name, v, time.Millisecond, min, max)
}

// Seconds appends a duration in whole seconds; min and max are in seconds.
func (c *Call) Seconds(name string, v time.Duration, min, max int64) {
	c.duration(name, v, time.Second, min, max)
}

func (c *Call) duration(name string, v, unit time.Duration, min, max int64) {
	n := int64(v / unit)
	if n < min || n > max || (n == 0 && v != 0) {
		e := &RangeError{Field: name, Value: v.String()}
		switch {
		case n == 0 && v > 0 && min <= 0:
			e.Min = unit.String()
		case min >= math.MinInt64/int64(unit):
			e.Min = (time.Duration(min) * unit).String()
		}
		if max <= math.MaxInt64/int64(unit) { // no duration is longer
			e.Max = (time.Duration(max) * unit).String()
		}
		c.fail(e)
	}
	c.int(n)
}

// TimeMilli appends a time in Unix milliseconds. A time that does not fit into an int64 of milliseconds is out of
// range.
func (c *Call) TimeMilli(name string, v time.Time) {
	n := v.UnixMilli()
	if time.UnixMilli(n).Unix() != v.Unix() {
		c.fail(&RangeError{
			Field: name, Value: v.String(),
			Min: time.UnixMilli(math.MinInt64).UTC().String(), Max: time.UnixMilli(math.MaxInt64).UTC().String(),
		})
	}
	c.time(name, v, n)
}

// TimeSec appends a time in Unix seconds.
func (c *Call) TimeSec(name string, v time.Time) { c.time(name, v, v.Unix()) }

func (c *Call) time(name string, v time.Time, wire int64) {
	if v.IsZero() {
		c.fail(&RangeError{Field: name, Value: "the zero time"})
	}
	c.int(wire)
}

// None appends the empty text that encodes an absent optional argument.
func (c *Call) None() { c.argv = append(c.argv, "") }

// Group announces n elements of stride arguments each.
func (c *Call) Group(name string, n, max, stride int) {
	if max > 0 && n > max {
		c.fail(&SizeError{What: name, N: n, Max: max, Unit: "items"})
		return
	}
	if need := len(c.argv) + n*stride; need > cap(c.argv) {
		grown := make([]any, len(c.argv), need)
		copy(grown, c.argv)
		c.argv = grown
	}
}

func (c *Call) requireClient(client Client) {
	if err := send.CheckClient(client); err != nil {
		c.fail(err)
	}
}

// check returns the first mistake of the call, before anything is sent.
func (c *Call) check(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	if ctx.Err() != nil {
		return &Error{Script: c.script.Name, Guarded: c.guarded, Outcome: ErrNotExecuted, Err: endOf(ctx)}
	}
	if max := c.script.maxBytes(); c.size > max {
		return fmt.Errorf("%s: %w", c.script.Name, &SizeError{What: "keys and arguments", N: c.size, Max: max,
			Unit: "bytes"})
	}
	if err := c.checkSlot(); err != nil {
		return fmt.Errorf("%s: %w", c.script.Name, err)
	}
	return nil
}

// firstKey returns the key that selects the node in a cluster.
func (c *Call) firstKey() string {
	if c.keys == 0 {
		return ""
	}
	return c.argv[3].(string)
}

// file returns the text that the call sends.
func (c *Call) file() Text { return c.script.file(c.guarded) }
