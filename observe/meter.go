package observe

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Recorder takes measurements. It is called from many goroutines and must not block.
type Recorder interface {
	// Record takes one value. labels are the values of i.Labels, in that order; an empty one is no attribute.
	Record(ctx context.Context, i *Instrument, value float64, labels ...string)
}

// Meter measures what queues, locks and buses report. Its methods are safe for concurrent use.
type Meter struct {
	to    Recorder
	group func(string) string
}

// MeterOptions are the settings of a Meter. The zero value is ready to use.
type MeterOptions struct {
	// LockGroup gives the label of a lock, such as the part of its name before the first colon. It has to have few
	// results: each is a series of its own. Default: no label.
	LockGroup func(name string) string
}

// NewMeter returns a Meter that measures into to; nil options mean the defaults.
func NewMeter(to Recorder, opts *MeterOptions) *Meter {
	m := &Meter{to: to, group: func(string) string { return "" }}
	if opts != nil && opts.LockGroup != nil {
		m.group = opts.LockGroup
	}
	return m
}

// Job is for [queue.Options.Observe].
func (m *Meter) Job(e queue.Event) {
	ctx, failed := context.Background(), jobError(e)
	m.to.Record(ctx, jobConsumed, 1, system, e.Queue, "process", failed)
	m.to.Record(ctx, jobOutcome, 1, system, e.Queue, string(e.Outcome))
	m.to.Record(ctx, jobWait, e.Wait.Seconds(), system, e.Queue)
	if e.Outcome != queue.OutcomeExpired {
		m.to.Record(ctx, jobRun, e.Run.Seconds(), system, e.Queue, "process", failed)
	}
}

// jobError is the error type of a delivery. A lost lease is one also where the handler reported no error.
func jobError(e queue.Event) string {
	if e.Err == nil && e.Outcome == queue.OutcomeLost {
		return ErrorType(queue.ErrLeaseLost)
	}
	return ErrorType(e.Err)
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

// Served is for [rpc.Options].Wrap.
func (m *Meter) Served(ctx context.Context, call rpc.CallInfo, next func(context.Context) error) error {
	began := time.Now()
	err := next(ctx)
	m.to.Record(ctx, callServed, time.Since(began).Seconds(), system, call.Method, ErrorType(err))
	return err
}

// Called is for [rpc.Options].WrapCall.
func (m *Meter) Called(ctx context.Context, call *rpc.Outgoing, next func(context.Context) error) error {
	began := time.Now()
	err := next(ctx)
	m.to.Record(ctx, callMade, time.Since(began).Seconds(), system, call.Method, ErrorType(err))
	return err
}
