package queue

import (
	"context"
	"fmt"

	"github.com/luatomic/luatomic/lua"
)

// MaxSources bounds the queues of one ConsumeAll.
const MaxSources = 16

// Source is a queue of a ConsumeAll.
type Source struct {
	Queue *Queue
	// Weight is how often the queue comes first, in proportion to the others: at most a million; 0 beside weights
	// counts as 1. When no queue has one, they come strictly in order.
	Weight int
}

// ConsumeAll runs one consumer on several queues, as Queue.Consume does on one: Concurrency, Grace, Idle and the
// prefetch are of all of them together, and Drain ends it when all are empty at one moment, but for the ready jobs of
// a paused one, which are looked for after that. Delivery.Queue says where a job is from. All else is each queue's
// own: pause, lease, failures, dead set, events and counts; a delivery is settled on its own queue.
//
// Without weights the order is strict: a take gives a job of a queue only where each queue before it is paused or has
// no job left that is ready or due. With weights the order is drawn for each take: while all queues have jobs, each one
// comes first in its share of the takes, and what it lacks the others give. No job overtakes one that was taken before,
// also where jobs are prefetched; see Queue.Consume.
//
// The queues share a slot: one client, one prefix and one Options.Tag, as for PushAll. Other tags: lua.ErrCrossSlot.
// More than MaxSources: lua.ErrTooLarge. Both come before anything is sent. Other errors as Queue.Consume; a failure
// that no retry can cure, of any queue, ends the consumer.
//
// Cost: one round trip for a take of all queues, atomic to other clients; one Ack for each batch and queue; two
// subscriptions for each queue, on the connection that all share. While it waits, it is among the waiters of each
// queue.
func ConsumeAll(ctx context.Context, opts *ConsumeOptions, h Handler, from ...Source) (Consumed, error) {
	if err := checkSources(from); err != nil {
		return Consumed{}, fmt.Errorf("luatomic: consume from %d queues: %w", len(from), err)
	}
	return consume(ctx, opts, h, nil, from...)
}

// Queue is the queue that the job is from.
func (d *Delivery) Queue() *Queue { return d.queue }

// checkSources returns why one consumer cannot take from these queues.
func checkSources(from []Source) error {
	switch {
	case len(from) == 0:
		return fmt.Errorf("no queue is given; pass a Source for each")
	case len(from) > MaxSources:
		return &lua.SizeError{What: "queues", N: len(from), Max: MaxSources, Unit: "items"}
	}
	seen := make(map[string]bool, len(from))
	for i, s := range from {
		if s.Queue == nil {
			return fmt.Errorf("source %d has no queue; set Source.Queue", i)
		}
		if err := checkPair(from[0].Queue, s.Queue); err != nil {
			return err
		}
		if s.Weight < 0 || s.Weight > maxWeight {
			return &lua.RangeError{
				Field: fmt.Sprintf("weight of queue %q", s.Queue.name), Value: fmt.Sprint(s.Weight),
				Min: "0", Max: fmt.Sprint(maxWeight),
			}
		}
		if seen[s.Queue.keys.Ready] {
			return fmt.Errorf("queue %q is there twice; give it a Weight", s.Queue.name)
		}
		seen[s.Queue.keys.Ready] = true
	}
	return nil
}

const maxWeight = 1_000_000
