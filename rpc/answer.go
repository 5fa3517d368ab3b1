package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// maxReply leaves room for the frame in the MiB that one script call may carry.
const maxReply = 1<<20 - 2048

// maxMessage bounds the text of an error on the wire.
const maxMessage = 1024

// answer runs the handler and settles its outcome, also when the handler ends its goroutine.
func (w *work) answer(s *session) {
	defer s.handlers.Done()
	began := time.Now()
	out := outcome{err: errGoexit}
	defer func() { w.returned(s, began, out.body, out.err) }()
	out.body, out.err = w.runGuarded()
}

var errGoexit = &RemoteError{Code: CodeInternal, Message: "the handler ended its goroutine"}

// runGuarded turns a panic into an error, so that a bad request cannot end the node.
func (w *work) runGuarded() (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.bus.report(w.parent, fmt.Errorf("luatomic: the handler of %q panicked: %v", w.Method, p))
			body, err = nil, &RemoteError{Code: CodeInternal, Message: "the handler panicked"}
		}
	}()
	return w.run(w, w)
}

// returned counts the handler and sends its answer. A cast has none.
func (w *work) returned(s *session, began time.Time, body []byte, err error) {
	b := w.bus
	w.end(context.Canceled)
	if w.slot {
		b.serving.running.Add(-1)
		w.method.counts.returned(began, err)
		b.counts.handled.Add(1)
	}
	if w.Attempt == 0 {
		if err != nil {
			b.report(s.ctx, fmt.Errorf("luatomic: cast %q: %w", w.Method, err))
		}
		return
	}
	if err == nil && len(body) > maxReply {
		message := fmt.Sprintf("the result has %d bytes, at most %d", len(body), maxReply)
		err = &RemoteError{Code: CodeTooLarge, Message: message}
	}
	a := wire.Answer{ID: w.ID, Body: body}
	if err != nil {
		a.Body, a.Failure = nil, failureOf(err)
	}
	b.settle(s, w, a)
	b.serving.settled(w.ID)
}

// failureOf is what goes over the wire. An error can panic when it is asked for its text, such as one made of a nil
// pointer.
func failureOf(err error) (f *wire.Failure) {
	defer func() {
		if recover() != nil {
			f = &wire.Failure{Code: CodeInternal, Message: "the handler's error panicked"}
		}
	}()
	var e *RemoteError
	if !errors.As(err, &e) || e == nil {
		e = &RemoteError{Code: CodeError, Message: err.Error()}
	}
	return &wire.Failure{Code: e.Code[:min(len(e.Code), maxMessage)], Message: e.Message[:min(len(e.Message), maxMessage)]}
}

// settle sends the answer until it is known what became of it. The answer is sent although the handler used up its time
// or Run ends.
func (b *Bus) settle(s *session, w *work, a wire.Answer) {
	bound := max(time.Until(w.deadline), 0) + callGrace
	if s.ctx.Err() != nil {
		bound = min(bound, b.opts.Lease)
	}
	ctx := &bounded{s.detached, time.Now().Add(bound)}
	retry := clock.Backoff{First: 20 * time.Millisecond, Last: time.Second}
	for {
		result, err := b.reply(ctx, w, a)
		if err == nil {
			b.counts.countReply(result)
			return
		}
		b.report(s.ctx, fmt.Errorf("luatomic: reply to %q on bus %q: %w", w.Method, b.name, err))
		if errors.Is(err, lua.ErrTooLarge) || ctx.Err() != nil {
			return
		}
		clock.Sleep(ctx, retry.Next())
	}
}

// reply runs the script that accepts the answer once, and only from the node and attempt that were asked.
func (b *Bus) reply(ctx context.Context, w *work, a wire.Answer) (gen.RPCReplyResult, error) {
	if isGather(w.ID) {
		return b.replyPart(ctx, w, a)
	}
	frame := b.seal(a.Encode())
	p := gen.RPCReplyParams{
		Record: b.keys.Record(w.ID), Method: w.methodKey(), Node: b.node, Attempt: w.Attempt,
		Frame: frame, Notice: b.ifLarge(frame, wire.ReplyStored, w.ID), Outbox: b.keys.Outbox, Shard: b.shard,
		Keep: w.keepReply(),
	}
	return b.sender.replyTo(ctx, &p)
}

// keepReply is how long the reply is kept: until a caller that is disconnected cannot send the request again, or as
// long as a call with a key asks for.
func (w *work) keepReply() time.Duration {
	switch {
	case w.Keep == 0:
		return max(replyKept, time.Until(w.deadline)+callGrace)
	case !w.slot:
		return callGrace // it did not run: the next call with the key may
	}
	return w.Keep
}

func (w *work) methodKey() string {
	if w.method != nil {
		return w.method.key
	}
	return w.bus.keys.Method(w.Method)
}

// replyPart sends this node's answer to a gather.
func (b *Bus) replyPart(ctx context.Context, w *work, a wire.Answer) (gen.RPCReplyResult, error) {
	part := wire.Part{Node: b.node, Answer: a}
	frame := b.seal(part.Encode())
	result, err := gen.RPCPart(ctx, b.client, gen.RPCPartParams{
		Gather: b.keys.Gather(w.ID), Method: w.methodKey(), Node: b.node,
		Frame: frame, Notice: b.ifLarge(frame, wire.ReplyStored, w.ID), Outbox: b.keys.Outbox, Shard: b.shard,
	})
	return gen.RPCReplyResult(result), err
}
