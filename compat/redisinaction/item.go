package redisinaction

import (
	"encoding/json"
	"fmt"
)

// Item is one task as it stands in delayed: or in a queue.
type Item struct {
	// ID is the uuid; empty in an item of two elements.
	ID string
	// Queue is the queue for which the item is, in one of two elements that from
	// which it was taken; unknown if it comes again to a worker of several queues.
	Queue string
	// Name says what to run.
	Name string
	// Args are the arguments with their own bytes: JSON as Python writes it, so NaN,
	// Infinity and -Infinity can stand where a number does.
	Args json.RawMessage
	// Raw is the whole item.
	Raw []byte
	// Again says that the item was taken before by a worker of that name, which did
	// not finish it.
	Again bool
}

// ParseItem reads an item of four elements, [id, queue, name, args], or of two, [name,
// args]. The first three are strings. Errors match ErrMalformed and never quote the
// item. The result shares the memory of raw.
func ParseItem(raw []byte) (Item, error) {
	item := Item{Raw: raw}
	s := scanner{in: raw}
	starts, err := s.elements()
	if err != nil {
		return item, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	fields := []*string{&item.ID, &item.Queue, &item.Name}
	switch len(starts) {
	case 2:
		fields = fields[2:]
	case 4:
	default:
		return item, fmt.Errorf("%w: an array of %d elements, not of 2 or 4", ErrMalformed, len(starts))
	}
	for i, into := range fields {
		s := scanner{in: raw, at: starts[i]}
		if *into, err = s.plainText(); err != nil {
			return item, fmt.Errorf("%w: element %d: %w", ErrMalformed, i, err)
		}
	}
	args := scanner{in: raw, at: starts[len(fields)]}
	args.space()
	from := args.at
	if err := args.value(); err != nil {
		return item, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	item.Args = trimmed(raw[from:args.at])
	return item, nil
}

// elements checks all of an array, and returns where its elements start: of the first
// five, since nobody wants more.
func (s *scanner) elements() (starts []int, err error) {
	starts = make([]int, 0, 5)
	s.space()
	if s.peek() != '[' {
		return nil, s.fail("no array")
	}
	err = s.nested(']', func() error {
		if len(starts) < cap(starts) {
			starts = append(starts, s.at)
		}
		return s.value()
	})
	if err != nil {
		return nil, err
	}
	s.space()
	if s.at < len(s.in) {
		return nil, s.fail("more after the array")
	}
	return starts, nil
}

func trimmed(b []byte) []byte {
	for n := len(b); n > 0; n-- {
		switch b[n-1] {
		case ' ', '\t', '\n', '\r':
		default:
			return b[:n]
		}
	}
	return nil
}

// encodeItem writes the item of a task.
func encodeItem(id, queue, name string, args any) ([]byte, error) {
	if args == nil {
		args = []any{}
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArgs, err)
	}
	if text[0] != '[' {
		return nil, fmt.Errorf("%w: the worker calls the function with its elements; put one value into a list", ErrArgs)
	}
	w := &writer{b: make([]byte, 0, len(text)+len(id)+len(queue)+len(name)+32)}
	w.raw("[")
	for _, field := range []string{id, queue, name} {
		w.raw(`"`)
		for _, r := range field {
			w.rune(r)
		}
		w.raw(`", `)
	}
	s := scanner{in: text, out: w}
	if err := s.value(); err != nil {
		return nil, fmt.Errorf("%w that Python reads: %w", ErrArgs, err)
	}
	w.raw("]")
	return w.b, nil
}
