package queue

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// MaxBatchQueues bounds the queues of one PushAll.
const MaxBatchQueues = 64

// QueueJobs are the jobs for one queue of a PushAll.
type Batch struct {
	Queue *Queue
	Jobs  []Job
}

// PushAll adds jobs to several queues, all of them or none, in one round trip. Nobody
// sees the jobs of one queue before those of the others are there. For each queue it is
// as Queue.Push; the results come in the order of the batch, each with the ids and
// positions of its own jobs. Ids and unique names are known to their own queue: the same
// id in two queues is two jobs.
//
// The queues must share a slot, so they have one client, one prefix and one
// QueueOptions.Tag; a queue without a tag, whose name is its tag, may be among those of
// that tag. Other tags: lua.ErrCrossSlot. When one queue has no room, the error is ErrFull
// and names it, and no queue gets any. MaxBatch and MaxBatchBytes bound the whole batch:
// more is lua.ErrTooLarge and is not split, since it would not be one step then. All of
// that is found before anything is sent, but for ErrFull.
//
// Keys: r, s, b, l, n, u, ux, c, w of each queue, and one i of the tag. Cost: O(1) for each
// queue and each ready job, O(log n) for each scheduled one.
func PushAll(ctx context.Context, batch ...Batch) ([]Pushed, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("luatomic: push: %w", err)
	}
	return PushAllOnce(ctx, token.String(), batch...)
}

// PushAllOnce is PushAll under a token of the caller, as Queue.PushOnce: a repeat adds
// nothing to any queue and returns the first one's counts. Give it the same queues in the
// same order, and the same jobs, ids included. The token is known for the longest Receipt
// of the queues, to batches of this prefix and tag only: neither to PushOnce nor to other
// tags.
func PushAllOnce(ctx context.Context, token string, batch ...Batch) ([]Pushed, error) {
	out, err := pushAll(ctx, token, batch)
	if err != nil {
		return nil, fmt.Errorf("luatomic: push to %d queues: %w", len(batch), err)
	}
	return out, nil
}

func pushAll(ctx context.Context, token string, batch []Batch) ([]Pushed, error) {
	if err := lua.CheckName("token", token); err != nil {
		return nil, err
	}
	if err := checkBatch(batch); err != nil {
		return nil, err
	}
	out := make([]Pushed, len(batch))
	p, err := layBatch(batch, out)
	if err != nil || len(p.Jobs) == 0 {
		return out, err
	}
	first := batch[0].Queue
	p.Receipt = keys.Receipt(first.opts.Prefix, first.tag(), token)
	r, err := gen.QueuePushMany(ctx, first.client, p)
	switch {
	case err != nil:
		return nil, err
	case r.Full > int64(len(batch)):
		return nil, fmt.Errorf("%w: queue %d is full, of %d", lua.ErrBadReply, r.Full, len(batch))
	case r.Full > 0:
		return nil, fmt.Errorf("queue %q: %w", batch[r.Full-1].Queue.name, ErrFull)
	case len(r.Counts) != len(batch):
		return nil, fmt.Errorf("the token was used for a batch over %d queues, not %d; use another token", len(r.Counts), len(batch))
	}
	for i, c := range r.Counts {
		out[i].Ready, out[i].Scheduled, out[i].Now = int(c.Ready), int(c.Scheduled), r.Now
	}
	giveDuplicates(out, r.Duplicates)
	return out, nil
}

// giveDuplicates puts each duplicate, whose position is its place among all jobs, into
// the result of its queue.
func giveDuplicates(out []Pushed, all []gen.QueuePushManyDuplicate) {
	queue, start := 0, 0
	for _, d := range all {
		for queue < len(out)-1 && int(d.Position) >= start+len(out[queue].IDs) {
			start += len(out[queue].IDs)
			queue++
		}
		out[queue].Duplicates = append(out[queue].Duplicates, Duplicate{Position: int(d.Position) - start, ID: d.ID})
	}
}

// layBatch puts the jobs into the form of the script, and their ids into out.
func layBatch(batch []Batch, out []Pushed) (gen.QueuePushManyParams, error) {
	p := gen.QueuePushManyParams{Fresh: true, Queues: make([]gen.QueuePushManyQueue, len(batch))}
	total := 0
	for i, part := range batch {
		k := &part.Queue.keys
		p.Queues[i] = gen.QueuePushManyQueue{
			Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
			Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake,
		}
		p.Keep = max(p.Keep, part.Queue.opts.Receipt)
		total += len(part.Jobs)
	}
	if total > MaxBatch {
		return p, &lua.SizeError{What: "jobs", N: total, Max: MaxBatch, Unit: "items"}
	}
	p.Jobs = make([]gen.QueuePushManyJob, 0, total)
	for i, part := range batch {
		out[i].IDs = make([]string, len(part.Jobs))
		for n := range part.Jobs {
			var j gen.QueuePushJob
			if err := lay(&j, &part.Jobs[n]); err != nil {
				return p, fmt.Errorf("queue %q: job %d: %w", part.Queue.name, n, err)
			}
			p.Fresh = p.Fresh && part.Jobs[n].ID == ""
			out[i].IDs[n] = j.ID
			p.Jobs = append(p.Jobs, gen.QueuePushManyJob{Queue: int64(i), ID: j.ID, Due: j.Due, Body: j.Body, Hold: j.Hold})
		}
	}
	return p, nil
}

// checkBatch says why the queues cannot be pushed to in one step.
func checkBatch(batch []Batch) error {
	if len(batch) > MaxBatchQueues {
		return &lua.SizeError{What: "queues", N: len(batch), Max: MaxBatchQueues, Unit: "items"}
	}
	seen := make(map[string]bool, len(batch))
	for i, part := range batch {
		if part.Queue == nil {
			return fmt.Errorf("part %d has no queue", i)
		}
		first, q := batch[0].Queue, part.Queue
		switch {
		case first.opts.Prefix != q.opts.Prefix:
			return fmt.Errorf("queues %q and %q have the prefixes %q and %q; give them one", first.name, q.name, first.opts.Prefix, q.opts.Prefix)
		case first.tag() != q.tag():
			return fmt.Errorf("%w: queues %q and %q have the tags %q and %q; give them one QueueOptions.Tag",
				lua.ErrCrossSlot, first.name, q.name, first.tag(), q.tag())
		case !sameClient(first.client, q.client):
			return fmt.Errorf("queues %q and %q have different clients; make them with one", first.name, q.name)
		case seen[q.keys.Ready]:
			return fmt.Errorf("queue %q is there twice; put its jobs into one part", q.name)
		}
		seen[q.keys.Ready] = true
	}
	return nil
}

// sameClient compares clients that may be of a type that does not compare.
func sameClient(a, b lua.Client) bool {
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// tag is what the queue's slot is made of.
func (q *Queue) tag() string { return cmp.Or(q.opts.Tag, q.name) }
