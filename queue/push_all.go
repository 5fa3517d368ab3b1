package queue

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// MaxBatchQueues bounds the queues of one PushAll.
const MaxBatchQueues = 64

// Batch is the jobs for one queue of a PushAll.
type Batch struct {
	Queue *Queue
	Jobs  []Job
}

// PushAll adds jobs to several queues in one round trip: all of them or none. No client sees the jobs of one queue
// before those of the others. For each queue PushAll does what Queue.Push does. The results are in the order of the
// batch, each with the ids and positions of its own jobs. Ids and unique names belong to their queue: the same id in
// two queues is two jobs.
//
// The queues must share a slot: one client, one prefix and one Options.Tag. For a queue without a tag, its name counts
// as the tag. Different tags are a lua.ErrCrossSlot. When one queue is full, no queue gets a job and the error is
// ErrFull with the name of the queue, or lua.ErrOutcomeUnknown after a lost reply. MaxBatch, MaxBatchBytes and
// MaxBatchQueues bound the whole batch. A larger batch is a lua.ErrTooLarge. It is not split, because it would not be
// one step then. Only the errors of the limit need the server. The other errors come before anything is sent.
//
// Keys: r, s, b, l, n, u, ux, c, w, o, f of each queue, and one i of the tag. Cost: O(1) for each queue and each ready
// job, O(log n) for each scheduled one.
func PushAll(ctx context.Context, batch ...Batch) ([]Pushed, error) {
	token, err := newID()
	if err != nil {
		return nil, fmt.Errorf("luatomic: push to %d queues: %w", len(batch), err)
	}
	return pushAll(ctx, receipt{token: token, keep: ownReceipt}, batch)
}

// PushAllOnce is PushAll under a token of the caller. A repeat with the same token adds nothing to any queue and
// returns the results of the first call. Pass the same queues and jobs in the same order: others are an ErrTokenReused,
// as in Queue.PushOnce. The id of a job without one is derived from the token and the job's place in the batch. The
// server keeps the token for the longest Options.Receipt of the queues, and all attempts of one call are made in five
// sixths of that time. The token belongs to batches of this prefix and tag: PushOnce and batches of other tags do not
// know it.
func PushAllOnce(ctx context.Context, token string, batch ...Batch) ([]Pushed, error) {
	ids, place, keep := derivedIDs(token), 0, time.Duration(0)
	named, whole := slices.Clone(batch), exact.NewSum()
	for i := range named {
		named[i].Jobs = ids.named(named[i].Jobs, place)
		place += len(named[i].Jobs)
		if q := named[i].Queue; q != nil {
			keep = max(keep, q.opts.Receipt)
			addJobs(whole, q.keys.Ready, named[i].Jobs)
		}
	}
	return pushAll(ctx, receipt{token, keep, whole.String()}, named)
}

func pushAll(ctx context.Context, kept receipt, batch []Batch) ([]Pushed, error) {
	out, err := addAll(ctx, kept, batch)
	if err != nil {
		return nil, fmt.Errorf("luatomic: push to %d queues: %w", len(batch), tokenError(layoutError(err)))
	}
	return out, nil
}

// addAll pushes under a token.
func addAll(ctx context.Context, kept receipt, batch []Batch) ([]Pushed, error) {
	if err := keys.CheckSecret("token", kept.token); err != nil {
		return nil, err
	}
	if err := checkQueues(batch); err != nil {
		return nil, err
	}
	out := make([]Pushed, len(batch))
	p, err := encodeBatch(batch, out)
	if err != nil || len(p.Jobs) == 0 {
		return out, err
	}
	first := batch[0].Queue
	p.Receipt = keys.Receipt(first.opts.Prefix, first.tag(), kept.token)
	p.Keep, p.Digest = kept.keep, kept.digest
	ctx, cancel := withinReceipt(ctx, kept.keep)
	defer cancel()
	var again send.Resent
	r, err := queuescript.PushMany(send.WatchResent(ctx, &again), first.client, p)
	if err == nil {
		err = checkReply(batch, &r, bool(again))
	}
	if err != nil {
		return nil, err
	}
	queues := make([]*Queue, len(batch))
	for i, part := range batch {
		queues[i] = part.Queue
	}
	register(ctx, queues...)
	for i, c := range r.Counts {
		out[i].Ready, out[i].Scheduled, out[i].Now = int(c.Ready), int(c.Scheduled), r.Now
	}
	assignDuplicates(out, r.Duplicates)
	return out, nil
}

