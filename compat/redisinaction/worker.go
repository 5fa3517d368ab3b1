package redisinaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
)

// Handler runs one item.
type Handler func(ctx context.Context, item Item) error

// WorkerOptions are the settings of a Worker. The zero value is ready to use.
type WorkerOptions struct {
	// OnError, if set, sees what the handler returned, with the item, and each failed
	// call and malformed item, with a zero one but for Raw. Run goes on.
	OnError func(item Item, err error)
}

// Worker takes items from queues, one at a time, and does not lose the one that it is at.
//
// The book's workers pop an item and then run it: what a dying worker was at is gone. A
// Worker moves it to working:<name> instead, and removes it when it has run. So a worker
// that ends in the middle of an item gets it again when one of that name starts: give
// each a name that it keeps, such as its host and a number, and run each name once at a
// time. Items are run at least once.
type Worker struct {
	client *Client
	name   string
	names  []string // of the queues
	queues []string // their keys
	opts   WorkerOptions
}

// NewWorker returns a worker of up to 100 queues; those in front are served first. nil
// options mean the defaults. Errors match lua.ErrBadName. Nothing is sent.
func (c *Client) NewWorker(name string, queues []string, opts *WorkerOptions) (*Worker, error) {
	w := &Worker{client: c, name: name}
	if opts != nil {
		w.opts = *opts
	}
	err := checkName("worker", name)
	if len(queues) == 0 {
		err = errors.Join(err, checkName("queue", ""))
	}
	for _, q := range queues {
		err = errors.Join(err, checkName("queue", q))
		w.names, w.queues = append(w.names, q), append(w.queues, c.queue(q))
	}
	if err != nil {
		return nil, fmt.Errorf("redisinaction: worker: %w", err)
	}
	return w, nil
}

// Take waits for an item until ctx ends, and is told of it at once where it is in the
// first queue, within 50 ms in another. While an item is not Done, it comes again, with
// Item.Again. ErrMalformed comes with the item that cannot be parsed; it is in malformed:
// by then. If it cannot be put there, the error is that of the call, and it comes again.
//
// Keys: working:<name>, queue:<q>, malformed:. Cost: O(q) for q queues; two calls every
// 50 ms while nothing is there.
func (w *Worker) Take(ctx context.Context) (Item, error) {
	for {
		r, err := script.Take(ctx, w.client.redis, script.TakeParams{Working: w.working(), Queues: w.queues})
		if err != nil {
			return Item{}, w.wrap("take", err)
		}
		if found, ok := r.Get(); ok {
			return w.item(ctx, found.Body, int(found.From))
		}
		// What it moves while its reply is lost, the next look finds.
		body, err := w.client.redis.Do(ctx, "BLMOVE", w.queues[0], w.working(), "LEFT", "RIGHT", takeSlice.Seconds()).Text()
		switch {
		case err == nil:
			return w.item(ctx, []byte(body), 1)
		case ctx.Err() != nil:
			return Item{}, context.Cause(ctx)
		case err != redis.Nil: // if it stays, the look says so better
			clock.Sleep(ctx, takeSlice)
		}
	}
}

// takeSlice bounds the wait, because a command that blocks does not end with ctx.
const takeSlice = 50 * time.Millisecond

func (w *Worker) working() string { return w.client.working(w.name) }

// item parses what the worker has now, from the queue of that number, 0 for unknown.
func (w *Worker) item(ctx context.Context, body []byte, from int) (Item, error) {
	item, err := ParseItem(body)
	if err != nil {
		_, moved := script.Quarantine(ctx, w.client.redis, script.QuarantineParams{Working: w.working(), Malformed: w.client.malformed(), Body: body})
		if moved != nil {
			return Item{Raw: body}, w.wrap("take", fmt.Errorf("put a malformed item aside: %w", moved))
		}
		return Item{Raw: body}, w.wrap("take", err)
	}
	item.Again = from == 0
	if item.ID == "" {
		if from == 0 && len(w.names) == 1 {
			from = 1
		}
		if from > 0 {
			item.Queue = w.names[from-1]
		}
	}
	return item, nil
}

func (w *Worker) wrap(what string, err error) error {
	return fmt.Errorf("redisinaction: %s as worker %q: %w", what, w.name, err)
}

// Done removes the item that Take returned. It works after ctx has ended, too, and takes
// 10 s at most. A second Done of the same item is nil.
//
// Keys: working:<name>. Cost: O(1).
func (w *Worker) Done(ctx context.Context, item Item) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := w.client.redis.LRem(ctx, w.working(), 1, item.Raw).Err(); err != nil {
		return w.wrap("done", err)
	}
	return nil
}

// Run takes items and runs them until ctx ends, and returns the cause of that end. An
// item is removed when its handler has returned, with an error too, or panicked, which
// OnError sees: whoever wants it to run again executes it later. Only when ctx has ended, an item
// whose handler returned an error stays for the next worker of that name.
func (w *Worker) Run(ctx context.Context, h Handler) error {
	retry := newBackoff()
	for ctx.Err() == nil {
		item, err := w.Take(ctx)
		if err == nil {
			err = w.runOne(ctx, item, h)
		}
		if err != nil && ctx.Err() == nil {
			w.report(item, err)
		}
		if err == nil || errors.Is(err, ErrMalformed) {
			retry.Reset()
		} else {
			clock.Sleep(ctx, retry.Next())
		}
	}
	return context.Cause(ctx)
}

// runOne returns an error when ctx has ended; others are reported.
func (w *Worker) runOne(ctx context.Context, item Item, h Handler) error {
	if err := handle(ctx, item, h); err != nil {
		if ctx.Err() != nil {
			return err
		}
		w.report(item, err)
	}
	// Until it is removed it would come again, though it has run.
	retry := newBackoff()
	for {
		err := w.Done(ctx, item)
		if err == nil || ctx.Err() != nil {
			return err
		}
		w.report(item, err)
		clock.Sleep(ctx, retry.Next())
	}
}

// handle makes an error of a panic: an item that ended the process would come again to
// the next one, and end that.
func handle(ctx context.Context, item Item, h Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("redisinaction: handler of item %q panicked: %v", item.ID, p)
		}
	}()
	return h(ctx, item)
}

func (w *Worker) report(item Item, err error) {
	if w.opts.OnError != nil {
		w.opts.OnError(item, err)
	}
}
