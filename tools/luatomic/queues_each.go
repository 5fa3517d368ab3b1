package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// line is what a list shows of one thing: an object, or the cells of a table.
type line struct {
	object any
	cells  []any
}

// eachQueue reads the queues into a table, in their order. One that cannot be shown hides no other, and neither does a
// server that is away: its error comes after what the others have.
func eachQueue(ctx context.Context, client lua.Client, queues []*queue.Queue, out *rows,
	read func(context.Context, *queue.Queue) (line, error)) error {
	lines := make([]line, len(queues))
	errs := servers.EachQueue(ctx, client, queues, func(ctx context.Context, i int) (err error) {
		lines[i], err = read(ctx, queues[i])
		return err
	})
	hidden, shown := hiddenQueues{of: len(queues)}, len(queues) == 0
	var away error
	for i, l := range lines {
		switch err := errs[i]; {
		case ofOneQueue(err):
			hidden.add(err)
		case err != nil:
			away = cmp.Or(away, err)
			continue
		default:
			if err := out.add(l.object, l.cells...); err != nil {
				return err
			}
		}
		shown = true
	}
	if !shown {
		return away
	}
	return errors.Join(hidden.err(), away, out.end())
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

// reason tells one such error from another: by the number of queues and the server's answer, not by the tries it took.
func (h *hiddenQueues) reason() string {
	root := h.first
	for next := root; next != nil; next = errors.Unwrap(next) {
		root = next
	}
	return fmt.Sprint(h.n, root)
}

// passable reports whether there are other queues to go on with.
func (h *hiddenQueues) passable() bool { return h.n < h.of && !h.none }
