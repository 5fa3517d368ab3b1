package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// maxReply leaves room for the frame in the MiB that one script call may carry.
const maxReply = 1<<20 - 2048

// maxMessage bounds the text of an error on the wire.
const maxMessage = 1024

// Run runs the handler and sends its outcome, also when the handler ends its goroutine.
func (w *work) Run() {
	defer w.session.handlers.Done()
	began := time.Now()
	out := outcome{err: errGoexit}
	defer func() {
		if out.err == errGoexit {
			w.bus.report(w.session.detached,
				fmt.Errorf("luatomic: the handler of %q ended its goroutine: runtime.Goexit", w.Method))
		}
		w.returned(began, out.body, out.err)
	}()
	out.body, out.err = w.runGuarded()
}

var errGoexit = &RemoteError{Code: CodeInternal, Message: "the handler ended its goroutine"}

// runGuarded turns a panic into an error, so that a bad request cannot end the process. It reports the panic even while
// Run ends, because nothing else would.
func (w *work) runGuarded() (body []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			panicked := &lua.PanicError{Method: w.Method, Value: p, Stack: debug.Stack()}
			w.bus.report(context.WithoutCancel(w.session.ctx), fmt.Errorf("%w\n%s", panicked, panicked.Stack))
			body, err = nil, &RemoteError{Code: CodeInternal, Message: "the handler panicked"}
		}
	}()
	if err := w.loadBody(); err != nil {
		return nil, err
	}
	if w.slot && len(w.bus.opts.Wrap) > 0 {
		body, err = w.runWrapped()
	} else {
		body, err = w.run(w, w)
	}
	read(err)
	return body, err
}

// read calls the methods of an error that the node and OnError call later. They can panic, as the methods of a nil
// pointer do. Here such a panic counts as the handler's.
func read(err error) {
	if err != nil {
		_, _, _ = err.Error(), errors.Is(err, errGoexit), errors.As(err, new(*RemoteError))
	}
}

// runWrapped runs the interceptors around the handler. If they drop the handler's error, runWrapped still returns it: a
// codec may decode a missing result to a zero value.
func (w *work) runWrapped() (body []byte, err error) {
	failed := errNoNext
	run := func(ctx context.Context) error {
		body, failed = w.run(ctx, w)
		return failed
	}
	for _, wrap := range slices.Backward(w.bus.opts.Wrap) {
		next := run
		run = func(ctx context.Context) error { return wrap(ctx, w.info(), next) }
	}
	if err = run(w); err == nil && failed != nil {
		err = fmt.Errorf("luatomic: serve %q: a function of Options.Wrap returned nil for a request that failed; "+
			"return the error of next: %w", w.Method, failed)
	}
	return body, err
}

// returned counts the handler and sends its answer. A cast has no answer.
func (w *work) returned(began time.Time, body []byte, err error) {
	b, s := w.bus, w.session
	cut := w.Err()
	if cut == nil && s.endedWith(err) {
		cut = context.Canceled
	}
	w.end(context.Canceled)
	w.free(began, err)
	if w.Attempt == 0 {
		if err != nil {
			b.report(s.ctx, fmt.Errorf("luatomic: cast %q: %w", w.Method, err))
		}
		return
	}
	headers, badHeaders := w.replyHeaders()
	if most := maxReply - headersSize(headers); err == nil && len(body) > most {
		message := fmt.Sprintf("the result has %d bytes, at most %d", len(body), most)
		err = &RemoteError{Code: CodeTooLarge, Message: message}
	}
	if err == nil && badHeaders != nil {
		err = &RemoteError{Code: CodeInternal, Message: badHeaders.Error()}
	}
	a := wire.Answer{ID: w.ID, Body: body, Ext: wire.Ext{
		Node: s.node, Headers: headers, Load: b.load() + 1, Digest: w.Ext.Digest,
	}}
	if err != nil {
		a.Body = nil
		w.fail(&a, err, cut)
	}
	b.sendAnswer(w, a)
	b.serving.answered(w)
}

// endedWith reports whether the error of a handler says only that Run's context has ended: the handler uses that
// context or one that ends with it, and has stopped before the grace is over.
func (s *session) endedWith(err error) bool {
	return s.run.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(s.run)))
}

// replyHeaders takes the headers of the answer, or none if they are refused. A header that is set after the handler has
// returned changes no answer.
func (w *work) replyHeaders() (map[string]string, error) {
	w.bus.serving.mu.Lock()
	headers := w.reply
	w.reply = nil
	w.bus.serving.mu.Unlock()
	if err := checkHeaders(headers); err != nil {
		return nil, err
	}
	return headers, nil
}

