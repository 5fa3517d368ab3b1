package redisinaction

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/luatomic/luatomic/internal/exact"
)

// Item is one task as stored in delayed: or in a queue.
type Item struct {
	// ID is the uuid; empty in an item of two elements.
	ID string
	// Queue is the queue of the item. For an item of two elements a Worker sets the queue from which it took the item,
	// and none if it has several and gets the item again.
	Queue string
	// Name is the function to run.
	Name string
	// Args are the arguments with their own bytes: JSON as Python writes it, so NaN, Infinity and -Infinity can occur
	// as numbers.
	Args json.RawMessage
	// Raw is the whole item.
	Raw []byte
	// Again reports that a worker with the same name took the item before and did not finish it.
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
		return item, fmt.Errorf("%w: the array has neither 2 nor 4 elements", ErrMalformed)
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

// span is the range of an element, with the space around it.
type span struct{ from, to int }

// elements checks all of an array, and returns the ranges of its first five elements.
func (s *scanner) elements() ([]span, error) {
	spans := make([]span, 0, 5)
	s.space()
	if s.peek() != '[' {
		return nil, s.fail("not an array")
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
		return nil, s.fail("data after the array")
	}
	return spans, nil
}

// encodeItem returns the item of a task.
func encodeItem(id, queue, name string, args any) ([]byte, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArgs, err)
	}
	if string(text) == "null" { // nil, also of a slice's type
		text = []byte("[]")
	}
	if !exact.JSON(args, text) {
		return nil, fmt.Errorf("%w that Python reads: a text is not UTF-8; send bytes as base64", ErrArgs)
	}
	if text[0] != '[' {
		return nil, fmt.Errorf("%w: the worker calls the function with its elements; put one value into a list",
			ErrArgs)
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
