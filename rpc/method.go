package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// Method is a call that nodes serve and others make, with the types of its request and result. A program declares each
// method once, as a variable.
type Method[Req, Res any] struct {
	name       string
	idempotent bool
	codec      lua.Codec
}

// NewMethod returns the method of that name. It sends nothing. A bad name is reported when the method is served or
// called.
func NewMethod[Req, Res any](name string) Method[Req, Res] { return Method[Req, Res]{name: name} }

// Idempotent declares that the handler may run twice: when the node of a call is lost or leaves, another node gets the
// call. The reply of the first node is then refused, so there is still one result. Only the caller's declaration
// counts; Serve accepts a method with or without it.
func (m Method[Req, Res]) Idempotent() Method[Req, Res] {
	m.idempotent = true
	return m
}

// WithCodec gives the method a codec that replaces Options.Codec. Nodes and callers need the same codec. See
// Options.Codec for what calls with CallOptions.Key require.
func (m Method[Req, Res]) WithCodec(c lua.Codec) Method[Req, Res] {
	m.codec = c
	return m
}

// Name is the name given to NewMethod.
func (m Method[Req, Res]) Name() string { return m.name }

func (m Method[Req, Res]) codecOf(b *Bus) lua.Codec {
	if m.codec != nil {
		return m.codec
	}
	return b.opts.Codec
}

// ServeOptions are the settings of one served method. Nil means none.
type ServeOptions struct {
	// Concurrency bounds the handlers of this method that run at the same time, in addition to Options.Concurrency. 0
	// means no separate bound.
	Concurrency int
	// Description and Version are for people. Bus.Nodes returns them. At most 1 KiB together.
	Description, Version string
}

// Serve lets this node answer the method with h from now on; a second Serve replaces h. Nil options mean none. Only
// methods that are served can be called. The node announces the method with its next heartbeat, which is sent
// immediately while Run runs; Ready waits for that. A bad name is a lua.ErrBadName, and a nil handler is an error too.
//
// The handler's context ends at the caller's deadline, when the caller gives up, and when Run's context and the grace
// have ended. An error, or a panic, goes to the caller as a *RemoteError; the text and the stack of a panic stay here
// and go to Options.OnError as a *lua.PanicError. An error of a handler whose context has ended is not an outcome: the
// call goes to another node if the method is Idempotent, and ends with ErrNodeLost otherwise.
func (m Method[Req, Res]) Serve(b *Bus, h func(context.Context, Req) (Res, error), opts *ServeOptions) error {
	if h == nil {
		return noHandler(m.name)
	}
	codec := m.codecOf(b)
	return b.serve(m.name, opts, func(ctx context.Context, w *work) ([]byte, error) {
		if w.Flags&wire.FlagStream != 0 {
			return nil, &RemoteError{Code: CodeBadRequest,
				Message: "the result comes in one piece; call it as a Method"}
		}
		in, err := decodeAs[Req](codec, w.Body)
		if err != nil {
			return nil, &RemoteError{Code: CodeBadRequest, Message: err.Error()}
		}
		out, err := h(ctx, in)
		if err != nil {
			return nil, err
		}
		body, err := codec.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("the result cannot be encoded: %w", err)
		}
		return body, nil
	})
}

// Unserve withdraws the method from this node: from then on no call is sent here. Calls that are already here are
// answered. The counts of the method stay, and if it is served again, running handlers count towards its limit. Unserve
// also works when ctx has ended before, and then takes up to 10 s. It is one script and one round trip, and returns the
// error of that script. After an error of package lua a call may
// still be sent here; it is refused, so that another node gets it, until the next heartbeat withdraws the method. If a
// late copy of an earlier heartbeat may arrive, each heartbeat withdraws the method again, for a minute.
func (m Method[Req, Res]) Unserve(ctx context.Context, b *Bus) error { return b.unserve(ctx, m.name) }

