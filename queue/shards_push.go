package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// ShardsPushed is the result of a push to shards.
type ShardsPushed struct {
	// Pushed is the sum of the parts that were added. IDs are the ids of all jobs given, in order. Now is the latest of
	// the shards' times.
	Pushed
	// Token repeats the call with PushOnce.
	Token string
	// Parts are the shards that got jobs or should have, in the order of shards.
	Parts []ShardPushed

	digest string // of all jobs of the call
}

// ShardPushed is the result for one shard: all of its jobs were added, or none.
type ShardPushed struct {
	Shard int
	// Pushed has the ids of this part. The positions of its duplicates are places in the call.
	Pushed
	// Err is nil when the part was added.
	Err error

	jobs   []Job
	places []int
	named  bool // the caller chose the id of a job
}

// Push adds each job to its shard, to all shards concurrently, in one round trip. Each shard gets all of its jobs or
// none. The call as a whole is not atomic. When the error is not nil, Parts says which shards failed and why, and the
// other shards have their jobs. The error names the queues. To add what is missing and nothing twice, call PushOnce
// with the Token of the result and the same jobs, within Options.Receipt or a minute if that is longer.
//
// Bad names (lua.ErrBadName) and more than MaxBatch jobs or about MaxBatchBytes in all (lua.ErrTooLarge) are
// refused before anything is sent to any shard. Keys and cost: as Queue.Push, for each shard.
func (s *Shards) Push(ctx context.Context, jobs ...Job) (ShardsPushed, error) {
	token, err := newID()
	if err != nil {
		return ShardsPushed{}, s.wrap("push to", err)
	}
	return s.add(ctx, token, max(ownReceipt, s.queues[0].opts.Receipt), jobs, true)
}

// PushOnce is Push under a token of the caller. A repeat with the same token and the same jobs within Options.Receipt
// goes to the same shards. Those that added their part return the first result and add nothing, the others try again.
// Each shard that has added its part refuses other jobs with ErrTokenReused; see Queue.PushOnce.
// The id of a job without one is derived from the token and the job's place in the call.
func (s *Shards) PushOnce(ctx context.Context, token string, jobs ...Job) (ShardsPushed, error) {
	return s.add(ctx, token, s.queues[0].opts.Receipt, jobs, false)
}

// add pushes under a token. newToken says that the token was not used before. Then ids derived from it are new and need
// no look-up. With an old token they do: its receipt may have expired while the jobs are still in the queue.
func (s *Shards) add(
	ctx context.Context, token string, keep time.Duration, jobs []Job, newToken bool,
) (ShardsPushed, error) {
	out, err := s.split(token, jobs)
	if err != nil {
		return ShardsPushed{}, s.wrap("push to", err)
	}
	var calls sync.WaitGroup
	for i := range out.Parts {
		p := &out.Parts[i]
		calls.Go(func() { p.add(ctx, s.queues[p.Shard], receipt{token, keep, out.digest}, newToken && !p.named) })
	}
	calls.Wait()
	errs := make([]error, len(out.Parts))
	for i, p := range out.Parts {
		errs[i] = p.Err
		out.Ready, out.Scheduled = out.Ready+p.Ready, out.Scheduled+p.Scheduled
		out.Duplicates = append(out.Duplicates, p.Duplicates...)
		out.Now = later(out.Now, p.Now)
	}
	return out, errors.Join(errs...)
}

// split checks the jobs, derives the missing ids, and divides the jobs by shard.
func (s *Shards) split(token string, jobs []Job) (ShardsPushed, error) {
	out := ShardsPushed{Token: token, Pushed: Pushed{IDs: make([]string, len(jobs))}}
	if err := keys.CheckSecret("token", token); err != nil {
		return out, err
	}
	if len(jobs) > MaxBatch {
		return out, &lua.SizeError{What: "jobs", N: len(jobs), Max: MaxBatch, Unit: "items"}
	}
	base, whole := derivedIDs(token), exact.NewSum()
	parts, size := make([]ShardPushed, len(s.queues)), 4096 // bytes for the keys
	for i, j := range jobs {
		named := j.ID != ""
		base.name(&j, i)
		if err := s.queues[0].encodeJob(&queuescript.PushJob{}, &j); err != nil { // only to check it
			return out, fmt.Errorf("job %d: %w", i, err)
		}
		size += encodedSize(&j)
		shard := s.route(cmp.Or(j.Unique, j.ID))
		addJobs(whole, s.queues[shard].keys.Ready, []Job{j})
		p := &parts[shard]
		p.named = p.named || named
		p.jobs, p.places, p.IDs = append(p.jobs, j), append(p.places, i), append(p.IDs, j.ID)
		out.IDs[i] = j.ID
	}
	out.digest = whole.String()
	if size > MaxBatchBytes {
		return out, &lua.SizeError{What: "jobs", N: size, Max: MaxBatchBytes, Unit: "bytes"}
	}
	for i := range parts {
		if parts[i].Shard = i; len(parts[i].jobs) > 0 {
			out.Parts = append(out.Parts, parts[i])
		}
	}
	return out, nil
}

func (p *ShardPushed) add(ctx context.Context, q *Queue, kept receipt, newIDs bool) {
	ids := p.IDs
	p.Pushed, p.Err = q.add(ctx, kept, p.jobs, newIDs)
	p.IDs = ids
	for i, d := range p.Duplicates {
		if d.Position < len(p.places) { // a foreign receipt can have a place beyond
			p.Duplicates[i].Position = p.places[d.Position]
		}
	}
	p.jobs, p.places = nil, nil // the result need not keep the bodies
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
