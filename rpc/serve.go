package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

type handler func(ctx context.Context, w *work) ([]byte, error)

// work is a request that this node has taken on. It is known by its id until its
// answer is settled, so that it cannot run twice.
type work struct {
	request
	bus     *Bus
	run     handler
	counts  *handlerCounts
	slot    bool
	fetched bool // only its name is known so far

	// As the context of its handler; guarded by Bus.mu but for the first two.
	parent   context.Context
	deadline time.Time
	err      error
	done     chan struct{}
	closed   bool
	timer    *time.Timer
	unhook   func() bool

	// Of a streaming reply; guarded by Bus.mu.
	credit chan struct{}
	read   uint64 // chunks that the caller has read
}

// errGivenUp is what a handler that sends parts is told when the caller gave up.
var errGivenUp = fmt.Errorf("luatomic: the caller gave up: %w", context.Canceled)

func (b *Bus) serve(method string, h handler) error {
	if err := lua.CheckName("method name", method); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	b.mu.Lock()
	b.handlers[method] = h
	if b.served[method] == nil {
		b.served[method] = &handlerCounts{}
	}
	b.mu.Unlock()
	offer(b.beat)
	return nil
}

func (b *Bus) receiveRequest(ctx context.Context, payload string, handlers *sync.WaitGroup) error {
	attempt, left, frame, ok := cutHeader(payload)
	if !ok {
		return errFrame
	}
	return b.admit(ctx, attempt, time.Duration(left)*time.Millisecond, frame, false, handlers)
}

// admit runs the handler of a request in a goroutine, or answers at once where it
// cannot. One that is known already is passed over, and one that was fetched when
// another way brought it meanwhile: it may have been answered since.
func (b *Bus) admit(ctx context.Context, attempt int64, left time.Duration, frame string, fetched bool, handlers *sync.WaitGroup) error {
	frame, err := b.open(frame)
	if err != nil {
		return err
	}
	w := &work{bus: b, parent: ctx, deadline: time.Now().Add(left)}
	if w.request, err = decodeRequest(frame); err != nil {
		return err
	}
	w.attempt = attempt
	b.mu.Lock()
	known := b.works[w.id]
	if b.closing || known != nil && !known.fetched && attempt > 0 || known == nil && fetched {
		b.mu.Unlock()
		return nil // a caller finds that this node has left
	}
	handlers.Add(1)
	if attempt > 0 {
		b.works[w.id] = w
	}
	w.run, w.counts = b.handlers[w.method], b.served[w.method]
	b.mu.Unlock()
	switch {
	case w.run == nil:
		w.run = failWith(CodeNoMethod, "this node does not serve the method")
	case b.busy.Add(1) > int64(b.opts.Concurrency):
		b.busy.Add(-1)
		w.run = failWith(CodeOverloaded, "all handlers of the node are busy")
	default:
		w.slot = true
		w.counts.running.Add(1)
	}
	go w.answer(ctx, handlers)
	return nil
}

func failWith(code, message string) handler {
	return func(context.Context, *work) ([]byte, error) {
		return nil, &RemoteError{Code: code, Message: message}
	}
}

// cancelWork ends the handler's context of a call that was given up.
func (b *Bus) cancelWork(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.works[id]; w != nil {
		w.endLocked(context.Canceled)
	}
}

// maxReply leaves room for the frame in the MiB that one script call may carry.
const maxReply = 1<<20 - 2048

func (w *work) answer(ctx context.Context, handlers *sync.WaitGroup) {
	defer handlers.Done()
	began := time.Now()
	var body []byte
	err := error(&RemoteError{Code: CodeInternal, Message: "the handler ended its goroutine"})
	defer func() { w.answered(ctx, began, body, err) }() // also when it did so
	body, err = guarded(ctx, w)
}

