package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/luatomic/luatomic/internal/abreast"
	"github.com/luatomic/luatomic/queue"
)

// line is what a list shows of one thing: an object, or the cells of a table.
type line struct {
	object any
	cells  []any
}

// eachQueue reads the queues into a table, in their order. One that cannot be shown hides no other.
func eachQueue(ctx context.Context, queues []*queue.Queue, out *rows,
	read func(context.Context, *queue.Queue) (line, error)) error {
	lines, errs := make([]line, len(queues)), make([]error, len(queues))
	err := eachAbreast(ctx, len(queues), func(ctx context.Context, i int) error {
		if lines[i], errs[i] = read(ctx, queues[i]); ofOneQueue(errs[i]) {
			return nil
		}
		return errs[i]
	})
	if err != nil {
		return err
	}
	hidden := hiddenQueues{of: len(queues)}
	for i, l := range lines {
		if errs[i] != nil {
			hidden.add(errs[i])
		} else if err := out.add(l.object, l.cells...); err != nil {
			return err
		}
	}
	return errors.Join(hidden.err(), out.end())
}

// eachAbreast does n things abreast. The first error ends the others and is returned.
func eachAbreast(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	abreast.Each(n, func(i int) {
		if err := do(ctx, i); err != nil {
			end(err)
		}
	})
	return context.Cause(ctx)
}

// hiddenQueues is the error of queues that cannot be shown.
type hiddenQueues struct {
	n, of int
	first error
	none  bool // one of them is unknown: its name may be mistyped
}

func (h *hiddenQueues) Error() string {
	if h.n > 1 {
		return fmt.Sprintf("queues that cannot be shown: %d, the first: %v", h.n, h.first)
	}
	return h.first.Error()
}

func (h *hiddenQueues) Unwrap() error { return h.first }

// ofOneQueue reports whether the error hides only its queue: the queue is unknown, or the server refuses it.
func ofOneQueue(err error) bool {
	return errors.As(err, new(unknownQueue)) || err != nil && isReply(err) && !isAway(err)
}

// add notes the error of one queue.
func (h *hiddenQueues) add(err error) {
	h.n, h.first, h.none = h.n+1, cmp.Or(h.first, err), h.none || errors.As(err, new(unknownQueue))
}

// err is nil where all can be shown.
func (h *hiddenQueues) err() error {
	if h.n == 0 {
		return nil
	}
	return h
}

// passable reports whether there are other queues to go on with.
func (h *hiddenQueues) passable() bool { return h.n < h.of && !h.none }
