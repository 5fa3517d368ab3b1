package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// Job is one piece of work to push.
type Job struct {
	// ID names the job; the queue knows each id once. Empty means a new UUID of version 7. At most 128 bytes.
	ID string
	// Body is the payload. Delivery.Body has the same bytes.
	Body []byte
	// At is when the job is due, by the server's clock, rounded up to a millisecond. The zero time, or one that has
	// passed, means now.
	At time.Time
	// Delay, if above zero, makes the job due that long after the push, by the server's clock. At and Delay exclude
	// each other.
	Delay time.Duration
	// Unique, if set, is a name that one job of the queue can hold at a time, from its push until it is acked,
	// cancelled or dead. Meanwhile another job with the same name is a duplicate. At most 128 bytes.
	Unique string
	// UniqueTTL, if above zero, ends the hold that long after the push, by the server's clock, if nothing ends it
	// before.
	UniqueTTL time.Duration
}

// Pushed is the result of a push.
type Pushed struct {
	// IDs are the ids of all jobs given, in order, generated ids included.
	IDs []string
	// Ready and Scheduled count the jobs that were added.
	Ready, Scheduled int
	// Duplicates are the jobs that were left out.
	Duplicates []Duplicate
	// Now is the server's time of the push, and the EnqueuedAt of the ready jobs.
	Now time.Time
}

// Duplicate is a job that was left out of a push, because the queue knows its id or because another job holds its
// unique name.
type Duplicate struct {
	// Position is the job's place in the call, from 0.
	Position int
	// ID is the id of the existing job, which is unchanged.
	ID string
}

// Push adds the jobs, ready or scheduled, all of them or none, in one round trip. No job is visible before all are.
// After a lost reply Push repeats itself, and cannot add a job twice.
//
// Without jobs nothing is sent. More than MaxBatch jobs or MaxBatchBytes: lua.ErrTooLarge, before anything is sent;
// use PushSeq. More jobs than the limit of the queue allows: ErrFull, and none is added. A server over its memory
// limit refuses the push with lua.ErrNotExecuted.
//
// Keys: r, s, b, l, n, u, ux, c, w, i. Cost: O(1) for each ready job, O(log n) for each scheduled one.
func (q *Queue) Push(ctx context.Context, jobs ...Job) (Pushed, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return Pushed{}, q.wrap("push to", err)
	}
	return q.PushOnce(ctx, token.String(), jobs...)
}

// PushOnce is Push under a token of the caller. A second PushOnce with the same token within Options.Receipt, from
// any process, adds nothing and returns the counts of the first. Give it the same jobs, ids included. The token
// follows the rules for names: lua.ErrBadName.
func (q *Queue) PushOnce(ctx context.Context, token string, jobs ...Job) (Pushed, error) {
	return q.add(ctx, token, jobs, false)
}

// add pushes under a token. newIDs says that no id among the jobs can be in the queue, so that the script looks up
// none.
func (q *Queue) add(ctx context.Context, token string, jobs []Job, newIDs bool) (Pushed, error) {
	if len(jobs) == 0 {
		return Pushed{}, nil
	}
	p, ids, err := q.encodePush(token, jobs, newIDs)
	if err != nil {
		return Pushed{}, q.wrap("push to", err)
	}
	r, err := gen.QueuePush(ctx, q.client, p)
	if err == nil && r.Full {
		err = ErrFull
	}
	if err != nil {
		return Pushed{}, q.wrap("push to", err)
	}
	out := Pushed{IDs: ids, Ready: int(r.Ready), Scheduled: int(r.Scheduled), Now: r.Now}
	for _, d := range r.Duplicates {
		out.Duplicates = append(out.Duplicates, Duplicate{Position: int(d.Position), ID: d.ID})
	}
	return out, nil
}

// encodePush checks the jobs and returns the parameters of the script with the ids of the jobs.
func (q *Queue) encodePush(token string, jobs []Job, newIDs bool) (gen.QueuePushParams, []string, error) {
	p := q.pushParams()
	if err := lua.CheckName("token", token); err != nil {
		return p, nil, err
	}
	p.Receipt, p.Keep, p.Fresh = q.keys.Receipt(token), q.opts.Receipt, true
	p.Jobs = make([]gen.QueuePushJob, len(jobs))
	ids := make([]string, len(jobs))
	for i := range jobs {
		if err := encodeJob(&p.Jobs[i], &jobs[i]); err != nil {
			return p, nil, fmt.Errorf("job %d: %w", i, err)
		}
		p.Fresh = p.Fresh && (newIDs || jobs[i].ID == "")
		ids[i] = p.Jobs[i].ID
	}
	return p, ids, nil
}

// encodeJob checks a job and writes it in the form of the script. It does not change the job: a caller may push the
// same values again.
func encodeJob(to *gen.QueuePushJob, j *Job) (err error) {
	to.Body = j.Body
	if to.ID, err = idOf(j); err != nil {
		return err
	}
	if to.Hold, err = encodeHold(j); err != nil {
		return err
	}
	to.Due, err = encodeDue(j.At, j.Delay)
	return err
}

// idOf is the id that the caller chose, or a new one.
func idOf(j *Job) (string, error) {
	if j.ID != "" {
		return j.ID, lua.CheckName("id", j.ID)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// encodeHold is the unique name behind its TTL in ms, or nothing.
func encodeHold(j *Job) (string, error) {
	if j.Unique == "" {
		return "", nil
	}
	if err := lua.CheckName("unique", j.Unique); err != nil {
		return "", err
	}
	if j.UniqueTTL < 0 {
		return "", &lua.RangeError{Field: "unique TTL", Value: j.UniqueTTL.String(), Min: "0s"}
	}
	return strconv.FormatInt(clock.CeilMilli(j.UniqueTTL), 10) + ":" + j.Unique, nil
}

// encodeDue is a due time in the form of the scripts: 0 for now, above 0 a Unix time in ms, below 0 a delay in ms.
func encodeDue(at time.Time, delay time.Duration) (int64, error) {
	switch {
	case delay < 0:
		return 0, &lua.RangeError{Field: "delay", Value: delay.String(), Min: "0s"}
	case delay > 0 && !at.IsZero():
		return 0, errors.New("both At and Delay are set; leave one of them zero")
	case delay > 0:
		return -clock.CeilMilli(delay), nil
	case at.After(latest):
		return latest.UnixMilli(), nil
	case !at.IsZero():
		return max(1, at.Add(time.Millisecond-1).UnixMilli()), nil
	}
	return 0, nil
}

// latest is the last time in milliseconds that a score holds exactly. A later time, which means never, would
// overflow and be early.
var latest = time.UnixMilli(1<<53 - 1)

// PushSeq pushes the jobs of a sequence in batches that keep the limits of one call. It holds one batch in memory
// at a time and yields the result of each. Each batch is all or none. An error ends the sequence; the batches
// before it are in the queue. Keys, cost and errors are those of Push, one round trip for each batch.
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

// batchBytes is what MaxBatchBytes leaves for jobs after the ten keys and the token.
func (q *Queue) batchBytes() int { return MaxBatchBytes - 11*len(q.keys.Control) - 128 }

// encodedSize bounds the bytes of a job in a call: its body, an id that may be generated, its unique name and
// numbers.
func encodedSize(j *Job) int { return len(j.Body) + max(len(j.ID), 36) + len(j.Unique) + 32 }