// answered settles what the handler came to.
func (w *work) answered(ctx context.Context, began time.Time, body []byte, err error) {
	b := w.bus
	w.end(context.Canceled)
	if w.slot {
		b.busy.Add(-1)
		w.counts.count(began, err)
		b.counts.handled.Add(1)
	}
	if w.attempt == 0 {
		if err != nil {
			b.failed(ctx, fmt.Errorf("luatomic: cast %q: %w", w.method, err))
		}
		return
	}
	if err == nil && len(body) > maxReply {
		err = &RemoteError{Code: CodeTooLarge, Message: fmt.Sprintf("the result has %d bytes, at most %d", len(body), maxReply)}
	}
	a := response{id: w.id, body: body}
	if err != nil {
		a.err = remote(err)
	}
	b.settleWork(ctx, w, &a)
	b.mu.Lock()
	delete(b.works, w.id)
	b.mu.Unlock()
}

// settleWork sends the answer until it is known what became of it. It goes out
// although the handler used up its time or Run ends.
func (b *Bus) settleWork(ctx context.Context, w *work, a *response) {
	bound := max(time.Until(w.deadline), 0) + callGrace
	if ctx.Err() != nil {
		bound = min(bound, b.opts.Lease)
	}
	send := &bounded{context.WithoutCancel(ctx), time.Now().Add(bound)}
	retry := clock.Backoff{First: 20 * time.Millisecond, Last: time.Second}
	for {
		var outcome gen.RPCReplyResult
		var err error
		if isGather(w.id) {
			outcome, err = b.replyPart(send, w, a)
		} else {
			outcome, err = b.reply(send, w, a)
		}
		if err == nil {
			b.count(outcome)
			return
		}
		b.failed(ctx, fmt.Errorf("luatomic: reply to %q on bus %q: %w", w.method, b.name, err))
		if errors.Is(err, lua.ErrTooLarge) || send.Err() != nil {
			return
		}
		clock.Sleep(send, retry.Next())
	}
}

func (b *Bus) reply(ctx context.Context, w *work, a *response) (gen.RPCReplyResult, error) {
	p := gen.RPCReplyParams{
		Record: b.keys.Record(w.id), Method: b.keys.Method(w.method),
		Node: b.node, Attempt: w.attempt, Frame: b.seal(a.encode()), Outbox: b.keys.Outbox, Shard: b.shard,
		Keep: max(replyKept, time.Until(w.deadline)+callGrace), // a caller that is cut off may send the request again until then
	}
	if w.keep > 0 {
		p.Keep = w.keep
		if !w.slot {
			p.Keep = callGrace // it did not run: the next call with the key may
		}
	}
	if len(p.Frame) > inlineMax {
		p.Word = b.seal(encodeWord('N', w.id))
	}
	return b.postReply(ctx, &p)
}

func (b *Bus) count(outcome gen.RPCReplyResult) {
	switch outcome {
	case gen.RPCReplyResultGone:
		b.counts.late.Add(1)
	case gen.RPCReplyResultDuplicate:
		b.counts.repeated.Add(1)
	case gen.RPCReplyResultStale:
		b.counts.stale.Add(1)
	}
}

// guarded turns a panic into an error, so that a bad request cannot end the node.
func guarded(ctx context.Context, w *work) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.bus.failed(ctx, fmt.Errorf("luatomic: the handler of %q panicked: %v", w.method, p))
			out, err = nil, &RemoteError{Code: CodeInternal, Message: "the handler panicked"}
		}
	}()
	return w.run(w, w)
}

// maxMessage bounds the text of an error on the wire.
const maxMessage = 1024

// remote is what goes over the wire. An error can panic when it is asked for its text,
// a nil pointer in an error for one.
func remote(err error) (e *RemoteError) {
	defer func() {
		if recover() != nil {
			e = &RemoteError{Code: CodeInternal, Message: "the handler's error panicked"}
		}
	}()
	if !errors.As(err, &e) || e == nil {
		e = &RemoteError{Code: CodeError, Message: err.Error()}
	}
	if len(e.Message) > maxMessage || len(e.Code) > maxMessage {
		e = &RemoteError{Code: e.Code[:min(len(e.Code), maxMessage)], Message: e.Message[:min(len(e.Message), maxMessage)]}
	}
	return e
}
