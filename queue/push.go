package queue

import (
	"context"
	"fmt"
	"iter"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Push adds the jobs, ready or scheduled, in one round trip: all of them or none. No job is visible before all are.
// After a lost reply Push repeats itself for at most 50 s, and cannot add a job twice.
//
// Without jobs nothing is sent. More than MaxBatch jobs or MaxBatchBytes are a lua.ErrTooLarge, before anything is
// sent; use PushSeq. If the jobs would exceed the limit of the queue, none is added and the error is ErrFull, or
// lua.ErrOutcomeUnknown if a reply was lost before. A server over its memory limit refuses the push with
// lua.ErrNotExecuted.
//
// Ready jobs without ids or options of their own are the common case and have shorter scripts. A call runs such a
// script only if all of its jobs are of that kind. In a queue with a limit such a push takes two round trips, at most
// once a second. Concurrent pushes of one such job share round trips.
//
// Keys: r, s, b, l, n, u, ux, c, w, o, i, and f for ids of the caller; for jobs of that kind r, b, c, w, f. Cost: O(1)
// for each ready job, O(log n) for each scheduled one.
func (q *Queue) Push(ctx context.Context, jobs ...Job) (Pushed, error) {
	if !q.limited.is(time.Now()) && q.allBare(jobs) {
		if out, limited, err := q.pushBare(ctx, jobs); !limited {
			return out, err
		}
	}
	token, err := newID()
	if err != nil {
		return Pushed{}, q.wrap("push to", err)
	}
	return q.add(ctx, receipt{token: token, keep: ownReceipt}, jobs, false)
}

// PushOnce is Push under a token of the caller. A second PushOnce with the same token within Options.Receipt, from any
// process, adds nothing and returns the result of the first. Pass the same jobs in the same order: other ids, kinds,
// unique names or bodies are an ErrTokenReused, and add nothing. Times, limits and headers may differ; those of the
// first call count. The id of a job without one is derived from the token and the job's place in the call. A token that
// breaks the rules for names is a lua.ErrBadName. After a lost reply PushOnce repeats itself for at most five sixths of
// Options.Receipt.
func (q *Queue) PushOnce(ctx context.Context, token string, jobs ...Job) (Pushed, error) {
	jobs = derivedIDs(token).named(jobs, 0)
	whole := exact.NewSum()
	addJobs(whole, q.keys.Ready, jobs)
	return q.add(ctx, receipt{token, q.opts.Receipt, whole.String()}, jobs, false)
}

// receipt is what the server keeps of a push.
type receipt struct {
	token  string
	keep   time.Duration
	digest string // what the jobs are; empty for a token that the call itself has made
}

// add pushes under a token. newIDs says that no id among the jobs can be in the queue, so the script looks up none.
func (q *Queue) add(ctx context.Context, kept receipt, jobs []Job, newIDs bool) (Pushed, error) {
	if len(jobs) == 0 {
		return Pushed{}, nil
	}
	p, ids, err := q.encodePush(kept.token, jobs, newIDs)
	if err != nil {
		return Pushed{}, q.wrap("push to", err)
	}
	p.Keep, p.Digest = kept.keep, kept.digest
	ctx, cancel := withinReceipt(ctx, kept.keep)
	defer cancel()
	var again send.Resent
	r, err := queuescript.Push(send.WatchResent(ctx, &again), q.client, p)
	if err == nil && r.Full {
		err = full(bool(again))
	}
	if err != nil {
		return Pushed{}, q.wrap("push to", tokenError(err))
	}
	register(ctx, q)
	out := Pushed{IDs: ids, Ready: int(r.Ready), Scheduled: int(r.Scheduled), Now: r.Now}
	for _, d := range r.Duplicates {
		out.Duplicates = append(out.Duplicates, Duplicate{Position: int(d.Position), ID: d.ID})
	}
	return out, nil
}

// full returns the error of a push that would exceed the limit. If a reply was lost, a copy of the push may still
// arrive and find space, and no receipt stops it.
func full(again bool) error {
	if again {
		return fmt.Errorf("%w: the reply was lost, and on the repeat: %v", lua.ErrOutcomeUnknown, ErrFull)
	}
	return ErrFull
}

// encodePush checks the jobs and returns the parameters of the script with the ids of the jobs.
func (q *Queue) encodePush(token string, jobs []Job, newIDs bool) (queuescript.PushParams, []string, error) {
	p := q.pushParams()
	if err := keys.CheckSecret("token", token); err != nil {
		return p, nil, err
	}
	p.Receipt, p.Fresh = q.keys.Receipt(token), true
	p.Jobs = make([]queuescript.PushJob, len(jobs))
	ids := make([]string, len(jobs))
	for i := range jobs {
		if err := q.encodeJob(&p.Jobs[i], &jobs[i]); err != nil {
			return p, nil, fmt.Errorf("job %d: %w", i, err)
		}
		p.Fresh = p.Fresh && (newIDs || jobs[i].ID == "")
		ids[i] = p.Jobs[i].ID
	}
	if !p.Fresh {
		p.Finisheds = []string{q.keys.Finished}
	}
	return p, ids, nil
}

// PushSeq pushes the jobs of a sequence in batches within the limits of one call. It holds one batch in memory at a
// time and yields the result of each. Each batch is added as a whole or not at all. An error ends the sequence; the
// batches before it are in the queue. Keys, cost and errors are those of Push, with one round trip for each batch.
func (q *Queue) PushSeq(ctx context.Context, jobs iter.Seq[Job]) iter.Seq2[Pushed, error] {
	return func(yield func(Pushed, error) bool) {
		var batch []Job
		size, limit := 0, q.batchBytes()
		flush := func() bool {
			out, err := q.Push(ctx, batch...)
			batch, size = batch[:0], 0
			return yield(out, err) && err == nil
		}
		for j := range jobs {
			n := encodedSize(&j)
			if len(batch) == MaxBatch || len(batch) > 0 && size+n > limit {
				if !flush() {
					return
				}
			}
			batch, size = append(batch, j), size+n
		}
		if len(batch) > 0 {
			flush()
		}
	}
}

// batchBytes is what MaxBatchBytes leaves for jobs after the twelve keys and the token.
func (q *Queue) batchBytes() int { return MaxBatchBytes - 13*len(q.keys.Control) - 128 }

// encodedSize bounds the bytes of a job in a call: its body, an id that may be generated, its unique name, its details
// and numbers.
func encodedSize(j *Job) int {
	n := len(j.Body) + max(len(j.ID), 36) + len(j.Unique) + 32
	if !j.plain() {
		n += len(j.encodeDetails())
	}
	return n
}

// allBare reports whether the jobs are only bodies, and also small enough a batch for the long script. The long script
// takes them when the queue has a limit, and the errors for too large a batch are its errors.
func (q *Queue) allBare(jobs []Job) bool {
	size := 0
	for i := range jobs {
		if !jobs[i].bare() {
			return false
		}
		size += encodedSize(&jobs[i])
	}
	return len(jobs) == 1 || len(jobs) > 1 && len(jobs) <= MaxBatch && size <= q.batchBytes()
}

// pushBare adds ready jobs with new ids. If the queue has a limit, pushBare adds none and limited is true.
func (q *Queue) pushBare(ctx context.Context, jobs []Job) (out Pushed, limited bool, err error) {
	ids := make([]string, len(jobs))
	for i := range jobs {
		if ids[i], err = idOf(&jobs[i]); err != nil {
			return Pushed{}, false, q.wrap("push to", err)
		}
	}
	ctx, cancel := withinReceipt(ctx, ownReceipt)
	defer cancel()
	var now time.Time
	if len(jobs) == 1 {
		limited, now, err = q.sendOne(ctx, ids[0], jobs[0].Body)
	} else {
		limited, now, err = q.sendBare(ctx, ids, jobs)
	}
	if err != nil {
		return Pushed{}, false, q.wrap("push to", err)
	}
	if limited {
		q.limited.set(time.Now())
		return Pushed{}, true, nil
	}
	register(ctx, q)
	return Pushed{IDs: ids, Ready: len(ids), Now: now}, false, nil
}

func (q *Queue) sendBare(ctx context.Context, ids []string, jobs []Job) (limited bool, now time.Time, err error) {
	p := q.pushBareParams()
	p.Jobs = make([]queuescript.PushBareJob, len(jobs))
	for i := range jobs {
		p.Jobs[i].ID, p.Jobs[i].Body = ids[i], jobs[i].Body
	}
	r, err := queuescript.PushBare(ctx, q.client, p)
	return r.Limited, r.Now, err
}

const (
	// ownReceipt is how long the server remembers a call under a token that the call itself has made, and a finished
	// job.
	ownReceipt = time.Minute
	// unboundedCall is longer than the time for which the runtime repeats a call whose context has no deadline.
	unboundedCall = 15 * time.Second
)

func (q *Queue) sendOne(ctx context.Context, id string, body []byte) (limited bool, now time.Time, err error) {
	p := q.pushOneParams()
	p.ID, p.Body = id, body
	r, err := queuescript.PushOne(ctx, q.client, p)
	return r.Limited, r.Now, err
}

func (b *belief) set(now time.Time)     { b.until.Store(now.Add(time.Second).UnixNano()) }
func (b *belief) is(now time.Time) bool { return now.UnixNano() < b.until.Load() }