// checkReply returns an error if the batch was not added, or if the reply is not about this batch.
func checkReply(batch []Batch, r *queuescript.PushManyResult, again bool) error {
	switch {
	case r.Full > int64(len(batch)):
		return fmt.Errorf("%w: queue %d of %d is full", lua.ErrBadReply, r.Full, len(batch))
	case r.Full > 0:
		return fmt.Errorf("queue %q: %w", batch[r.Full-1].Queue.name, full(again))
	case len(r.Counts) != len(batch):
		return fmt.Errorf("%w: counts of %d queues, not of %d", lua.ErrBadReply, len(r.Counts), len(batch))
	}
	return nil
}

// assignDuplicates moves each duplicate to the result of its queue. The script gives its place among all jobs.
func assignDuplicates(out []Pushed, all []queuescript.PushManyDuplicate) {
	queue, start := 0, 0
	for _, d := range all {
		for queue < len(out)-1 && int(d.Position) >= start+len(out[queue].IDs) {
			start += len(out[queue].IDs)
			queue++
		}
		out[queue].Duplicates = append(out[queue].Duplicates, Duplicate{Position: int(d.Position) - start, ID: d.ID})
	}
}

// encodeBatch writes the jobs in the form of the script, and their ids into out.
func encodeBatch(batch []Batch, out []Pushed) (queuescript.PushManyParams, error) {
	p := queuescript.PushManyParams{Fresh: true, Queues: make([]queuescript.PushManyQueue, len(batch))}
	total := 0
	for i, part := range batch {
		p.Queues[i] = part.Queue.pushManyQueue()
		total += len(part.Jobs)
	}
	if total > MaxBatch {
		return p, &lua.SizeError{What: "jobs", N: total, Max: MaxBatch, Unit: "items"}
	}
	p.Jobs = make([]queuescript.PushManyJob, 0, total)
	for i, part := range batch {
		out[i].IDs = make([]string, len(part.Jobs))
		for n := range part.Jobs {
			var j queuescript.PushJob
			if err := part.Queue.encodeJob(&j, &part.Jobs[n]); err != nil {
				return p, fmt.Errorf("queue %q: job %d: %w", part.Queue.name, n, err)
			}
			p.Fresh = p.Fresh && part.Jobs[n].ID == ""
			out[i].IDs[n] = j.ID
			p.Jobs = append(p.Jobs, queuescript.PushManyJob{
				Queue: int64(i), ID: j.ID, Due: j.Due, Body: j.Body, Extra: j.Extra,
			})
		}
	}
	return p, nil
}

// checkQueues returns an error if one script cannot push to these queues.
func checkQueues(batch []Batch) error {
	if len(batch) > MaxBatchQueues {
		return &lua.SizeError{What: "queues", N: len(batch), Max: MaxBatchQueues, Unit: "items"}
	}
	seen := make(map[string]bool, len(batch))
	for i, part := range batch {
		if part.Queue == nil {
			return fmt.Errorf("part %d has no queue; set Batch.Queue", i)
		}
		if err := checkPair(batch[0].Queue, part.Queue); err != nil {
			return err
		}
		if ready := part.Queue.keys.Ready; seen[ready] {
			return fmt.Errorf("queue %q is in the batch twice; put its jobs into one part", part.Queue.name)
		} else {
			seen[ready] = true
		}
	}
	return nil
}

// checkPair returns an error if one script cannot push to both queues.
func checkPair(a, b *Queue) error {
	switch {
	case a.opts.Prefix != b.opts.Prefix:
		return fmt.Errorf("queues %q and %q have the prefixes %q and %q; give both one queue.Options.Prefix",
			a.name, b.name, a.opts.Prefix, b.opts.Prefix)
	case a.tag() != b.tag():
		return fmt.Errorf("%w: queues %q and %q have the tags %q and %q; give both one queue.Options.Tag",
			lua.ErrCrossSlot, a.name, b.name, a.tag(), b.tag())
	case !sameClient(a.client, b.client):
		return fmt.Errorf("queues %q and %q have different clients; make both with one client", a.name, b.name)
	}
	return nil
}

// sameClient reports whether two clients are the same. Clients of a type that cannot be compared count as different.
func sameClient(a, b lua.Client) bool {
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// tag returns the hash tag of the queue's keys, which chooses its slot.
func (q *Queue) tag() string { return cmp.Or(q.opts.Tag, q.name) }
