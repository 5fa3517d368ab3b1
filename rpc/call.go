package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
)

// outgoing is one call on its way.
type outgoing struct {
	CallOptions
	method string
	body   []byte
	flags  uint64
	again  bool // another node may run it
}

// waiter is a call that waits for its reply.
type waiter struct {
	id, method string
	again      bool
	stream     *stream
	answer     chan response
	next       *waiter // another one for the same id, by an idempotency key

	// Guarded by Bus.mu.
	node  string // who was asked, once known
	since time.Time
	ups   int64 // Bus.ups when it began
	quick bool  // it was sent once, for sure
}

// waiters are used again: a call that ends has an empty channel.
var waiterPool = sync.Pool{New: func() any { return &waiter{answer: make(chan response, 1)} }}

// timers are used again. Since Go 1.23 a stopped timer's channel is empty.
var timerPool = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// callGrace is how much longer than the request its record lives, replyKept how long
// a caller that was cut off can collect a reply, and a lost call is known as lost.
const (
	callGrace = time.Second
	replyKept = 10 * time.Second
)

// inlineMax is the largest frame that is published. A larger one is stored, and those
// who want it fetch it: the server gives up subscribers whose output grows too large.
const inlineMax = 64 << 10

// limit is what is left of the time for a call.
func (b *Bus) limit(ctx context.Context) (left time.Duration, own bool) {
	if deadline, ok := ctx.Deadline(); ok {
		return min(max(time.Until(deadline), time.Millisecond), maxTimeout), true
	}
	return b.opts.Timeout, false
}

func (b *Bus) call(ctx context.Context, c *outgoing) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	left, bounded := b.limit(ctx)
	var expired <-chan time.Time
	if !bounded {
		t := timerPool.Get().(*time.Timer)
		t.Reset(left)
		defer func() {
			t.Stop()
			timerPool.Put(t)
		}()
		expired = t.C
	}
	if err := b.awaitReady(ctx, expired); err != nil {
		return nil, err
	}
	b.counts.calls.Add(1)
	// The waiter is there before the request is: the reply may be faster than the
	// answer to this call.
	w := b.expect(b.newID(c), c.method, c.again && !c.targeted())
	sent, err := b.send(ctx, c, w.id, left, expired)
	if err == nil {
		b.asked(w, sent)
		return b.await(ctx, c, w, expired)
	}
	if !b.forget(w) {
		return b.taken(c, w) // the answer to the call was lost, and its reply was not
	}
	err, never := unsent(err)
	if !never && c.Key == "" {
		b.giveUp(c.method, w.id, true)
	}
	waiterPool.Put(w)
	return nil, err
}

// taken is the reply that is being handed over.
func (b *Bus) taken(c *outgoing, w *waiter) ([]byte, error) {
	a := <-w.answer
	b.done(w, c)
	waiterPool.Put(w)
	return a.body, a.err
}

func (b *Bus) awaitReady(ctx context.Context, expired <-chan time.Time) error {
	select {
	case <-b.ready:
		if !b.runs.Load() {
			return b.notReady(errEnded)
		}
		return nil
	default:
	}
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
		return b.notReady(context.Cause(ctx))
	case <-expired:
		return b.notReady(context.DeadlineExceeded)
	}
}

var errEnded = errors.New("it has ended")

// newID names a call after its caller and a number, or after its idempotency key.
func (b *Bus) newID(c *outgoing) string {
	if c.Key != "" {
		return "k" + strconv.Itoa(len(c.method)) + ":" + c.method + ":" + c.Key + "K"
	}
	var buf [maxNode + 16]byte
	id := append(append(buf[:0], b.node...), '.')
	return string(strconv.AppendUint(id, b.serial.Add(1), 36))
}

