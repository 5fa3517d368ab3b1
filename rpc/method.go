package rpc

import (
	"context"
	"fmt"
	"time"
)

// Method is a call that nodes serve and others make, with the types of its request and result. A program declares each
// once, as a variable.
type Method[Req, Res any] struct {
	name       string
	idempotent bool
}

// NewMethod names a method. It sends nothing; a bad name is reported when the method is served or called.
func NewMethod[Req, Res any](name string) Method[Req, Res] { return Method[Req, Res]{name: name} }

// Idempotent declares that the handler may run twice: when the node of a call is lost, another node gets the call. The
// reply of the first node is then refused, so there is still one answer. The callers decide; Serve takes either.
func (m Method[Req, Res]) Idempotent() Method[Req, Res] {
	m.idempotent = true
	return m
}

// Name is the name given to NewMethod.
func (m Method[Req, Res]) Name() string { return m.name }

// Serve lets this node answer the method with h from now on; serving it again replaces h. Only methods that are served
// can be called. The node announces the method with its next heartbeat, which is sent immediately while Run runs. Serve
// fails with lua.ErrBadName for a bad name.
//
// The handler's context ends at the caller's deadline, when the caller gives up, and when Run ends. An error, or a
// panic, goes to the caller as a *RemoteError; the text of a panic stays here and goes to Options.OnError.
func (m Method[Req, Res]) Serve(b *Bus, h func(context.Context, Req) (Res, error)) error {
	return b.serve(m.name, func(ctx context.Context, w *work) ([]byte, error) {
		var in Req
		if err := b.opts.Codec.Unmarshal(w.Body, &in); err != nil {
			return nil, &RemoteError{Code: CodeBadRequest, Message: err.Error()}
		}
		out, err := h(ctx, in)
		if err != nil {
			return nil, err
		}
		return b.opts.Codec.Marshal(out)
	})
}

// CallOptions select the node of a call and say how its result is kept. Nil means any node.
type CallOptions struct {
	// Node, if set, is the one node that may answer. See Bus.Node and Bus.Nodes.
	Node string
	// Connection, if set, names a connection: the node that owns it may answer. See Bus.Bind.
	Connection string
	// Key, if set, is an idempotency key: a second call of the method with it waits for the same run, or gets its
	// result. The call continues when its first caller gives up. ErrNodeLost is no result: the next call with the key
	// runs anew, and so does one a second after ErrOverloaded.
	Key string
	// Keep is how long the result of a call with a key is kept. Default an hour, at most 30 days.
	Keep time.Duration
}

// Call sends the request to one live node and waits for its answer. Only one node runs it, at most once, and one
// definite outcome comes back:
//
//   - the result;
//   - a *RemoteError, when the handler failed; with CodeOverloaded, which matches ErrOverloaded, when all handlers are
//     busy and none has run;
//   - ErrNoResponders, after one round trip, when no node serves the method;
//   - ErrNodeLost, when the node died or left: the handler may have run;
//   - an error that wraps context.DeadlineExceeded or the cause of ctx' end, when no answer came in time: the handler
//     may have run;
//   - an error of package lua, when Redis could not be asked;
//   - lua.ErrTooLarge, before anything is sent, for a request above 1 MiB;
//   - lua.ErrBadName, before anything is sent.
//
// The deadline is that of ctx, or Options.Timeout; the handler's context has what is left of it when the script runs.
// No clocks of two machines are compared. Call needs Run and waits for Ready.
//
// One script chooses the node, writes the record of the call and publishes the request. Cost: two round trips, one of
// the caller and one of the node, and one key, which the next call removes or which expires.
func (m Method[Req, Res]) Call(ctx context.Context, b *Bus, in Req) (Res, error) {
	return m.CallWith(ctx, b, in, nil)
}

// CallWith is Call with options. A call with a key costs one round trip more when its run has begun already.
func (m Method[Req, Res]) CallWith(ctx context.Context, b *Bus, in Req, opts *CallOptions) (Res, error) {
	var out Res
	body, err := m.encode(b, in)
	if err != nil {
		return out, err
	}
	c := outgoing{method: m.name, body: body, idempotent: m.idempotent}
	if opts != nil {
		c.CallOptions = *opts
	}
	answer, err := b.call(ctx, &c)
	if err != nil {
		return out, err
	}
	return out, m.decode(b, answer, &out)
}

func (m Method[Req, Res]) encode(b *Bus, in Req) ([]byte, error) {
	body, err := b.opts.Codec.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("luatomic: call %q: the request cannot be encoded: %w", m.name, err)
	}
	return body, nil
}

func (m Method[Req, Res]) decode(b *Bus, body []byte, out *Res) error {
	if err := b.opts.Codec.Unmarshal(body, out); err != nil {
		return fmt.Errorf("luatomic: call %q: the result is not a %T: %w", m.name, *out, err)
	}
	return nil
}
