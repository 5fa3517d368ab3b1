// Package otel makes OpenTelemetry spans and measurements of luatomic's queues, locks and calls. A job's handler runs
// in the trace of its push, a call's handler in the trace of its caller: the W3C trace context travels in their
// headers.
//
//	telemetry, err := otel.New(nil)
//	mail, err := queue.New(client, "mail", &queue.Options{Observe: telemetry.Job})
//	telemetry.Push(ctx, mail, queue.Job{Body: body})
//	mail.Consume(ctx, nil, telemetry.Handle(mail, send))
//	telemetry.Do(ctx, locks, "invoice:42", charge)
//	rpc.New(client, "stock", telemetry.Bus(rpc.Options{}))
//
// Names and attributes are those of the semantic conventions for messaging and RPC. The messaging system is luatomic.
// Spans have the names of queues, locks, methods and nodes, and the ids of jobs. They have no body, header, key, token
// or note, and no text of an error: error.type is one of a few words, see [observe.ErrorType].
package otel

import (
	"context"
	"fmt"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/observe"
)

const scope = "github.com/luatomic/luatomic/otel"

// Options are the settings of a Telemetry. The zero value uses OpenTelemetry's global providers and W3C trace context.
type Options struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator writes the context into the headers of jobs and calls. Default: propagation.TraceContext. Baggage is
	// the program's own text, so it travels only with a Propagator that includes it.
	Propagator propagation.TextMapPropagator
	// LockGroup is the LockGroup of [observe.MeterOptions].
	LockGroup func(name string) string
	// Timeout bounds one read of the census. Default 5 s. It must be less than the time of a collection, which drops
	// all measurements of the process if its own time ends.
	Timeout time.Duration
}

// Telemetry makes spans and measurements. Its methods are safe for concurrent use. Job and Lock of the Meter are for
// Options.Observe of a queue and of a Locker.
type Telemetry struct {
	*observe.Meter
	tracer     trace.Tracer
	meter      metric.Meter
	propagator propagation.TextMapPropagator
	timeout    time.Duration
}

// New returns a Telemetry; nil options mean the defaults. It fails if the MeterProvider refuses an instrument.
func New(opts *Options) (*Telemetry, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.TracerProvider == nil {
		o.TracerProvider = api.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = api.GetMeterProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	t := &Telemetry{
		tracer: o.TracerProvider.Tracer(scope), meter: o.MeterProvider.Meter(scope), propagator: o.Propagator,
		timeout: o.Timeout,
	}
	r, err := newRecorder(t.meter)
	if err != nil {
		return nil, fmt.Errorf("luatomic: the instruments cannot be made: %w", err)
	}
	t.Meter = observe.NewMeter(r, &observe.MeterOptions{LockGroup: o.LockGroup})
	return t, nil
}

// readable returns a name as valid UTF-8, as measurements have it. A name may have any bytes, and OTLP refuses a whole
// batch of spans if one name is no text.
func readable(name string) string { return show.Label(name) }

// text returns an attribute whose value is a name.
func text(key, name string) attribute.KeyValue { return attribute.String(key, readable(name)) }

// received returns ctx with the span context of the headers of a job or a call, or with none. The span in which the
// program started its consumer or node is no parent: its trace would get all jobs and calls, and never end.
func (t *Telemetry) received(ctx context.Context, headers map[string]string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return t.propagator.Extract(ctx, propagation.MapCarrier(headers))
}

// end ends a span with its outcome.
func end(span trace.Span, err error) {
	if failed := observe.ErrorType(err); failed != "" {
		span.SetAttributes(attribute.String("error.type", failed))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// attributes pairs labels with their names. It leaves out empty labels.
func attributes(i *observe.Instrument, labels []string) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(labels))
	for n, value := range labels {
		if value != "" {
			out = append(out, attribute.String(i.Labels[n], value))
		}
	}
	return out
}

// recorder is the Recorder of counters and histograms.
type recorder struct {
	counters   map[*observe.Instrument]metric.Float64Counter
	histograms map[*observe.Instrument]metric.Float64Histogram
}

func newRecorder(m metric.Meter) (*recorder, error) {
	r := &recorder{
		counters:   make(map[*observe.Instrument]metric.Float64Counter),
		histograms: make(map[*observe.Instrument]metric.Float64Histogram),
	}
	var err error
	for _, i := range observe.Instruments() {
		switch i.Sort {
		case observe.Counter:
			r.counters[i], err = m.Float64Counter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.About))
		case observe.Histogram:
			r.histograms[i], err = m.Float64Histogram(i.Name, metric.WithUnit(i.Unit),
				metric.WithDescription(i.About), metric.WithExplicitBucketBoundaries(observe.Bounds...))
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Record implements [observe.Recorder].
func (r *recorder) Record(ctx context.Context, i *observe.Instrument, value float64, labels ...string) {
	with := metric.WithAttributes(attributes(i, labels)...)
	switch i.Sort {
	case observe.Counter:
		r.counters[i].Add(ctx, value, with)
	case observe.Histogram:
		r.histograms[i].Record(ctx, value, with)
	}
}

// Watch reads the census at each collection, into gauges, until Unregister. One process of a system is enough.
func (t *Telemetry) Watch(census *observe.Census) (metric.Registration, error) {
	gauges := make(map[*observe.Instrument]metric.Float64ObservableGauge)
	var all []metric.Observable
	for _, i := range observe.Instruments() {
		if i.Sort != observe.Gauge {
			continue
		}
		g, err := t.meter.Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.About))
		if err != nil {
			return nil, fmt.Errorf("luatomic: the gauge %s cannot be made: %w", i.Name, err)
		}
		gauges[i], all = g, append(all, g)
	}
	return t.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, t.timeout)
		defer cancel()
		return census.Read(ctx, observed{gauges, to})
	}, all...)
}

// observed is the Recorder of one collection.
type observed struct {
	gauges map[*observe.Instrument]metric.Float64ObservableGauge
	to     metric.Observer
}

// Record implements [observe.Recorder].
func (o observed) Record(_ context.Context, i *observe.Instrument, value float64, labels ...string) {
	o.to.ObserveFloat64(o.gauges[i], value, metric.WithAttributes(attributes(i, labels)...))
}
