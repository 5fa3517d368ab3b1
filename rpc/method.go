package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// Method is a call that nodes serve and others make, with the types of its request
// and result. A program declares each once, as a variable.
type Method[Req, Res any] struct {
	name       string
	idempotent bool
}

// NewMethod names a method. A bad name shows when the method is served or called.
func NewMethod[Req, Res any](name string) Method[Req, Res] { return Method[Req, Res]{name: name} }

// Idempotent returns the method with the word that its handler may run twice: when
// the node of a call is lost, another node gets it. The reply of the first one is
// then refused, so there is still one answer.
func (m Method[Req, Res]) Idempotent() Method[Req, Res] {
	m.idempotent = true
	return m
}

// Name is the name given to NewMethod.
func (m Method[Req, Res]) Name() string { return m.name }

// Serve lets this node answer the method with h from now on; serving it again
// replaces h. Only methods that are served can be called: nothing is found by
// reflection. The handler's context ends at the caller's deadline, when the caller
// gives up, and when Run ends. An error, or a panic, goes to the caller as a
// RemoteError; a panic without its text.
func (m Method[Req, Res]) Serve(b *Bus, h func(context.Context, Req) (Res, error)) error {
	return b.serve(m.name, func(ctx context.Context, w *work) ([]byte, error) {
		var in Req
		if err := b.opts.Codec.Unmarshal(w.request.body, &in); err != nil {
			return nil, &RemoteError{Code: CodeBadRequest, Message: err.Error()}
		}
		out, err := h(ctx, in)
		if err != nil {
			return nil, err
		}
		return b.opts.Codec.Marshal(out)
	})
}

// CallOptions say where a call goes and what becomes of its result. Nil means any
// node.
type CallOptions struct {
	// Node, if set, is the one node that may answer.
	Node string
	// Connection, if set, names a connection: the node that owns it may answer. See
	// Bus.Bind.
	Connection string
	// Key, if set, is an idempotency key: the second call of the method with it joins
	// the first one or gets its result. The first one goes on when its caller gives
	// up. A lost node is no result, and an overloaded one is none a second later.
	Key string
	// Keep is how long the result of a call with a key stays. Default an hour.
	Keep time.Duration
}

// Call sends the request to one live node and waits for its answer. Only one node
// runs it, at most once, and one definite outcome comes back:
//
//   - the result;
//   - a *RemoteError, when the handler failed; one with CodeOverloaded, which matches
//     ErrOverloaded, when all handlers are busy and none ran;
//   - ErrNoResponders, at once, when nobody serves the method;
//   - ErrNodeLost, when the node died or left: the handler may have run;
//   - an error that wraps context.DeadlineExceeded or the cause of ctx' end, when
//     no answer came in time: the handler may have run;
//   - an error of package lua, when Redis could not be asked;
//   - lua.ErrTooLarge, before anything is sent, for a request above 1 MiB.
//
// The deadline is ctx' own or BusOptions.Timeout; the handler's context has what is
// left of it. Cost: two round trips in all, caller's and node's.
func (m Method[Req, Res]) Call(ctx context.Context, b *Bus, in Req) (Res, error) {
	return m.CallWith(ctx, b, in, nil)
}

// CallWith is Call with options.
func (m Method[Req, Res]) CallWith(ctx context.Context, b *Bus, in Req, opts *CallOptions) (Res, error) {
	var out Res
	body, err := m.body(b, in)
	if err != nil {
		return out, err
	}
	c := outgoing{method: m.name, body: body, again: m.idempotent}
	if opts != nil {
		c.CallOptions = *opts
	}
	answer, err := b.call(ctx, &c)
	if err != nil {
		return out, err
	}
	return out, m.result(b, answer, &out)
}

func (m Method[Req, Res]) body(b *Bus, in Req) ([]byte, error) {
	body, err := b.opts.Codec.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("luatomic: call %q: %w", m.name, err)
	}
	return body, nil
}

func (m Method[Req, Res]) result(b *Bus, body []byte, out *Res) error {
	if err := b.opts.Codec.Unmarshal(body, out); err != nil {
		return fmt.Errorf("luatomic: call %q: the result is not a %T: %w", m.name, *out, err)
	}
	return nil
}

// check judges the names before anything is sent.
func (c *outgoing) check() error {
	err := lua.CheckName("method name", c.method)
	if err == nil && c.Node != "" && len(c.Node) > maxNode {
		err = fmt.Errorf("%w: node name has %d bytes, at most %d", lua.ErrBadName, len(c.Node), maxNode)
	}
	if err == nil && c.Connection != "" {
		err = lua.CheckName("connection", c.Connection)
	}
	if err == nil && c.Key != "" {
		err = lua.CheckName("idempotency key", c.Key)
	}
	if err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	if c.Keep <= 0 {
		c.Keep = time.Hour
	}
	c.Keep = min(c.Keep, maxKept)
	return nil
}

// maxNode is a name with its unique part.
const maxNode = 128 + 17
