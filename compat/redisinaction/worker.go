package redisinaction

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Handler runs one item.
type Handler func(ctx context.Context, item Item) error

// WorkerOptions are the settings of a Worker. The zero value is ready to use.
type WorkerOptions struct {
	// OnError, if set, gets the error of a handler with its item, and that of each failed call or malformed item,
	// with an item that has only Raw. Run continues.
	OnError func(item Item, err error)
	// Declined is how long this worker may decline an item again and again before the item goes to malformed:; see
	// Decline. Default 24 h.
	Declined time.Duration
}

// Worker takes items from queues, one at a time, and does not lose the one that it runs.
//
// The book's workers pop an item and then run it: when a worker dies, its item is lost. A Worker moves it to
// working:<name> instead, and removes it when it has run. After a crash the next worker of that name gets the item
// again. Give each worker a name that it keeps, such as its host and a number, and run one worker per name at a time.
// Each item is run at least once.
type Worker struct {
	client *Client
	name   string
	names  []string // of the queues
	queues []string // their keys
	opts   WorkerOptions

	declines declines // of Run
}

// maxQueues is the limit of queue in take.
const maxQueues = 100

// NewWorker returns a worker of up to 100 queues, served strictly in order. nil options mean the defaults. Errors
// match lua.ErrBadName, or lua.ErrTooLarge for more queues. Nothing is sent.
func (c *Client) NewWorker(name string, queues []string, opts *WorkerOptions) (*Worker, error) {
	w := &Worker{client: c, name: name}
	if opts != nil {
		w.opts = *opts
	}
	if w.opts.Declined <= 0 {
		w.opts.Declined = 24 * time.Hour
	}
	err := checkName("worker", name)
	if len(queues) == 0 {
		err = errors.Join(err, checkName("queue", ""))
	}
	if len(queues) > maxQueues {
		err = errors.Join(err, &lua.SizeError{What: "queues", N: len(queues), Max: maxQueues, Unit: "names"})
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

// Take waits for an item until ctx ends. An item of the first queue is taken immediately, one of another queue within
// 50 ms. Until Done, Take returns the same item, with Item.Again. ErrMalformed comes with an item that cannot be
// parsed; it has been moved to malformed:. If that move fails, Take returns its error, and the item comes again. If the
// key of a queue has another type, the items of the others are taken, and Take returns its error when there are none.
//
// Keys: working:<name>, queue:<q>, malformed:. Cost: O(q) for q queues; two calls every 50 ms while the queues are
// empty.
func (w *Worker) Take(ctx context.Context) (Item, error) {
	for {
		r, err := script.Take(ctx, w.client.redis, script.TakeParams{Working: w.working(), Queues: w.queues})
		if err != nil {
			return Item{}, w.wrap("take", err)
		}
		if found, ok := r.Get(); ok {
			return w.item(ctx, found.Body, int(found.From))
		}
		// If the reply is lost after a move, the next take returns the item; a second move would add another one.
		body, err := send.Once(ctx, w.client.redis, "BLMOVE", w.queues[0], w.working(), "LEFT", "RIGHT",
			takeSlice.Seconds()).Text()
		switch {
		case err == nil:
			return w.item(ctx, []byte(body), 1)
		case ctx.Err() != nil:
			return Item{}, clock.EndOf(ctx)
		case err != redis.Nil: // if the error lasts, the next take returns it
			clock.Sleep(ctx, takeSlice)
		}
	}
}

// takeSlice bounds the wait, because a blocking command does not end with ctx.
const takeSlice = 50 * time.Millisecond

func (w *Worker) working() string { return w.client.working(w.name) }

// item parses the worker's item, taken from the queue of that number; 0 is unknown.
func (w *Worker) item(ctx context.Context, body []byte, from int) (Item, error) {
	item, err := ParseItem(body)
	if err != nil {
		_, moved := script.Quarantine(ctx, w.client.redis,
			script.QuarantineParams{Working: w.working(), Malformed: w.client.malformed(), Body: body})
		if moved != nil {
			return Item{Raw: body}, w.wrap("take", fmt.Errorf("move a malformed item to malformed: %w", moved))
		}
		return Item{Raw: body}, w.wrap("take", err)
	}
	item.Again = from == 0
	if item.ID == "" && item.Queue == "" {
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

// Done removes the item that Take returned. It also works after ctx has ended, and takes at most 10 s. A second Done of
// the same item returns nil.
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

// Run takes items and runs them until ctx ends, and returns the cause of that end. An item is removed when its handler
// has returned, even with an error, or panicked; OnError gets both. To run it again, the handler calls ExecuteLater; to
// leave it to another worker, it returns Decline. In two cases the item stays for the next worker of that name: if ctx
// has ended and the handler returns an error, and if ctx ends while the item is taken. A nil handler is refused before
// anything is taken.
func (w *Worker) Run(ctx context.Context, h Handler) error {
	if h == nil {
		return w.wrap("run", errors.New("no handler is given, and each item would be lost; pass a Handler"))
	}
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
		if errors.Is(err, ErrDeclined) {
			return w.giveBack(ctx, item, err)
		}
		w.report(item, err)
	}
	// Until it is removed, Take would return it again, though it has run.
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

// handle turns a panic into an error: an item that crashes the process would crash the next one too.
func handle(ctx context.Context, item Item, h Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("redisinaction: handler of item %q panicked: %v\n%s", item.ID, p, debug.Stack())
		}
	}()
	return h(ctx, item)
}

func (w *Worker) report(item Item, err error) {
	if w.opts.OnError != nil {
		w.opts.OnError(item, err)
	}
}
