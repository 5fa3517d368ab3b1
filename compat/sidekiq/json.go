package sidekiq

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// ErrPayload is the cause of every refusal of bytes that Sidekiq could not read as a job: text that is not one JSON
// object, or that is nested deeper than 100 levels, the limit of Ruby's parser. The error around it has the fault and
// its place, and never quotes the bytes.
var ErrPayload = errors.New("sidekiq: not a job in JSON")

// maxDepth is max_nesting of Ruby's JSON, which its parser and its generator share.
const maxDepth = 100

// member is one "name":value of a payload's outermost object, by its offsets.
type member struct {
	name  []byte // escapes undone
	from  int    // the quote before the name
	value int    // the first byte of the value
	end   int    // the byte after the value
}

// field returns the value of a top-level member, as it is written in the payload. Of members with one name the last
// one counts, as in Ruby. The whole payload is checked: an error wraps ErrPayload.
func field(payload []byte, name string) (json.RawMessage, bool, error) {
	var found json.RawMessage
	err := members(payload, func(m member) {
		if string(m.name) == name {
			found = payload[m.value:m.end:m.end]
		}
	})
	if err != nil {
		return nil, false, err
	}
	return found, found != nil, nil
}

// setField returns the payload with another value of a top-level member, or with that member added at its end. Every
// other byte is kept. The caller guarantees that the value is JSON; the given slice is not modified.
func setField(payload []byte, name string, value []byte) ([]byte, error) {
	from, to, err := place(payload, name)
	if err != nil {
		return nil, err
	}
	return slices.Concat(payload[:from], introduce(payload, name, from, to), value, payload[to:]), nil
}

// place returns the range of a top-level member's value, or, when there is no such member, the empty range before the
// last brace.
func place(payload []byte, name string) (from, to int, err error) {
	from = -1
	err = members(payload, func(m member) {
		if string(m.name) == name {
			from, to = m.value, m.end
		}
	})
	if err == nil && from < 0 {
		from = bytes.LastIndexByte(payload, '}')
		to = from
	}
	return from, to, err
}

// introduce returns the bytes to insert before the value: none where a value is replaced, else the name.
func introduce(payload []byte, name string, from, to int) []byte {
	if from != to {
		return nil
	}
	intro := appendString(make([]byte, 0, len(name)+4), name)
	intro = append(intro, ':')
	if len(bytes.TrimSpace(payload[:from])) == len("{") {
		return intro
	}
	return append([]byte{','}, intro...)
}

// dropField returns the payload without a top-level member, however often it occurs, and whether it occurred. If it
// does not, the result is the payload itself.
func dropField(payload []byte, name string) ([]byte, bool, error) {
	var all, drop []member
	err := members(payload, func(m member) {
		if string(m.name) == name {
			drop = append(drop, m)
		}
		all = append(all, m)
	})
	if err != nil || drop == nil {
		return payload, false, err
	}
	kept := slices.DeleteFunc(all, func(m member) bool { return string(m.name) == name })
	open, last := bytes.IndexByte(payload, '{'), bytes.LastIndexByte(payload, '}')
	out := append(make([]byte, 0, len(payload)), payload[:open+1]...)
	for i, m := range kept {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, payload[m.from:m.end]...)
	}
	return append(out, payload[last:]...), true, nil
}

// members calls visit for each member of the outermost object, in order, and checks all of the payload. visit may
// have been called before an error is found.
func members(payload []byte, visit func(member)) error {
	s := scanner{text: payload}
	return s.members(visit)
}

func (s *scanner) members(visit func(member)) error {
	s.space()
	if s.next() != '{' {
		return s.fault("an object was expected")
	}
	if err := s.object(visit); err != nil {
		return err
	}
	return s.end()
}

// membersFrom is members from the value of one of them on; its name and all before it are already checked, and their
// names are known.
func (s *scanner) membersFrom(at int, name string, visit func(member)) error {
	s.at, s.depth = at, 1
	m := member{name: []byte(name), from: at, value: at}
	if err := s.value(); err != nil {
		return err
	}
	m.end = s.at
	if err := s.rest(&m, visit, 0); err != nil {
		return err
	}
	return s.end()
}

func (s *scanner) end() error {
	s.space()
	if s.at != len(s.text) {
		return s.fault("something follows the object")
	}
	return nil
}

const hexDigits = "0123456789abcdef"

// appendString writes a string as Ruby's generator does: only the quote, the backslash and control characters are
// escaped.
func appendString(to []byte, text string) []byte {
	to = append(to, '"')
	from := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, text[from:i]...)
		from = i + 1
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			to = append(to, '\\', "\"\\bfnrt"[short])
		} else {
			to = append(to, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(to, text[from:]...), '"')
}