// CallOptions are the settings of a call: which node may answer, and how long the result is kept. Nil means any node.
type CallOptions struct {
	// Node, if set, is the only node that may answer. See Bus.Node and Bus.Nodes.
	Node string
	// Connection, if set, names a connection. Only the node that owns it may answer. See Bus.Bind. A call with both
	// Node and Connection fails with lua.ErrBadName.
	Connection string
	// Affinity, if set, is a key: calls with the same key go to the same node, as long as the nodes of the method stay
	// the same and that node accepts them. If a node comes or goes, only its share of the keys moves.
	Affinity string
	// Key, if set, is an idempotency key: calls of the method with it are one call. While its result is kept no handler
	// runs for it again: a later call of any caller waits for the same run, or gets its result, even if no node serves
	// the method any more. For that, ErrNoResponders comes one round trip later. The handler has Options.Timeout, or
	// the time of the first caller if that is longer, and continues when its callers give up. ErrNodeLost is kept too,
	// except for an Idempotent method, which runs again. A deadline of the handler is kept. A refusal is not kept:
	// ErrOverloaded and ErrNoResponders are for one call. A call with another request fails with ErrKeyReused, and so
	// does one whose codec encodes an equal request to other bytes, see Options.Codec.
	Key string
	// Keep is how long the result of a call with a key is kept. Default an hour, at most 30 days. It is kept at least
	// until its caller can no longer send the request again: for 10 s, and until a second after the handler's deadline.
	Keep time.Duration
	// Headers are sent with the request; the handler gets them from CallFrom. At most 64, 16 KiB together.
	Headers map[string]string
	// Retry is how often the call is retried after an error that is safe: no handler has run, or the method is
	// Idempotent. Each retry waits from 10 ms to 1 s, and prefers other nodes. The deadline of ctx, or Options.Timeout,
	// bounds all attempts together; then the last error is returned. Default 0.
	Retry int
	// Wrap are run around the call, inside those of Options.WrapCall, the first one outermost. See there.
	Wrap []func(ctx context.Context, call *Outgoing, next func(ctx context.Context) error) error
	// Answered, if set, gets who answered. After an error it is empty unless a handler answered; RemoteError.Node names
	// the node that refused. Two calls at the same time need two.
	Answered *Answered
}

// Outgoing is a call as Options.WrapCall and CallOptions.Wrap see it.
type Outgoing struct {
	Method string
	// Headers are sent with the request. They may be changed before next.
	Headers map[string]string
	// Answer says who answered, after next. It is empty if no node did, and for a gather.
	Answer Answered
}

// Answered says which node answered a call, and with which headers.
type Answered struct {
	Node    string
	Headers map[string]string // that the handler has set, see ReplyHeader
}

// Call sends the request to one live node and waits for its reply; nil options mean any node. Only one node runs it, at
// most once. Call returns one definite outcome:
//
//   - the result;
//   - a *RemoteError, when the handler failed; with CodeOverloaded, which matches ErrOverloaded, when the handlers of
//     all nodes that were asked, 16 at most, are busy and none has run;
//   - ErrNoResponders, without a wait, when no node serves the method: after one round trip, or a few if the caller
//     knows nodes that have just died;
//   - ErrNodeLost, when the node died or left, or Redis lost the record: the handler may have run;
//   - an error that wraps context.DeadlineExceeded, or context.Canceled and the cause of ctx' end, when no answer came
//     in time: the handler may have run. If the cause says that another call has not run, the error has it as text
//     only. So it has the reason if the server refused the attempts to send the request until then;
//   - an error of package lua, when a call to Redis failed;
//   - lua.ErrTooLarge, before anything is sent, for a request above 1 MiB;
//   - lua.ErrBadName, before anything is sent.
//
// The deadline is that of ctx, or Options.Timeout; the handler's context has what is left of it when the script runs.
// Call returns by then, even if the server is silent. A request that reaches the server later does nothing. Call needs
// Run and waits for Ready.
//
// The caller chooses the node; one script checks that the node is alive, writes the record of the call and publishes
// the request. Cost: two round trips, one of the caller and one of the node, one more for the first call of a method,
// and one key, which is removed in batches or expires.
func (m Method[Req, Res]) Call(ctx context.Context, b *Bus, in Req, opts *CallOptions) (Res, error) {
	var none Res
	body, err := m.encode(b, in)
	if err != nil {
		return none, err
	}
	c := outgoing{method: m.name, body: body, idempotent: m.idempotent}
	if opts != nil {
		c.CallOptions = *opts
	}
	answer, err := b.callWrapped(ctx, &c)
	if c.Answered != nil {
		*c.Answered = Answered{Node: answer.ext.Node, Headers: answer.ext.Headers}
	}
	if err != nil {
		return none, err
	}
	return m.decode(b, answer.body)
}

