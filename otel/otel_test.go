package otel_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatomic/luatomic/internal/testkit/canary"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/otel"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// lab has a Telemetry whose spans and measurements stay in memory.
type lab struct {
	*otel.Telemetry
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	tracer trace.Tracer
}

func newLab(t *testing.T) *lab {
	l := &lab{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(l.spans))
	l.tracer = traces.Tracer("test")
	var err error
	l.Telemetry, err = otel.New(&otel.Options{
		TracerProvider: traces, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(l.reader)),
	})
	require.NoError(t, err)
	return l
}

func (l *lab) scene() canary.Scene {
	o := l.Bus(rpc.Options{})
	return canary.Scene{
		Job: l.Job, Lock: l.Lock, Push: l.Push, Handle: l.Handle, Hold: l.Do,
		Served: func(ctx context.Context, c rpc.CallInfo, next func(context.Context) error) error {
			return o.Wrap[0](ctx, c, func(ctx context.Context) error { return o.Wrap[1](ctx, c, next) })
		},
		Called: func(ctx context.Context, c *rpc.Outgoing, next func(context.Context) error) error {
			return o.WrapCall[0](ctx, c, func(ctx context.Context) error { return o.WrapCall[1](ctx, c, next) })
		},
	}
}

// named returns the spans of a name and kind.
func (l *lab) named(name string, kind trace.SpanKind) (out []sdktrace.ReadOnlySpan) {
	for _, s := range l.spans.Ended() {
		if s.Name() == name && s.SpanKind() == kind {
			out = append(out, s)
		}
	}
	return out
}

func has(t *testing.T, s sdktrace.ReadOnlySpan, key string) attribute.Value {
	t.Helper()
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value
		}
	}
	require.Fail(t, "no attribute", "%s has no %s: %v", s.Name(), key, s.Attributes())
	return attribute.Value{}
}

// A run is in the trace of its push, also when it is retried; a failed one has a type and no text.
func TestRunIsAChildOfItsPush(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := canary.Play(t, luatomictest.Client(t), luatomictest.Namespace(t), l.scene())
	push := l.named("send "+p.Queue.Name(), trace.SpanKindProducer)
	require.Len(t, push, 1)
	require.EqualValues(t, 3, has(t, push[0], "messaging.batch.message_count").AsInt64())
	runs := l.named("process "+p.Queue.Name(), trace.SpanKindConsumer)
	require.Len(t, runs, 4, "one is retried")
	for _, run := range runs {
		require.Equal(t, push[0].SpanContext().TraceID(), run.SpanContext().TraceID())
		require.Equal(t, push[0].SpanContext().SpanID(), run.Parent().SpanID())
		require.True(t, run.Parent().IsRemote())
		require.Equal(t, "luatomic", has(t, run, "messaging.system").AsString())
		if has(t, run, "messaging.message.id").AsString() == "done" {
			require.Equal(t, codes.Unset, run.Status().Code)
			continue
		}
		require.Equal(t, sdktrace.Status{Code: codes.Error}, run.Status())
		require.Contains(t, []string{"error", "held"}, has(t, run, "error.type").AsString())
	}
}

// Queues of one name differ by their tag, in spans as in measurements.
func TestSpansHaveTheTagOfTheQueue(t *testing.T) {
	t.Parallel()
	l, c, name := newLab(t), luatomictest.Client(t), luatomictest.Namespace(t)
	for _, tag := range []string{"", "blue"} {
		q, err := queue.New(c, name, &queue.Options{Tag: tag})
		require.NoError(t, err)
		_, err = l.Push(t.Context(), q, queue.Job{ID: "a"})
		require.NoError(t, err)
		require.NoError(t, l.Handle(q, func(context.Context, *queue.Delivery) error { return nil })(t.Context(),
			&queue.Delivery{ID: "a"}))
	}
	for _, spans := range [][]sdktrace.ReadOnlySpan{
		l.named("send "+name, trace.SpanKindProducer), l.named("process "+name, trace.SpanKindConsumer),
	} {
		require.Len(t, spans, 2)
		for _, a := range spans[0].Attributes() {
			require.NotEqual(t, "luatomic.tag", string(a.Key))
		}
		require.Equal(t, "blue", has(t, spans[1], "luatomic.tag").AsString())
	}
}

// A handler's span is a child of its caller's, and knows its node.
func TestServeIsAChildOfItsCall(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := canary.Play(t, luatomictest.Client(t), luatomictest.Namespace(t), l.scene())
	calls, serves := l.named("look_up", trace.SpanKindClient), l.named("look_up", trace.SpanKindServer)
	require.Len(t, calls, 4, "two are refused before a node runs them")
	require.Len(t, serves, 2)
	for i, call := range calls[:2] {
		require.Equal(t, p.Bus.Node(), has(t, call, "luatomic.node").AsString())
		require.Equal(t, call.SpanContext().SpanID(), serves[i].Parent().SpanID())
		require.Equal(t, call.SpanContext().TraceID(), serves[i].SpanContext().TraceID())
	}
	require.Equal(t, "not_found", has(t, calls[1], "error.type").AsString())
	require.Equal(t, "not_found", has(t, serves[1], "error.type").AsString())
}

