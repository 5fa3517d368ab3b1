package redisinaction

import (
	"bytes"
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
	spans, err := s.elements()
	if err != nil {
		return item, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	fields := []*string{&item.ID, &item.Queue, &item.Name}
	switch len(spans) {
	case 2:
		fields = fields[2:]
	case 4:
	default:
		return item, fmt.Errorf("%w: an array of another length than 2 or 4", ErrMalformed)
	}
	for i, into := range fields {
		s := scanner{in: raw, at: spans[i].from}
		if *into, err = s.plainText(); err != nil {
			return item, fmt.Errorf("%w: element %d: %w", ErrMalformed, i, err)
		}
	}
	args := spans[len(fields)]
	item.Args = bytes.TrimSpace(raw[args.from:args.to])
	return item, nil
}

// span is where an element stands, with the space around it.
type span struct{ from, to int }

// elements checks all of an array, and returns where its elements are: the first five,
// since nobody wants more.
func (s *scanner) elements() ([]span, error) {
	spans := make([]span, 0, 5)
	s.space()
	if s.peek() != '[' {
		return nil, s.fail("no array")
	}
	err := s.nested(']', func() error {
		from := s.at
		err := s.value()
		if len(spans) < cap(spans) {
			spans = append(spans, span{from, s.at})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.space()
	if s.at < len(s.in) {
		return nil, s.fail("more after the array")
	}
	return spans, nil
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
