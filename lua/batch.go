package lua

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"
)

// Batch sends many calls in one round trip for each node: a pipeline of scripts. Each call is atomic by itself; the
// batch is not. Calls run in order, with exceptions that are sent again after the others: calls whose script was not
// loaded, calls that a failing node did not execute, and the rows of one command ("---@merge") of which one raised an
// error.
//
// A Batch is not safe for concurrent use. After Exec it can be filled and executed again.
type Batch struct {
	client Client
	guard  *guarded
	calls  []*Call
	next   *execution // of calls
	last   *execution // the one before

	replicas int
	timeout  time.Duration
}

// execution is one Exec.
type execution struct {
	acked   int
	waitErr error
	left    error // why the calls had not ended when Exec returned: nothing of those is read from then on
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
	in     *execution
	decode func(*Reply) T
}

// Queue appends a call to the batch. Generated functions call it.
func Queue[T any](b *Batch, call *Call, decode func(*Reply) T) *Future[T] {
	if b.guard != nil {
		call.guard(b.guard)
	}
	call.requireClient(b.client)
	if b.next == nil {
		b.next = new(execution)
	}
	b.calls = append(b.calls, call)
	return &Future[T]{call: call, in: b.next, decode: decode}
}

// Get returns the result of the call as Run does, or ErrNotRun before Exec.
func (f *Future[T]) Get() (T, error) {
	var none T
	if err := f.in.errorOf(f.call); err != nil {
		return none, err
	}
	if !f.call.done {
		return none, fmt.Errorf("%s: %w", f.call.script.Name, ErrNotRun)
	}
	return decodeCall(f.call, f.decode)
}

// Resent reports whether the result may be that of a retry: an earlier attempt had no reply.
func (f *Future[T]) Resent() bool { return f.in.left == nil && f.call.done && f.call.unknown }

// errorOf returns the error of a call of the execution. A call that was still under way when Exec returned has an
// unknown outcome.
func (e *execution) errorOf(c *Call) error {
	if e.left == nil || !c.batched {
		return c.err
	}
	return &Error{Script: c.script.Name, Guarded: c.guarded, Outcome: ErrOutcomeUnknown, Tries: 1, Err: e.left}
}

// Exec runs the calls and empties the batch. Each Future then has its result; the error returned counts the calls that
// failed and wraps the first one's. An empty batch costs nothing. Exec returns within 50 ms of the end of ctx, whatever
// the servers do: calls that were sent continue without it, and their outcome is unknown.
func (b *Batch) Exec(ctx context.Context) error {
	calls, e := b.calls, b.next
	b.calls, b.next, b.last = nil, nil, e
	waiting := make([]*Call, 0, len(calls))
	for _, c := range calls {
		if c.err = c.check(ctx); c.err == nil {
			c.batched = true
			waiting = append(waiting, c)
		}
	}
	if len(waiting) > 0 {
		b.await(ctx, e, waiting)
	}
	failed, first, until := 0, error(nil), time.Now().Add(detailBudget)
	for _, c := range calls {
		if c.err == nil && e.left == nil {
			c.err = c.result(ctx, b.client, until)
		}
		if err := e.errorOf(c); err != nil {
			failed++
			first = cmp.Or(first, err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d calls failed: %w", failed, len(calls), first)
	}
	return nil
}

// leaveAfter is how long Exec still waits after the end of ctx. Most servers answer in that time.
const leaveAfter = 20 * time.Millisecond

// await runs the calls. If they have not ended when ctx ends, it returns without them.
func (b *Batch) await(ctx context.Context, e *execution, waiting []*Call) {
	if ctx.Done() == nil {
		*e = b.run(ctx, waiting)
		return
	}
	for _, c := range waiting {
		c.own()
	}
	ended := make(chan execution, 1)
	own := *b // the batch may be filled again
	go func() {
		e := execution{left: errExited, waitErr: errExited} // unless run returns
		defer func() { ended <- e }()
		e = own.run(ctx, waiting)
	}()
	select {
	case *e = <-ended:
		return
	case <-ctx.Done():
	}
	late := time.NewTimer(leaveAfter)
	defer late.Stop()
	select {
	case *e = <-ended:
	case <-late.C:
		e.left = endOf(ctx)
		e.waitErr = e.left
		askAgain(ctx, b.client)
	}
}

// run sends until each call has a reply or may not be retried.
func (b *Batch) run(ctx context.Context, waiting []*Call) execution {
	var p pause
	r := round{client: b.client, ordered: true, replicas: b.replicas, timeout: b.timeout, acked: math.MaxInt}
	s := sharingOf(b.client)
	r.byTag = s == nil || s.byTag.Load()
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
	return execution{acked: r.acked, waitErr: r.waitErr}
}

// Wait makes Exec wait until that many replicas of each node have the writes of its calls, or until the timeout is
// over. It costs no extra round trip: WAIT is sent in the same pipeline, on the same connection. The timeout must be
// shorter than the client's ReadTimeout; one below 1 ms is 1 ms.
func (b *Batch) Wait(replicas int, timeout time.Duration) { b.replicas, b.timeout = replicas, timeout }

// Acked returns how many replicas have the writes of the last Exec: the lowest number of any node, or 0 if that is
// unknown, with the error of WAIT if it was refused. Without Wait, or for calls that wrote nothing, it has no meaning.
func (b *Batch) Acked() (int, error) {
	e := b.last
	if e == nil {
		return 0, nil
	}
	if e.acked == math.MaxInt {
		return 0, e.waitErr
	}
	return e.acked, e.waitErr
}
