package luatomic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// The life of a call on a bus, and what stands in Redis meanwhile:
//
//	rpc:{bus}:nodes    zset  node → end of its lease, renewed by every node
//	rpc:{bus}:m:<name> zset  for each method: node → calls in flight
//	rpc:{bus}:r:<id>   hash  one request: s state, n node, a attempt, c channel of
//	                         the caller, f frame of the reply; expires
//	rpc:{bus}:n:<node> and rpc:{bus}:c:<caller> are channels
//
//	caller                     server                               node
//	  │ rpc_call ───────────────▶ choose node, record, PUBLISH n: ────▶ handler
//	  │ ◀── sent, or nobody there                                        │
//	  │ ◀──────── PUBLISH c: ── accept once, store, ◀──────── rpc_reply ─┘
//
// The call script chooses a node whose lease is good and whose channel has a
// receiver at that instant, so that "nobody serves this" is an answer after one
// round trip and not a timeout. The reply script takes a reply only from the node
// and attempt that were asked, and only once; it stores it and announces it in one
// step. A caller whose connection was cut at that moment reads the record when its
// subscription is confirmed again. The address of a reply stands in the record,
// never in a message.

// ErrNoResponders says that no node could be given the call. It comes as a
// *NoRespondersError, after one round trip.
var ErrNoResponders = errors.New("luatomic: no responder")

// NoRespondersError says why nobody could be given a call. It matches
// ErrNoResponders.
type NoRespondersError struct {
	Method string
	// Reason is "no node serves it", "no lease" when the nodes that served it are
	// gone, or "no subscriber" when they are announced but not connected.
	Reason string
}

func (e *NoRespondersError) Error() string {
	return fmt.Sprintf("%v for %q: %s", ErrNoResponders, e.Method, e.Reason)
}

// Is matches ErrNoResponders.
func (e *NoRespondersError) Is(target error) bool { return target == ErrNoResponders }

// Codes of a RemoteError that the library itself sends.
const (
	CodeError      = "error"       // the handler returned an error without a code
	CodeInternal   = "internal"    // the handler panicked
	CodeBadRequest = "bad_request" // the body is not what the method takes
	CodeNoMethod   = "no_method"   // the node stopped serving the method
	CodeOverloaded = "overloaded"  // all handlers of the node are busy
	CodeTooLarge   = "too_large"   // the result is larger than a reply may be
)

// RemoteError is the answer of a handler that failed. A handler may return one to
// choose the code.
type RemoteError struct {
	Code, Message string
}

func (e *RemoteError) Error() string { return "luatomic: remote: " + e.Code + ": " + e.Message }

// BusOptions are the settings of a Bus. The zero value is ready to use.
type BusOptions struct {
	// Prefix comes before every key and channel, such as "app:".
	Prefix string
	// Node is a name for this process, for people. A unique part is added to it.
	Node string
	// Lease is how long the node counts as alive after its last sign of life.
	// Default 3 s.
	Lease time.Duration
	// Timeout bounds a call whose context has no deadline. Default 5 s.
	Timeout time.Duration
	// Concurrency is how many handlers run at once; more calls are answered with
	// CodeOverloaded. Default 64.
	Concurrency int
	// OnError, if set, sees what fails in the background. The bus goes on.
	OnError func(err error)
}

// Bus connects callers and nodes of one name over one subscriber connection. Run
// must be running for both. Its methods are safe for concurrent use.
type Bus struct {
	client lua.Client
	name   string
	keys   keys.Bus
	opts   BusOptions
	node   string // this incarnation: a restarted process inherits nothing
	inbox  string
	slots  chan struct{}
	beat   chan struct{} // asks for an announcement out of turn

	mu       sync.Mutex
	handlers map[string]handler
	pending  map[string]chan reply

	ready     chan struct{} // closed once subscribed and announced
	announced sync.Once
}

type handler func(ctx context.Context, body []byte) ([]byte, error)

// NewBus returns the bus of that name; nil options mean the defaults. Nothing is
// sent and nothing starts: call Run.
func NewBus(client lua.Client, name string, opts *BusOptions) (*Bus, error) {
	b := &Bus{
		client: client, name: name, beat: make(chan struct{}, 1), ready: make(chan struct{}),
		handlers: make(map[string]handler), pending: make(map[string]chan reply),
	}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Lease <= 0 {
		b.opts.Lease = 3 * time.Second
	}
	if b.opts.Timeout <= 0 {
		b.opts.Timeout = 5 * time.Second
	}
	if b.opts.Concurrency <= 0 {
		b.opts.Concurrency = 64
	}
	b.slots = make(chan struct{}, b.opts.Concurrency)
	var err error
	if b.keys, err = keys.NewBus(b.opts.Prefix, name); err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("luatomic: bus %q: %w", name, err)
	}
	b.node = id.String()
	if b.opts.Node != "" {
		if err := lua.CheckName("node name", b.opts.Node); err != nil {
			return nil, fmt.Errorf("luatomic: %w", err)
		}
		b.node = b.opts.Node + "." + b.node
	}
	b.inbox = b.keys.Inbox(b.node)
	return b, nil
}

