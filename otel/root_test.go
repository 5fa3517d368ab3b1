package otel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// A job or a call without a span context is the root of its own trace, also if the program started its consumer or node
// in a span: else all of them would be one trace that never ends.
func TestWorkWithoutAContextIsARoot(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	q, err := queue.New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	ctx, start := l.tracer.Start(t.Context(), "start of the program")
	defer start.End()
	handle := l.Handle(q, func(context.Context, *queue.Delivery) error { return nil })
	require.NoError(t, handle(ctx, &queue.Delivery{ID: "bare"}))
	served := l.Bus(rpc.Options{}).Wrap[1]
	require.NoError(t, served(ctx, rpc.CallInfo{Method: "m"}, func(context.Context) error { return nil }))
	for _, spans := range [][]sdktrace.ReadOnlySpan{
		l.named("process "+q.Name(), trace.SpanKindConsumer), l.named("m", trace.SpanKindServer),
	} {
		require.Len(t, spans, 1)
		require.False(t, spans[0].Parent().IsValid(), spans[0].Name())
		require.NotEqual(t, start.SpanContext().TraceID(), spans[0].SpanContext().TraceID())
	}
}

// The conventions have no number of messages on a span of one message, and its id instead.
func TestOneJobIsNoBatch(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	q, err := queue.New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	_, err = l.Push(t.Context(), q, queue.Job{ID: "a"})
	require.NoError(t, err)
	attributes := l.named("send "+q.Name(), trace.SpanKindProducer)[0].Attributes()
	require.Contains(t, attributes, attribute.String("messaging.message.id", "a"))
	for _, a := range attributes {
		require.NotEqual(t, "messaging.batch.message_count", string(a.Key))
	}
}