// fail makes the answer a failure. The end of a context is no outcome of the call: the node has left it half-way, and
// another node gets it if it may run twice.
func (w *work) fail(a *wire.Answer, err, cut error) {
	var e *RemoteError
	chosen := errors.As(err, &e)
	a.Failure = failureOf(err, &a.Ext)
	if chosen && e != nil && len(e.Details) > maxDetails {
		w.bus.report(w.session.ctx, fmt.Errorf("luatomic: reply to %q: the details of its error have %d bytes, at "+
			"most %d: the caller gets none", w.Method, len(e.Details), maxDetails))
	}
	switch {
	case !w.slot && e != nil && e.Code == CodeBadRequest: // another node would not read it either
	case !w.slot || w.Ext.Beside != "" && len(w.Body) == 0:
		a.Ext.State = wire.StateNotRun
	case chosen && (e == nil || e.Code != CodeLeft) || !chosen && cut == nil:
	case errors.Is(cut, context.DeadlineExceeded):
		a.Ext.State, a.Failure.Code = wire.StateLost, CodeDeadline
	case w.Flags&wire.FlagIdempotent != 0:
		a.Ext.State, a.Failure.Code = wire.StateHandedOver, CodeLeft
	default:
		a.Ext.State, a.Failure.Code = wire.StateLost, CodeLeft
	}
}

// failureOf returns the failure as it goes over the wire.
func failureOf(err error, ext *wire.Ext) *wire.Failure {
	var e *RemoteError
	if !errors.As(err, &e) || e == nil {
		e = &RemoteError{Code: CodeError, Message: err.Error()}
	}
	if len(e.Details) <= maxDetails { // a part of them is of no use to a program
		ext.Details = e.Details
	}
	return &wire.Failure{Code: e.Code[:min(len(e.Code), maxMessage)], Message: e.Message[:min(len(e.Message),
		maxMessage)]}
}

// maxDetails bounds the details of an error on the wire; larger ones are not sent.
const maxDetails = 16 << 10

// sendAnswer sends the answer until it is known what became of it, even if the handler used up its time: it tries as
// long as the record of the call is stored. Until then the node knows the request and does not run it again. After the
// end of Run, it tries for the time of a lease, at least 1 s.
func (b *Bus) sendAnswer(w *work, a wire.Answer) {
	s, now := w.session, time.Now()
	over := now.Add(max(w.deadline.Sub(now), 0) + max(callGrace, w.Keep))
	retry := clock.Backoff{First: 20 * time.Millisecond, Last: time.Second}
	for ; ; now = time.Now() {
		w.sends = bounded{s.detached, now.Add(min(over.Sub(now), max(b.opts.Lease, time.Second)))}
		result, err := b.reply(&w.sends, w, a)
		if err == nil {
			b.counts.countReply(result)
			return
		}
		b.report(s.ctx, fmt.Errorf("luatomic: reply to %q on bus %q: %w", w.Method, b.name, err))
		if s.ctx.Err() != nil || !time.Now().Before(over) {
			return
		}
		clock.Sleep(s.ctx, retry.Next())
	}
}

// reply runs the script that accepts the answer: only once, only from the node and attempt that were asked, and only to
// the request that was run.
func (b *Bus) reply(ctx context.Context, w *work, a wire.Answer) (rpcscript.ReplyResult, error) {
	client, keep := b.client, w.keepReply()
	if len(a.Body) >= besideMin && w.Flags&wire.FlagStream == 0 {
		// The id is the attempt's own, so that the body of a refused answer does not replace an accepted one.
		a.Ext.Beside = besideID(w.ID+"."+w.session.node+"."+strconv.FormatInt(w.Attempt, 10), w.Ext.Digest)
		client = b.putBeside(ctx, a.Ext.Beside, a.Body, keep+callGrace) // a record is never without its body
		a.Body = nil
	}
	frame := b.seal(a.Encode())
	p := rpcscript.ReplyParams{
		Record: b.keys.Record(w.ID), Node: w.session.node, Attempt: w.Attempt, Digest: w.Ext.Digest,
		State: recordState[a.Ext.State], Frame: frame, Outbox: b.keys.Outbox, Shard: b.shard,
	}
	if a.Ext.State == wire.StateDone {
		p.Keep = keep
	}
	result, err := rpcscript.Reply(ctx, client, p)
	return result, cmp.Or(b.unstored(ctx, client, err), err)
}

// recordState is the state of a record after an answer.
var recordState = [...]string{
	wire.StateDone: "d", wire.StateNotRun: "r", wire.StateHandedOver: "r", wire.StateLost: "l",
}

// keepReply is how long the reply is kept: until a disconnected caller can no longer send the request again, or for
// longer if a call with a key asks for that.
func (w *work) keepReply() time.Duration {
	return max(replyKept, w.Keep, time.Until(w.deadline)+callGrace)
}
