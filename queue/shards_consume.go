package queue

import (
	"context"
	"errors"
	"sync"
)

// notItsTurn returns a job that waited for its turn when the consumer stopped, without a failure counted.
var notItsTurn = Snooze(0)

// Consume runs a consumer for each shard, as Queue.Consume does, with Concurrency handlers in all. The shards take
// turns: however many jobs one shard has, a job of another waits for at most one handler of each shard. One busy
// shard alone can use all handlers. For that each shard takes up to Concurrency jobs; those that wait for their
// turn are leased meanwhile. Lower Concurrency where jobs are slow and other processes could run them.
//
// With Drain it ends when all shards are empty; a job pushed to a drained shard waits until the others are drained.
// A failure that no retry can cure, on any shard, ends all consumers. All shards of a server share one connection for
// their subscriptions.
func (s *Shards) Consume(ctx context.Context, opts *ConsumeOptions, h Handler) (Consumed, error) {
	var o ConsumeOptions
	if opts != nil {
		o = *opts
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 10
	}
	if report := o.OnError; report != nil {
		o.OnError = func(err error) {
			if !errors.Is(err, notItsTurn) {
				report(err)
			}
		}
	}
	var total Consumed
	for {
		out, err := s.consumeAll(ctx, &o, h)
		total.plus(out)
		if err != nil {
			return total, err
		}
		// A handler may have pushed to a shard that was drained before.
		if left, err := s.Stats(ctx); err == nil && left.Ready+left.Scheduled+left.Leased == 0 {
			return total, nil
		}
	}
}

// consumeAll runs the consumers until ctx ends, one fails, or all have drained their shard.
func (s *Shards) consumeAll(ctx context.Context, o *ConsumeOptions, h Handler) (total Consumed, _ error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	turns := newTurns(len(s.queues), o.Concurrency)
	var mu sync.Mutex
	err := s.each(func(i int, q *Queue) error {
		out, err := q.Consume(ctx, o, func(job context.Context, d *Delivery) error {
			if !turns.begin(ctx, job, i) {
				return notItsTurn
			}
			defer turns.end()
			return h(job, d)
		})
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

// turns gives places to handlers. Of each shard only one handler at a time waits for a place, and the longest
// waiter comes first: so the shards take turns.
type turns struct {
	first  []chan struct{} // the waiting handler of each shard
	places chan struct{}
}

func newTurns(shards, places int) *turns {
	t := &turns{first: make([]chan struct{}, shards), places: make(chan struct{}, places)}
	for i := range t.first {
		t.first[i] = make(chan struct{}, 1)
	}
	return t
}

// begin waits for a place. It returns false when the consumer stops or the lease is lost before.
func (t *turns) begin(consumer, job context.Context, shard int) bool {
	if !enter(consumer, job, t.first[shard]) {
		return false
	}
	defer func() { <-t.first[shard] }()
	return enter(consumer, job, t.places)
}

func enter(consumer, job context.Context, line chan struct{}) bool {
	select {
	case line <- struct{}{}:
		if consumer.Err() == nil && job.Err() == nil {
			return true
		}
		<-line
	case <-consumer.Done():
	case <-job.Done():
	}
	return false
}

func (t *turns) end() { <-t.places }
