package main

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/luatomic/luatomic/rpc"
)

// header carries the trace id. With OpenTelemetry, the module luatomic/otel does everything in this file.
const header = "trace-id"

type traceKey struct{}

// withTrace returns a context whose calls belong to the trace.
func withTrace(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, traceKey{}, id)
}

// tracer logs each call, at the client and at the node.
type tracer struct {
	log func(format string, args ...any)
}

// options are those of a bus whose calls are traced.
func (t *tracer) options() *rpc.Options {
	o := &rpc.Options{OnError: func(err error) { t.log("%v", err) }}
	o.Wrap = append(o.Wrap, t.node)
	o.WrapCall = append(o.WrapCall, t.client)
	return o
}

// client runs around each call that this process makes. It sends the trace id of ctx along, or a new one.
func (t *tracer) client(ctx context.Context, call *rpc.Outgoing, next func(context.Context) error) error {
	id, ok := ctx.Value(traceKey{}).(string)
	if !ok {
		id = rand.Text()
	}
	call.Headers[header] = id
	began := time.Now()
	err := next(ctx)
	t.log("trace %s: call %s, answered by %q in %v: %v", id, call.Method, call.Answer.Node, time.Since(began), err)
	return err
}

// node runs around each handler. Calls that the handler makes with its context belong to the same trace.
func (t *tracer) node(ctx context.Context, call rpc.CallInfo, next func(context.Context) error) error {
	id, began := call.Headers[header], time.Now()
	err := next(withTrace(ctx, id))
	t.log("trace %s: served %s, attempt %d, in %v: %v", id, call.Method, call.Attempt, time.Since(began), err)
	return err
}