// The hold follows its wait, in one trace.
func TestHoldIsLinkedToItsWait(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	canary.Play(t, luatomictest.Client(t), luatomictest.Namespace(t), l.scene())
	wait, hold := l.named("wait", trace.SpanKindInternal), l.named("hold", trace.SpanKindInternal)
	whole := l.named("lock", trace.SpanKindInternal)
	require.Len(t, wait, 1)
	require.Len(t, hold, 1)
	require.Len(t, whole, 1)
	require.Equal(t, whole[0].SpanContext().SpanID(), wait[0].Parent().SpanID())
	require.Equal(t, whole[0].SpanContext().SpanID(), hold[0].Parent().SpanID())
	require.Equal(t, wait[0].SpanContext(), hold[0].Links()[0].SpanContext)
	require.False(t, hold[0].StartTime().Before(wait[0].EndTime()))
	require.Positive(t, has(t, hold[0], "luatomic.lock.fence").AsInt64())
}

// No span and no measurement has a body, header, key, unique name, token or note.
func TestTelemetryShowsNoContent(t *testing.T) {
	t.Parallel()
	l, c, name := newLab(t), luatomictest.Client(t), luatomictest.Namespace(t)
	p := canary.Play(t, c, name, l.scene())
	reg, err := l.Watch(&observe.Census{Client: c, Prefix: name, Buses: map[string]*rpc.Bus{"stock": p.Bus}})
	require.NoError(t, err)
	var got metricdata.ResourceMetrics
	require.NoError(t, l.reader.Collect(t.Context(), &got))
	require.NoError(t, reg.Unregister())
	text, err := json.Marshal(tracetest.SpanStubsFromReadOnlySpans(l.spans.Ended()))
	require.NoError(t, err)
	measured, err := json.Marshal(got)
	require.NoError(t, err)
	for _, i := range observe.Instruments() {
		require.Contains(t, string(measured), `"`+i.Name+`"`)
	}
	for _, secret := range p.Secrets {
		require.NotContains(t, string(text), secret)
		require.NotContains(t, string(measured), secret)
	}
}

// Inject leaves the caller's headers alone, and a context without a span adds none.
func TestInjectCopiesHeaders(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	bare := l.Inject(t.Context(), queue.Job{})
	require.Nil(t, bare.Headers)
	own := queue.Job{Headers: map[string]string{"a": "b"}}
	ctx, span := l.tracer.Start(t.Context(), "request")
	defer span.End()
	traced := l.Inject(ctx, own)
	require.Equal(t, map[string]string{"a": "b"}, own.Headers)
	require.Equal(t, "b", traced.Headers["a"])
	parent := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(),
		propagation.MapCarrier(traced.Headers)))
	require.Equal(t, span.SpanContext().SpanID(), parent.SpanID())
}

// A snooze is no error.
func TestSnoozedSpanIsNoError(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	q, err := queue.New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	h := l.Handle(q, func(context.Context, *queue.Delivery) error { return queue.Snooze(time.Minute) })
	require.ErrorIs(t, h(t.Context(), &queue.Delivery{}), queue.ErrSnoozed)
	require.Equal(t, codes.Unset, l.named("process "+q.Name(), trace.SpanKindConsumer)[0].Status().Code)
}

// A handler that panics leaves an ended span with an error.
func TestPanicEndsTheSpan(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	q, err := queue.New(luatomictest.Client(t), luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	h := l.Handle(q, func(context.Context, *queue.Delivery) error { panic("x") })
	require.Panics(t, func() { _ = h(t.Context(), &queue.Delivery{}) })
	require.Equal(t, codes.Error, l.named("process "+q.Name(), trace.SpanKindConsumer)[0].Status().Code)
}

// A handler of a call that panics has the type of error that its caller gets.
func TestPanicOfACallIsInternal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	served := l.Bus(rpc.Options{}).Wrap[1]
	panics := func(context.Context) error { panic("x") }
	require.Panics(t, func() { _ = served(t.Context(), rpc.CallInfo{Method: "m"}, panics) })
	require.Equal(t, "internal", has(t, l.named("m", trace.SpanKindServer)[0], "error.type").AsString())
}

// A name that is not text ends no export: OTLP refuses a whole batch for one such text.
func TestNamesOfSpansAreText(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), luatomictest.Client(t)
	q, err := queue.New(c, "caf\xe9", &queue.Options{Prefix: luatomictest.Namespace(t)})
	require.NoError(t, err)
	_, err = l.Push(t.Context(), q, queue.Job{ID: "\xe9", Kind: "\xe9"})
	require.NoError(t, err)
	taken, err := q.Take(t.Context(), 1)
	require.NoError(t, err)
	handle := l.Handle(q, func(context.Context, *queue.Delivery) error { return nil })
	require.NoError(t, handle(t.Context(), taken.Deliveries[0]))
	locks := lock.New(c, &lock.Options{Prefix: luatomictest.Namespace(t)})
	require.NoError(t, l.Do(t.Context(), locks, "\xe9", func(context.Context, *lock.Lease) error { return nil }))
	require.NoError(t, locks.Close())
	o := l.Bus(rpc.Options{})
	require.NoError(t, o.WrapCall[1](t.Context(), &rpc.Outgoing{Method: "\xe9", Headers: map[string]string{}},
		func(context.Context) error { return nil }))
	require.NoError(t, o.Wrap[1](t.Context(), rpc.CallInfo{Method: "\xe9"}, func(context.Context) error { return nil }))
	require.Len(t, l.spans.Ended(), 7)
	for _, span := range l.spans.Ended() {
		require.True(t, utf8.ValidString(span.Name()), "%q", span.Name())
		for _, a := range span.Attributes() {
			require.True(t, utf8.ValidString(a.Value.String()), "%s: %q", a.Key, a.Value.String())
		}
	}
}
