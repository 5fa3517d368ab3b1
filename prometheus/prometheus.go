// Package prometheus measures luatomic's queues, locks and calls in a Prometheus registry, under the names of the
// OpenTelemetry conventions. docs/grafana.json is a dashboard for them.
//
//	metrics, err := prometheus.New(nil)
//	mail, err := queue.New(client, "mail", &queue.Options{Observe: metrics.Job})
//	locks := lock.New(client, &lock.Options{Observe: metrics.Lock})
//	rpc.New(client, "stock", metrics.Bus(rpc.Options{}))
//	metrics.Watch(&observe.Census{Client: client}) // in one process of the system
//
// Labels are names of queues, buses and methods, and words with few values. They are never a body, an id, a key, a
// token or a note.
package prometheus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	api "github.com/prometheus/client_golang/prometheus"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/rpc"
)

// Options are the settings of Metrics. The zero value registers at api.DefaultRegisterer.
type Options struct {
	Registerer api.Registerer
	// LockGroup is the LockGroup of [observe.MeterOptions].
	LockGroup func(name string) string
	// Timeout bounds one read of the census. Default 5 s.
	Timeout time.Duration
	// OnError, if set, is called with the reason for each luatomic_up of 0. Scrapes at the same time call it at the
	// same time.
	OnError func(error)
}

// Metrics are counters and histograms. Its methods are safe for concurrent use. Job and Lock of the Meter are for
// Options.Observe of a queue and of a Locker.
type Metrics struct {
	*observe.Meter
	opts       Options
	counters   map[*observe.Instrument]*api.CounterVec
	histograms map[*observe.Instrument]*api.HistogramVec
}

// New makes and registers the metrics; nil options mean the defaults. If the registry already has one of their names,
// it fails and registers nothing. So make one Metrics for a process.
func New(opts *Options) (*Metrics, error) {
	m := &Metrics{
		counters:   make(map[*observe.Instrument]*api.CounterVec),
		histograms: make(map[*observe.Instrument]*api.HistogramVec),
	}
	if opts != nil {
		m.opts = *opts
	}
	if m.opts.Registerer == nil {
		m.opts.Registerer = api.DefaultRegisterer
	}
	if m.opts.Timeout <= 0 {
		m.opts.Timeout = 5 * time.Second
	}
	if err := m.opts.Registerer.Register(m.vectors()); err != nil {
		return nil, fmt.Errorf("luatomic: the metrics cannot be registered: %w; make one Metrics for a registry, "+
			"and give it a registry of its own if another library has one of the names", err)
	}
	m.Meter = observe.NewMeter(recorder{m}, &observe.MeterOptions{LockGroup: m.opts.LockGroup})
	return m, nil
}

// vectors makes the counters and histograms. They are one collector: a registry takes it whole or not at all.
func (m *Metrics) vectors() (all together) {
	for _, i := range observe.Instruments() {
		switch i.Sort {
		case observe.Counter:
			m.counters[i] = api.NewCounterVec(api.CounterOpts{Name: i.PrometheusName(), Help: i.About}, labels(i))
			all = append(all, m.counters[i])
		case observe.Histogram:
			m.histograms[i] = api.NewHistogramVec(api.HistogramOpts{
				Name: i.PrometheusName(), Help: i.About, Buckets: observe.Bounds,
			}, labels(i))
			all = append(all, m.histograms[i])
		}
	}
	return all
}

// together is several collectors as one.
type together []api.Collector

// Describe implements Collector, for the registry.
func (t together) Describe(to chan<- *api.Desc) {
	for _, c := range t {
		c.Describe(to)
	}
}

// Collect implements Collector, for the registry.
func (t together) Collect(to chan<- api.Metric) {
	for _, c := range t {
		c.Collect(to)
	}
}

func labels(i *observe.Instrument) []string {
	out := make([]string, len(i.Labels))
	for n, l := range i.Labels {
		out[n] = show.PrometheusLabel(l)
	}
	return out
}

// recorder is the Recorder of counters and histograms.
type recorder struct{ *Metrics }

// Record implements [observe.Recorder].
func (r recorder) Record(_ context.Context, i *observe.Instrument, value float64, labels ...string) {
	switch i.Sort {
	case observe.Counter:
		r.counters[i].WithLabelValues(labels...).Add(value)
	case observe.Histogram:
		r.histograms[i].WithLabelValues(labels...).Observe(value)
	}
}

// Bus returns the options of a bus with interceptors for the measurements of calls, outermost.
func (m *Metrics) Bus(o rpc.Options) *rpc.Options {
	o.Wrap = append([]func(context.Context, rpc.CallInfo, func(context.Context) error) error{m.Served}, o.Wrap...)
	o.WrapCall = append([]func(context.Context, *rpc.Outgoing, func(context.Context) error) error{m.Called},
		o.WrapCall...)
	return &o
}

// Watch registers a collector that reads the census at each scrape. One process of a system is enough: gauges from
// several processes are the same numbers. If something could not be read, the scrape shows luatomic_up 0 and what could
// be read. If a series came twice, it shows luatomic_up 0 and the first value. OnError gets the reason.
func (m *Metrics) Watch(census *observe.Census) error { return m.watch(census.Read) }

func (m *Metrics) watch(read func(context.Context, observe.Recorder) error) error {
	c := &collector{
		read: read, timeout: m.opts.Timeout, failed: m.opts.OnError, descs: make(map[*observe.Instrument]*api.Desc),
		up: api.NewDesc("luatomic_up", "1 where the last census read all, else 0.", nil, nil),
	}
	for _, i := range observe.Instruments() {
		if i.Sort == observe.Gauge {
			c.descs[i] = api.NewDesc(i.PrometheusName(), i.About, labels(i), nil)
		}
	}
	if err := m.opts.Registerer.Register(c); err != nil {
		return fmt.Errorf("luatomic: the gauges cannot be registered: %w; call Watch once for a registry, and for a "+
			"second census use a Metrics whose Registerer adds a label, of WrapRegistererWith", err)
	}
	return nil
}

// collector reads the gauges at each scrape.
type collector struct {
	read    func(context.Context, observe.Recorder) error // of the census
	timeout time.Duration
	failed  func(error) // may be nil
	descs   map[*observe.Instrument]*api.Desc
	up      *api.Desc
}

// Describe implements Collector, for the registry.
func (c *collector) Describe(to chan<- *api.Desc) {
	to <- c.up
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements Collector, for the registry.
func (c *collector) Collect(to chan<- api.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	up, s := 1.0, &scrape{collector: c, to: to, seen: make(map[string]bool)}
	err := errors.Join(c.read(ctx, s), s.repeated)
	if err != nil {
		up = 0
	}
	if err != nil && c.failed != nil {
		c.failed(err)
	}
	to <- api.MustNewConstMetric(c.up, api.GaugeValue, up)
}

// scrape is the Recorder of one scrape. It passes on a series that comes twice only once, and sets luatomic_up to 0:
// the registry would refuse the whole scrape.
type scrape struct {
	*collector
	to       chan<- api.Metric
	seen     map[string]bool
	repeated error // the first that came again
}

// Record implements [observe.Recorder].
func (s *scrape) Record(_ context.Context, i *observe.Instrument, value float64, labels ...string) {
	series := fmt.Sprintf("%s %q", i.Name, labels)
	if s.seen[series] {
		s.repeated = cmp.Or(s.repeated, fmt.Errorf("luatomic: the series %s came twice and is shown once", series))
		return
	}
	s.seen[series] = true
	s.to <- api.MustNewConstMetric(s.descs[i], api.GaugeValue, value, labels...)
}
