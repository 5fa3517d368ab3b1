package observe

import (
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Recorder takes measurements. It is called from many goroutines and must not block.
type Recorder interface {
	// Record takes one value. labels are the values of i.Labels, in that order. An empty label means no attribute.
	// Labels are valid UTF-8, whatever the names are, and different names have different labels.
	Record(ctx context.Context, i *Instrument, value float64, labels ...string)
}

// Meter measures what queues, locks and buses report. Its methods are safe for concurrent use.
type Meter struct {
	to    Recorder
	group func(string) string
}

// MeterOptions are the settings of a Meter. The zero value is ready to use.
type MeterOptions struct {
	// LockGroup returns the label of a lock, such as the part of its name before the first colon. It must have few
	// different results, because each is a series of its own. Default: no label.
	LockGroup func(name string) string
}

// NewMeter returns a Meter that measures into to; nil options mean the defaults.
func NewMeter(to Recorder, opts *MeterOptions) *Meter {
	m := &Meter{to: readable{to}, group: func(string) string { return "" }}
	if opts != nil && opts.LockGroup != nil {
		m.group = opts.LockGroup
	}
	return m
}

// readable passes on labels as valid UTF-8, different labels for different names. A name may have any bytes. A
// Prometheus client panics at bytes that are no text, and refuses a whole scrape if one series comes twice.
type readable struct{ to Recorder }

func (r readable) Record(ctx context.Context, i *Instrument, value float64, labels ...string) {
	for n, label := range labels {
		labels[n] = show.Label(label)
	}
	r.to.Record(ctx, i, value, labels...)
}

// Job is for [queue.Options.Observe].
func (m *Meter) Job(e queue.Event) {
	ctx, failed := context.Background(), jobError(e)
	m.to.Record(ctx, jobConsumed, 1, system, e.Queue, e.Tag, "process", failed)
	m.to.Record(ctx, jobOutcome, 1, system, e.Queue, e.Tag, string(e.Outcome))
	if e.Run > 0 || e.Err == nil { // else its worker died, and the wait is not known
		m.to.Record(ctx, jobWait, e.Wait.Seconds(), system, e.Queue, e.Tag)
	}
	if e.Run > 0 { // else no handler had it
		m.to.Record(ctx, jobRun, e.Run.Seconds(), system, e.Queue, e.Tag, "process", failed)
	}
}

// jobError returns the error type of a delivery. A lost lease is an error even if the handler returned none.
func jobError(e queue.Event) string {
	failed := ErrorType(e.Err)
	if failed == "" && e.Outcome == queue.OutcomeLost {
		return ErrorType(queue.ErrLeaseLost)
	}
	return failed
}

// Lock is for [lock.Options.Observe].
func (m *Meter) Lock(e lock.Event) {
	ctx, group := context.Background(), m.group(e.Name)
	switch e.Kind {
	case lock.EventAcquired:
		m.to.Record(ctx, lockWait, e.Wait.Seconds(), group)
	case lock.EventQueued:
		m.to.Record(ctx, lockQueued, 1, group)
	case lock.EventReleased:
		m.to.Record(ctx, lockHold, e.Held.Seconds(), group, "")
	case lock.EventLost:
		m.to.Record(ctx, lockHold, e.Held.Seconds(), group, ErrorType(lock.ErrLost))
	}
}

// Served is for [rpc.Options].Wrap. A handler that panics is measured too.
func (m *Meter) Served(ctx context.Context, call rpc.CallInfo, next func(context.Context) error) error {
	return timed(ctx, next, errHandler, func(took time.Duration, err error) {
		m.to.Record(ctx, callServed, took.Seconds(), system, call.Method, ErrorType(err))
	})
}

// Called is for [rpc.Options].WrapCall. A call that panics, in an inner interceptor or a codec, is measured too.
func (m *Meter) Called(ctx context.Context, call *rpc.Outgoing, next func(context.Context) error) error {
	return timed(ctx, next, errCall, func(took time.Duration, err error) {
		m.to.Record(ctx, callMade, took.Seconds(), system, call.Method, ErrorType(err))
	})
}

// errCall is the error of a call that panicked or ended its goroutine. errHandler is that of such a handler, with the
// code that its caller gets.
var (
	errCall    = errors.New("luatomic: the call did not return")
	errHandler = &rpc.RemoteError{Code: rpc.CodeInternal, Message: "the handler did not return"}
)

// timed runs next and reports its end once, with the error unended if it does not return.
func timed(
	ctx context.Context, next func(context.Context) error, unended error, report func(time.Duration, error),
) (err error) {
	began := time.Now()
	err = unended
	defer func() { report(time.Since(began), err) }()
	err = next(ctx)
	return err
}
