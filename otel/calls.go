package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatomic/luatomic/rpc"
)

// errPanicked is the error of a span whose function did not return. errHandler is the same for a handler of calls, with
// the code that its caller gets.
var (
	errPanicked = errors.New("luatomic: the function did not return")
	errHandler  = &rpc.RemoteError{Code: rpc.CodeInternal, Message: "the handler did not return"}
)

// Bus returns the options of a bus with interceptors for the spans and measurements of calls, outermost.
func (t *Telemetry) Bus(o rpc.Options) *rpc.Options {
	o.Wrap = append([]func(context.Context, rpc.CallInfo, func(context.Context) error) error{
		t.Served, t.serve,
	}, o.Wrap...)
	o.WrapCall = append([]func(context.Context, *rpc.Outgoing, func(context.Context) error) error{
		t.Called, t.call,
	}, o.WrapCall...)
	return &o
}

// call makes the span of a caller. The context of the span goes into the headers of the request.
func (t *Telemetry) call(ctx context.Context, call *rpc.Outgoing, next func(context.Context) error) (err error) {
	ctx, span := t.tracer.Start(ctx, readable(call.Method), trace.WithSpanKind(trace.SpanKindClient),
		method(call.Method))
	err = errPanicked
	defer func() { end(span, err) }()
	t.propagator.Inject(ctx, propagation.MapCarrier(call.Headers))
	err = next(ctx)
	if call.Answer.Node != "" {
		span.SetAttributes(text("luatomic.node", call.Answer.Node))
	}
	return err
}

// serve makes the span of a handler: a child of the caller's span, or a root if the call has no span context.
func (t *Telemetry) serve(ctx context.Context, call rpc.CallInfo, next func(context.Context) error) (err error) {
	ctx, span := t.tracer.Start(t.received(ctx, call.Headers), readable(call.Method),
		trace.WithSpanKind(trace.SpanKindServer), method(call.Method),
		trace.WithAttributes(attribute.Int("luatomic.attempt", call.Attempt)))
	err = errHandler
	defer func() { end(span, err) }()
	err = next(ctx)
	return err
}

func method(name string) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String("rpc.system.name", "luatomic"), text("rpc.method", name))
}
