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
	// Weight is how often the queue comes first, in proportion to the weights of the others. At most a million. A 0
	// counts as 1 if another queue has a weight. When no queue has a weight, the order is strict.
	Weight int
}

// ConsumeAll runs one consumer on several queues, as Queue.Consume does on one. Concurrency, Grace, Idle and the
// prefetch are for all queues together. Drain ends the consumer when all queues are empty at one moment; only the ready
// jobs of a paused queue are looked for after that. Delivery.Queue says which queue a job is from. Pause, lease,
// failures, dead set, events and counts are each queue's own. A delivery is settled on its own queue.
//
// Without weights the order is strict: a take gets a job from a queue only if each queue before it is paused or has no
// job left that is ready or due. With weights the order is drawn for each take: while all queues have jobs, each queue
// comes first in its share of the takes. If it has too few jobs, the take gets the rest from the others. No job
// overtakes one that was taken before, even if jobs are prefetched; see Queue.Consume.
//
// The queues must share a slot: one client, one prefix and one Options.Tag, as for PushAll. Different tags are a
// lua.ErrCrossSlot, more than MaxSources queues a lua.ErrTooLarge. Both errors come before anything is sent. Other
// errors are those of Queue.Consume. A failure of any queue that no retry can cure ends the consumer.
//
// Cost: one round trip for a take of all queues, atomic to other clients; one Ack for each batch and queue; two
// subscriptions for each queue, on the connection that all share. While the consumer waits, it is a waiter of each
// queue.
func ConsumeAll(ctx context.Context, opts *ConsumeOptions, h Handler, from ...Source) (Consumed, error) {
	if err := checkSources(from); err != nil {
		return Consumed{}, fmt.Errorf("luatomic: consume from %d queues: %w", len(from), err)
	}
	return consume(ctx, opts, h, nil, from...)
}

// Queue is the queue that the job is from.
func (d *Delivery) Queue() *Queue { return d.queue }

// checkSources returns an error if one consumer cannot take from these queues.
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