// await returns the reply, or why there is none.
func (b *Bus) await(ctx context.Context, c *outgoing, w *waiter, expired <-chan time.Time) ([]byte, error) {
	var cause error
	select {
	case a := <-w.answer:
		b.done(w, c)
		waiterPool.Put(w)
		return a.body, a.err
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-expired:
		cause = context.DeadlineExceeded
	}
	if !b.forget(w) {
		return b.taken(c, w) // it came at this moment
	}
	if c.Key == "" {
		b.giveUp(c.method, w.id, !w.quick)
	}
	waiterPool.Put(w)
	return nil, fmt.Errorf("luatomic: call %q: no answer, the handler may have run: %w", c.method, cause)
}

// notSent marks the errors of a call that certainly did not go out.
type notSent struct{ error }

func unsent(err error) (plain error, never bool) {
	if e, ok := err.(notSent); ok {
		return e.error, true
	}
	return err, false
}

// refusal is what a caller is told when the script did not send the call.
func refusal(method string, outcome gen.RPCDirectOutcome) error {
	reason := ""
	switch outcome {
	case gen.RPCDirectOutcomeOverloaded:
		return notSent{&RemoteError{Code: CodeOverloaded, Message: "all handlers of " + strconv.Quote(method) + " are busy"}}
	case gen.RPCDirectOutcomeNoLease:
		reason = "no lease: the nodes that served it are gone"
	case gen.RPCDirectOutcomeNoSubscriber:
		reason = "no subscriber: the nodes that serve it are not connected"
	case gen.RPCDirectOutcomeNoConnection:
		reason = "no connection: no node owns it"
	default:
		reason = "no node serves it"
	}
	return notSent{&NoRespondersError{Method: method, Reason: reason}}
}

// expect registers a waiter for the reply to id.
func (b *Bus) expect(id, method string, again bool) *waiter {
	w := waiterPool.Get().(*waiter)
	w.id, w.method, w.again, w.stream, w.node, w.since, w.quick = id, method, again, nil, "", time.Now(), false
	w.ups = b.ups.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	w.next = b.waiters[id]
	b.waiters[id] = w
	return w
}

// forget ends the wait. It reports false when a reply is being handed over.
func (b *Bus) forget(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.waiters[w.id]
	if first == w {
		if w.next == nil {
			delete(b.waiters, w.id)
		} else {
			b.waiters[w.id] = w.next
		}
		return true
	}
	for p := first; p != nil; p = p.next {
		if p.next == w {
			p.next = w.next
			return true
		}
	}
	return false
}

// asked notes which node has the call. A node that subscribed anew meanwhile may have
// missed it.
func (b *Bus) asked(w *waiter, node string) {
	b.mu.Lock()
	w.node, w.quick = node, time.Since(w.since) < quickly
	id, stale := w.id, b.waiters[w.id] == w && w.ups != b.ups.Load()
	b.mu.Unlock()
	if stale && node != "" {
		b.hint(node, id)
	}
}

// deliver hands a reply to those who wait for it. One that nobody waits for is too
// late, or was collected already.
func (b *Bus) deliver(a response) {
	b.mu.Lock()
	w := b.waiters[a.id]
	if w == nil || w.stream == nil { // a stream's parts are to come yet
		delete(b.waiters, a.id)
	}
	b.mu.Unlock()
	for w != nil {
		next := w.next
		select {
		case w.answer <- a:
		default: // a stream has had it
		}
		w = next
	}
}

// quickly is less than any time-out after which a request is sent again. The first one
// may then still be on its way, and would run if it did not find its record. So the
// records of slower ones are not taken away: they expire.
const quickly = 200 * time.Millisecond

// done notes a record that nobody needs any more. The next call takes it away.
func (b *Bus) done(w *waiter, c *outgoing) {
	if c.Key == "" && w.quick {
		b.discard(b.keys.Record(w.id))
	}
}

func (b *Bus) discard(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.finished) < maxFinished {
		b.finished = append(b.finished, keys...)
	}
}

// maxFinished bounds the records to take away; those beyond it expire.
const maxFinished = 20_000