// Ready waits until Run is subscribed and has announced the methods served by then.
func (b *Bus) Ready(ctx context.Context) error {
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("luatomic: bus %q is not connected; is its Run running? %w", b.name, context.Cause(ctx))
	}
}

// Method is a call that nodes serve and others make, with the types of its request
// and result. Both travel as JSON. A program declares each once, as a variable.
type Method[Req, Res any] struct {
	name string
}

// NewMethod names a method. A bad name shows when the method is served or called.
func NewMethod[Req, Res any](name string) Method[Req, Res] { return Method[Req, Res]{name: name} }

// Name is the name given to NewMethod.
func (m Method[Req, Res]) Name() string { return m.name }

// Serve lets this node answer the method with h from now on; serving it again
// replaces h. Only methods that are served can be called: nothing is found by
// reflection. The handler's context ends at the caller's deadline and when Run
// ends. An error, or a panic, goes to the caller as a RemoteError.
func (m Method[Req, Res]) Serve(b *Bus, h func(context.Context, Req) (Res, error)) error {
	if err := lua.CheckName("method name", m.name); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	b.serve(m.name, func(ctx context.Context, body []byte) ([]byte, error) {
		var in Req
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, &RemoteError{Code: CodeBadRequest, Message: err.Error()}
		}
		out, err := h(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	})
	return nil
}

// Call sends the request to one live node and waits for its answer. Only one node
// runs it, at most once, and one definite outcome comes back:
//
//   - the result;
//   - a *RemoteError, when the handler failed;
//   - ErrNoResponders, at once, when nobody serves the method;
//   - an error that wraps context.DeadlineExceeded or the cause of ctx' end, when
//     no answer came in time: the handler may have run;
//   - lua.ErrTooLarge, before anything is sent, for a request above 1 MiB.
//
// The deadline is ctx' own or BusOptions.Timeout; the handler's context has what is
// left of it. Cost: two round trips in all, caller's and node's.
func (m Method[Req, Res]) Call(ctx context.Context, b *Bus, in Req) (Res, error) {
	var out Res
	body, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("luatomic: call %q: %w", m.name, err)
	}
	answer, err := b.call(ctx, m.name, body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("luatomic: call %q: the result is not a %T: %w", m.name, out, err)
	}
	return out, nil
}

func (b *Bus) call(ctx context.Context, method string, body []byte) ([]byte, error) {
	if err := lua.CheckName("method name", method); err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := b.Ready(ctx); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("luatomic: call %q: %w", method, err)
	}
	// The waiter is there before the request is: the reply may be faster than the
	// answer to this call.
	answer := b.expect(id.String())
	defer b.forget(id.String())
	if err := b.send(ctx, method, id.String(), body); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		return r.body, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("luatomic: call %q: no answer, the handler may have run: %w", method, context.Cause(ctx))
	}
}

// bound gives a call without a deadline the default one.
func (b *Bus) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.opts.Timeout)
}

func (b *Bus) send(ctx context.Context, method, id string, body []byte) error {
	left := b.opts.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left = max(time.Until(deadline), time.Millisecond)
	}
	r, err := gen.RPCCall(ctx, b.client, gen.RPCCallParams{
		Nodes: b.keys.Nodes, Method: b.keys.Method(method), Record: b.keys.Record(id),
		Frame: encodeRequest(id, method, left, body),
		Inbox: b.inbox, Outbox: b.keys.Outbox, Timeout: left,
	})
	if err != nil {
		return fmt.Errorf("luatomic: call %q: %w", method, err)
	}
	switch r.Outcome {
	case gen.RPCCallOutcomeNoMethod:
		return &NoRespondersError{Method: method, Reason: "no node serves it"}
	case gen.RPCCallOutcomeNoLease:
		return &NoRespondersError{Method: method, Reason: "no lease: the nodes that served it are gone"}
	case gen.RPCCallOutcomeNoSubscriber:
		return &NoRespondersError{Method: method, Reason: "no subscriber: the nodes that serve it are not connected"}
	}
	return nil
}
