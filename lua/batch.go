package lua

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"
)

// Batch sends many calls in one round trip for each node: a pipeline of scripts. Each call is atomic by itself; the
// batch is not. Calls run in order, except calls whose script was not loaded, calls that a failing node did not
// execute, and those that were rows of one command ("---@merge") where one of them raised an error: they are sent again
// after the others.
//
// A Batch is not safe for concurrent use. It can be filled and executed again.
type Batch struct {
	client Client
	guard  *guarded
	calls  []*Call

	replicas int
	timeout  time.Duration
	acked    int
	waitErr  error
}

// NewBatch returns an empty batch on the client.
func NewBatch(c Client) *Batch {
	if g, ok := c.(*guarded); ok {
		return &Batch{client: observe(g.Client), guard: g}
	}
	return &Batch{client: observe(c)}
}

// Len returns the number of calls that wait for Exec.
func (b *Batch) Len() int { return len(b.calls) }

// Future is the result of a call in a batch, once Exec has returned.
type Future[T any] struct {
	call   *Call
	decode func(*Reply) T
}

// Queue appends a call to the batch. Generated functions call it.
func Queue[T any](b *Batch, call *Call, decode func(*Reply) T) *Future[T] {
	if b.guard != nil {
		call.guard(b.guard)
	}
	b.calls = append(b.calls, call)
	return &Future[T]{call: call, decode: decode}
}

// Get returns the result of the call as Run does, or ErrNotRun before Exec.
func (f *Future[T]) Get() (T, error) {
	var none T
	switch {
	case f.call.err != nil:
		return none, f.call.err
	case !f.call.done:
		return none, fmt.Errorf("%s: %w", f.call.script.Name, ErrNotRun)
	}
	return decodeCall(f.call, f.decode)
}

// Exec runs the calls and empties the batch. Each Future then has its result;
// the error returned counts the calls that failed and wraps the first one's. An
// empty batch costs nothing.
func (b *Batch) Exec(ctx context.Context) error {
	calls := b.calls
	b.calls = nil
	waiting := make([]*Call, 0, len(calls))
	for _, c := range calls {
		if c.err = c.check(ctx); c.err == nil {
			waiting = append(waiting, c)
		}
	}
	b.run(ctx, waiting)
	failed, first, until := 0, error(nil), time.Now().Add(detailBudget)
	for _, c := range calls {
		if c.err == nil {
			c.err = c.result(ctx, b.client, until)
		}
		if c.err != nil {
			failed++
			first = cmp.Or(first, c.err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d calls failed: %w", failed, len(calls), first)
	}
	return nil
}

// run sends until each call has a reply or may not be retried.
func (b *Batch) run(ctx context.Context, waiting []*Call) {
	var p pause
	r := round{client: b.client, ordered: true, replicas: b.replicas, timeout: b.timeout, acked: math.MaxInt}
	for tries := 1; len(waiting) > 0; tries++ {
		for _, c := range waiting {
			c.begin()
		}
		r.send(ctx, waiting)
		again, withoutDelay := waiting[:0], true
		for _, c := range waiting {
			if c.record(ctx, b.client, c.cmd.Err(), tries) {
				again = append(again, c)
				withoutDelay = withoutDelay && c.withoutDelay()
			}
		}
		waiting = again
		if len(waiting) > 0 && !p.pass(ctx, withoutDelay) {
			break
		}
	}
	b.acked, b.waitErr = r.acked, r.waitErr
}

// Wait makes Exec wait until that many replicas of each node have the writes of its calls, or until the timeout is
// over. It costs no round trip of its own: WAIT is sent in the same pipeline, on the same connection. The timeout
// must be shorter than the client's ReadTimeout; one below 1 ms is 1 ms.
func (b *Batch) Wait(replicas int, timeout time.Duration) { b.replicas, b.timeout = replicas, timeout }

// Acked returns how many replicas have the writes of the last Exec, the fewest of any node; 0 where that is unknown,
// with the error of WAIT if it was refused. Without Wait, or for calls that wrote nothing, it has no meaning.
func (b *Batch) Acked() (int, error) {
	if b.acked == math.MaxInt {
		return 0, b.waitErr
	}
	return b.acked, b.waitErr
}
