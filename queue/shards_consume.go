package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// Consume runs a consumer for each shard, as Queue.Consume does, with Concurrency handlers in all. The shards take
// turns: however many jobs one shard has, a job of another shard waits for at most one handler of each shard. One busy
// shard alone can use all handlers. Therefore each shard takes up to Concurrency jobs, and those that wait for their
// turn are leased meanwhile. Lower Concurrency if jobs are slow and other processes could run them. The wait for a turn
// comes before the handler: it is not part of Job.Timeout or Event.Run. A job that expires meanwhile does not run. A
// job that waits when the consumer stops is returned without a failure or an Event.
//
// With Drain, Consume ends when all shards are empty. A job that is pushed to a drained shard waits until the others
// are drained. A failure of any shard that no retry can cure ends all consumers. All shards of a server share one
// connection for their subscriptions.
func (s *Shards) Consume(ctx context.Context, opts *ConsumeOptions, h Handler) (Consumed, error) {
	var o ConsumeOptions
	if opts != nil {
		o = *opts
	}
	if err := checkConsume(opts, h); err != nil {
		return Consumed{}, s.wrap("consume from", err)
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 10
	}
	var total Consumed
	for retry := (clock.Backoff{First: 10 * time.Millisecond, Last: lastRetry}); ; {
		out, err := s.consumeAll(ctx, &o, h)
		total.plus(out)
		if err != nil {
			return total, err
		}
		// A handler may have pushed to a shard that was drained before.
		empty, err := s.empty(ctx)
		switch {
		case empty || isPermanent(err):
			return total, err
		case err != nil && ctx.Err() == nil:
			if o.OnError != nil {
				o.OnError(err)
			}
			clock.Sleep(ctx, retry.Next())
		}
	}
}

// empty reports whether no shard has a job that is ready, scheduled or leased.
func (s *Shards) empty(ctx context.Context) (bool, error) {
	var left atomic.Bool
	err := s.each(func(_ int, q *Queue) error {
		empty, err := q.empty(ctx)
		if !empty {
			left.Store(true)
		}
		return err
	})
	return !left.Load(), err
}

// consumeAll runs the consumers until ctx ends, one fails, or all have drained their shard.
func (s *Shards) consumeAll(ctx context.Context, o *ConsumeOptions, h Handler) (total Consumed, _ error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	places := make(chan struct{}, o.Concurrency)
	var mu sync.Mutex
	err := s.each(func(_ int, q *Queue) error {
		out, err := consume(ctx, o, h, newLine(places), Source{Queue: q})
		mu.Lock()
		defer mu.Unlock()
		total.plus(out)
		if err != nil {
			stop(err) // ends the others with this cause
		}
		return err
	})
	if err != nil {
		return total, context.Cause(ctx)
	}
	return total, nil
}

func (c *Consumed) plus(d Consumed) {
	c.Acked, c.Retried, c.Dead = c.Acked+d.Acked, c.Retried+d.Retried, c.Dead+d.Dead
	c.Expired, c.Cancelled = c.Expired+d.Expired, c.Cancelled+d.Cancelled
}

// line gives the jobs of one consumer handler slots that several consumers share. Only one job of each consumer at a
// time waits for a slot. Go serves the goroutines that wait on a channel in order of arrival, so the consumers take
// turns. A nil line has a slot for each handler.
type line struct {
	first  chan struct{} // the job that waits for a place
	places chan struct{}
}

func newLine(places chan struct{}) *line { return &line{make(chan struct{}, 1), places} }

// begin waits for a place. It returns false when the consumer stops or the lease is lost before.
func (l *line) begin(consumer, lease context.Context) bool {
	if l == nil {
		return true
	}
	if !enter(consumer, lease, l.first) {
		return false
	}
	defer func() { <-l.first }()
	return enter(consumer, lease, l.places)
}

func enter(consumer, lease context.Context, line chan struct{}) bool {
	select {
	case line <- struct{}{}:
		if consumer.Err() == nil && lease.Err() == nil {
			return true
		}
		<-line
	case <-consumer.Done():
	case <-lease.Done():
	}
	return false
}

// end gives the place back.
func (l *line) end() {
	if l != nil {
		<-l.places
	}
}