// callWrapped runs the interceptors around the call.
func (b *Bus) callWrapped(ctx context.Context, c *outgoing) (outcome, error) {
	if len(b.opts.WrapCall)+len(c.Wrap) == 0 {
		return b.callAgain(ctx, c) // the usual call allocates nothing for them
	}
	var answer outcome
	kept := *c // a copy: the function would take the usual call to the heap, too
	err := b.wrapped(ctx, &kept, func(ctx context.Context) (who Answered, err error) {
		answer, err = b.callAgain(ctx, &kept)
		return Answered{Node: answer.ext.Node, Headers: answer.ext.Headers}, err
	})
	return answer, err
}

var errNoNext = fmt.Errorf("%w: next was not called", lua.ErrNotExecuted)

// wrapped runs the interceptors around run, which sends the headers of c as the interceptors leave them. If they drop
// the error of run, wrapped still returns it: a codec may decode a missing result to a zero value.
func (b *Bus) wrapped(ctx context.Context, c *outgoing, run func(context.Context) (Answered, error)) error {
	if len(b.opts.WrapCall)+len(c.Wrap) == 0 {
		_, err := run(ctx)
		return err
	}
	call := &Outgoing{Method: c.method, Headers: make(map[string]string, len(c.Headers))}
	for k, v := range c.Headers {
		call.Headers[k] = v
	}
	failed := errNoNext
	next := func(ctx context.Context) error {
		c.Headers = call.Headers
		call.Answer, failed = run(ctx)
		return failed
	}
	for _, wraps := range [][]func(context.Context, *Outgoing, func(context.Context) error) error{
		c.Wrap, b.opts.WrapCall,
	} {
		for i := len(wraps) - 1; i >= 0; i-- {
			wrap, inner := wraps[i], next
			next = func(ctx context.Context) error { return wrap(ctx, call, inner) }
		}
	}
	if err := next(ctx); err != nil || failed == nil {
		return err
	}
	return fmt.Errorf("luatomic: call %q: a function of Wrap or WrapCall returned nil for a call that failed; return "+
		"the error of next: %w", c.method, failed)
}

// callAgain makes the call, and makes it again if that is wanted and safe.
func (b *Bus) callAgain(ctx context.Context, c *outgoing) (outcome, error) {
	if _, bounded := ctx.Deadline(); !bounded && c.Retry > 0 { // one time for all of them
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.opts.Timeout)
		defer cancel()
	}
	wait := clock.Backoff{First: 10 * time.Millisecond, Last: time.Second}
	for n := 0; ; n++ {
		out, err := b.call(ctx, c)
		if err == nil || n >= c.Retry || !c.again(out, err) || !clock.Sleep(ctx, wait.Next()) {
			return out, err
		}
	}
}

// again reports whether the call may be made again after the error. If the outcome names a node, the error is the
// answer of a handler, which has chosen the code or passed on the code of another call.
func (c *outgoing) again(out outcome, err error) bool {
	if out.ext.Node != "" && !c.idempotent {
		return false
	}
	var remote *RemoteError
	if errors.As(err, &remote) {
		return remote.Code == CodeOverloaded || remote.Code == CodeNoMethod || remote.Code == CodeVersion
	}
	notRun := errors.Is(err, ErrNoResponders) || errors.Is(err, lua.ErrNotExecuted)
	return notRun || c.idempotent && (errors.Is(err, ErrNodeLost) || errors.Is(err, lua.ErrOutcomeUnknown))
}

func (m Method[Req, Res]) encode(b *Bus, in Req) ([]byte, error) {
	body, err := m.codecOf(b).Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("luatomic: call %q: the request cannot be encoded: %w", m.name, err)
	}
	return body, nil
}

func (m Method[Req, Res]) decode(b *Bus, body []byte) (Res, error) {
	out, err := decodeAs[Res](m.codecOf(b), body)
	if err != nil {
		return out, fmt.Errorf("luatomic: call %q: the result is not a %T: %w", m.name, out, err)
	}
	return out, nil
}
