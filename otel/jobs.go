package otel

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
)

// Push is q.Push in a span. The context of the span goes into the headers of each job. The jobs of the caller are not
// changed. A job with headers costs more than a bare one: two more keys, and no shared round trip.
func (t *Telemetry) Push(ctx context.Context, q *queue.Queue, jobs ...queue.Job) (queue.Pushed, error) {
	ctx, span := t.tracer.Start(ctx, readable("send "+q.Name()), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(destination(q, "send")...))
	if len(jobs) != 1 {
		span.SetAttributes(attribute.Int("messaging.batch.message_count", len(jobs)))
	}
	traced := make([]queue.Job, len(jobs))
	for i, j := range jobs {
		traced[i] = t.Inject(ctx, j)
	}
	pushed, err := q.Push(ctx, traced...)
	if err == nil && len(pushed.IDs) == 1 {
		span.SetAttributes(text("messaging.message.id", pushed.IDs[0]))
	}
	if n := len(pushed.Duplicates); n > 0 {
		span.SetAttributes(attribute.Int("luatomic.duplicates", n))
	}
	end(span, err)
	return pushed, err
}

// Inject returns the job with the span context of ctx in its headers, for pushes other than Push. The headers of the
// caller are not changed.
func (t *Telemetry) Inject(ctx context.Context, j queue.Job) queue.Job {
	headers := maps.Clone(j.Headers)
	if headers == nil {
		headers = make(map[string]string)
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(headers))
	if len(headers) > 0 {
		j.Headers = headers
	}
	return j
}

// Handle runs h in a span for each delivery. The span is a child of the span that pushed the job, or a root if the job
// has no span context. A retry is another span of the same trace.
func (t *Telemetry) Handle(q *queue.Queue, h queue.Handler) queue.Handler {
	return func(ctx context.Context, d *queue.Delivery) (err error) {
		ctx, span := t.tracer.Start(t.received(ctx, d.Headers), readable("process "+q.Name()),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(destination(q, "process")...),
			trace.WithAttributes(
				text("messaging.message.id", d.ID),
				attribute.Int("messaging.message.body.size", len(d.Body)),
				attribute.Int("luatomic.attempt", d.Attempt)))
		if d.Kind != "" {
			span.SetAttributes(text("luatomic.kind", d.Kind))
		}
		err = errPanicked
		defer func() { end(span, err) }()
		err = h(ctx, d)
		return err
	}
}

func destination(q *queue.Queue, operation string) []attribute.KeyValue {
	of := []attribute.KeyValue{
		attribute.String("messaging.system", "luatomic"),
		text("messaging.destination.name", q.Name()),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", operation),
	}
	if q.Tag() != "" { // queues of one name differ by it
		of = append(of, text("luatomic.tag", q.Tag()))
	}
	return of
}

// Do is locks.Do with one span around all of it and two spans inside, one after the other: the wait and the hold. f
// runs in the span of the hold, which has a link to the span of the wait.
func (t *Telemetry) Do(ctx context.Context, locks *lock.Locker, name string,
	f func(context.Context, *lock.Lease) error) (err error) {
	named := trace.WithAttributes(text("luatomic.lock.name", name))
	ctx, whole := t.tracer.Start(ctx, "lock", named)
	err = errPanicked
	defer func() { end(whole, err) }()
	_, wait := t.tracer.Start(ctx, "wait", named)
	waited := false
	err = locks.Do(ctx, name, func(ctx context.Context, lease *lock.Lease) (err error) {
		end(wait, nil)
		waited = true
		ctx, hold := t.tracer.Start(ctx, "hold", named, trace.WithLinks(trace.Link{SpanContext: wait.SpanContext()}),
			trace.WithAttributes(attribute.Int64("luatomic.lock.fence", lease.Fence())))
		err = errPanicked
		defer func() { end(hold, err) }()
		err = f(ctx, lease)
		return err
	})
	if !waited {
		end(wait, err)
	}
	return err
}
