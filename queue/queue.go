package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Limits of one call. A larger batch is refused with lua.ErrTooLarge before
// anything is sent; PushSeq splits instead.
const (
	MaxBatch      = 1000    // jobs in one call
	MaxBatchBytes = 1 << 20 // bytes of all ids and bodies in one call, keys included
)

// ErrFull says that a push would pass the queue's limit; see Queue.SetLimit.
var ErrFull = errors.New("luatomic: queue is full")

// ErrLeaseLost says that a delivery is not the worker's any more: its lease ended
// and the job went back to the queue or to another worker.
var ErrLeaseLost = errors.New("luatomic: lease lost")

// QueueOptions are the settings of a Queue. The zero value is ready to use.
type Options struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// Tag, if set, chooses the slot of a Redis Cluster for the queue, so that queues
	// of one tag can be pushed to in one step; see PushAll. Empty: the name is the tag.
	// It is part of the queue: the queues of one name with and without a tag, or with
	// two tags, are different ones. The same rules as for the name.
	Tag string
	// Lease is how long a job taken stays with its worker. Default 30 s.
	Lease time.Duration
	// MaxFailures is the number of failed deliveries after which Reclaim and
	// Consume move a job to the dead set. Default 25; below zero means never.
	MaxFailures int
	// Dead bounds the dead set: Consume trims it after each death. Default: no
	// bounds.
	Dead DeadLimits
	// Receipt is how long the result of a push is kept for a repeat of it.
	// Default 10 minutes.
	Receipt time.Duration
}

// Queue is a queue of jobs, ready and scheduled. It holds no state of its own:
// any number of Queues in any number of processes may share one name. Its methods
// are safe for concurrent use.
type Queue struct {
	client lua.Client
	name   string
	keys   keys.Queue
	opts   Options
}

// NewQueue returns the queue of that name; nil options mean the defaults. The
// name and the tag are 1 to 128 bytes without braces or control characters, else the
// error is lua.ErrBadName. Nothing is sent.
func New(client lua.Client, name string, opts *Options) (*Queue, error) {
	q := &Queue{client: client, name: name}
	if opts != nil {
		q.opts = *opts
	}
	if q.opts.Lease == 0 {
		q.opts.Lease = 30 * time.Second
	}
	if q.opts.MaxFailures == 0 {
		q.opts.MaxFailures = 25
	}
	if q.opts.Receipt == 0 {
		q.opts.Receipt = 10 * time.Minute
	}
	var err error
	if q.keys, err = keys.NewQueue(q.opts.Prefix, q.opts.Tag, name); err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	return q, nil
}

// Name is the name given to NewQueue.
func (q *Queue) Name() string { return q.name }

// Job is one piece of work to push.
type Job struct {
	// ID names the job; the queue knows each id once. Empty means a new UUID of
	// version 7. At most 128 bytes.
	ID string
	// Body is the payload. It comes back byte for byte.
	Body []byte
	// At is when the job is due; the zero time, or one that has passed, means
	// now. It is rounded up to a millisecond.
	At time.Time
	// Delay, if above zero, makes the job due that long after the push, by the
	// server's clock. At and Delay exclude each other.
	Delay time.Duration
	// Unique, if set, is a name that one job of the queue can hold at a time, from
	// its push until it is acked, cancelled or dead. Another job with the same name
	// is a duplicate meanwhile. At most 128 bytes.
	Unique string
	// UniqueTTL, if above zero, lets the hold end by itself that long after the
	// push.
	UniqueTTL time.Duration
}

// Pushed is the result of a push.
type Pushed struct {
	// IDs are the ids of all jobs given, in order, the new ones included.
	IDs []string
	// Ready and Scheduled count the jobs that were added.
	Ready, Scheduled int
	// Duplicates are the jobs that were left out.
	Duplicates []Duplicate
	// Now is the server's time of the push: enqueued_at of the ready jobs.
	Now time.Time
}

// Duplicate is a job that was left out of a push, because the queue knows its id or
// because another job holds its unique name.
type Duplicate struct {
	// Position is the job's place in the call, from 0.
	Position int
	// ID is the id of the job that is there, which was left as it is.
	ID string
}

// Push adds the jobs, ready or scheduled, all of them or none, in one round trip.
// No job is visible before all are. When a reply is lost the push is repeated by
// itself and cannot add a job twice.
//
// No jobs: nothing is sent. More than MaxBatch jobs or MaxBatchBytes:
// lua.ErrTooLarge, before anything is sent; use PushSeq. More jobs than the limit
// of the queue leaves room for: ErrFull, and none goes in. A server over its memory
// limit refuses with lua.ErrNotExecuted.
//
// Keys: r, s, b, l, n, u, ux, c, w, i. Cost: O(1) for a ready job, O(log n) for a scheduled one.
func (q *Queue) Push(ctx context.Context, jobs ...Job) (Pushed, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return Pushed{}, fmt.Errorf("luatomic: push: %w", err)
	}
	return q.PushOnce(ctx, token.String(), jobs...)
}

// PushOnce is Push under a token of the caller: a second PushOnce with the same
// token, from any process, within the receipt time, adds nothing and returns the
// first one's counts. Give it the same jobs, ids included.
func (q *Queue) PushOnce(ctx context.Context, token string, jobs ...Job) (Pushed, error) {
	return q.push(ctx, token, jobs, false)
}

// push adds the jobs; fresh says that their ids, where they are set, are new too.
func (q *Queue) push(ctx context.Context, token string, jobs []Job, fresh bool) (Pushed, error) {
	out, err := q.send(ctx, token, jobs, fresh)
	if err != nil {
		return Pushed{}, fmt.Errorf("luatomic: push to %q: %w", q.name, err)
	}
	return out, nil
}

func (q *Queue) send(ctx context.Context, token string, jobs []Job, fresh bool) (Pushed, error) {
	if len(jobs) == 0 {
		return Pushed{}, nil
	}
	if err := lua.CheckName("token", token); err != nil {
		return Pushed{}, err
	}
	p := gen.QueuePushParams{
		Ready: q.keys.Ready, Scheduled: q.keys.Scheduled, Bodies: q.keys.Bodies, Leases: q.keys.Leases,
		Failures: q.keys.Failures, Unique: q.keys.Unique, Expiry: q.keys.Expiry, Control: q.keys.Control, Wake: q.keys.Wake, Receipt: q.keys.Receipt(token),
		Keep:  q.opts.Receipt,
		Fresh: true,
		Jobs:  make([]gen.QueuePushJob, len(jobs)),
	}
	out := Pushed{IDs: make([]string, len(jobs))}
	for i := range jobs {
		if err := lay(&p.Jobs[i], &jobs[i]); err != nil {
			return Pushed{}, fmt.Errorf("job %d: %w", i, err)
		}
		p.Fresh = p.Fresh && (fresh || jobs[i].ID == "")
		out.IDs[i] = p.Jobs[i].ID
	}
	r, err := gen.QueuePush(ctx, q.client, p)
	if err != nil {
		return Pushed{}, err
	}
	if r.Full {
		return Pushed{}, ErrFull
	}
	out.Ready, out.Scheduled, out.Now = int(r.Ready), int(r.Scheduled), r.Now
	for _, d := range r.Duplicates {
		out.Duplicates = append(out.Duplicates, Duplicate{Position: int(d.Position), ID: d.ID})
	}
	return out, nil
}

// lay checks a job and puts it into the form of the script. The job itself is not
// changed: a caller may push the same values again.
func lay(to *gen.QueuePushJob, j *Job) error {
	to.ID, to.Body = j.ID, j.Body
	if to.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		to.ID = id.String()
	} else if err := lua.CheckName("id", to.ID); err != nil {
		return err
	}
	if j.Unique != "" {
		if err := lua.CheckName("unique", j.Unique); err != nil {
			return err
		}
		if j.UniqueTTL < 0 {
			return &lua.RangeError{Field: "unique TTL", Value: j.UniqueTTL.String(), Min: "0s"}
		}
		to.Hold = strconv.FormatInt(clock.CeilMilli(j.UniqueTTL), 10) + ":" + j.Unique
	}
	var err error
	to.Due, err = due(j.At, j.Delay)
	return err
}

// due puts a time, or a delay from now, into the form of the scripts: 0 for now,
// above 0 Unix ms, below 0 so many ms from now.
func due(at time.Time, delay time.Duration) (int64, error) {
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

// latest is the last time in milliseconds that a score holds exactly. Later ones, which
// stand for never, would run over and be early.
var latest = time.UnixMilli(1<<53 - 1)

// PushSeq pushes jobs from a sequence in batches that keep the limits, holding one
// batch in memory at a time. It yields the result of each batch. Each is all or
// none; an error ends the sequence, and the batches before it are in.
func (q *Queue) PushSeq(ctx context.Context, jobs iter.Seq[Job]) iter.Seq2[Pushed, error] {
	return func(yield func(Pushed, error) bool) {
		var batch []Job
		size, most := 0, MaxBatchBytes-11*len(q.keys.Control)-128 // less the keys, of which there are ten, and the token
		flush := func() bool {
			out, err := q.Push(ctx, batch...)
			batch, size = batch[:0], 0
			return yield(out, err) && err == nil
		}
		for j := range jobs {
			// Room for a generated id and the numbers of each job.
			n := len(j.Body) + max(len(j.ID), 36) + len(j.Unique) + 32
			if len(batch) == MaxBatch || len(batch) > 0 && size+n > most {
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

// chunks calls f for each run of at most n deliveries and joins what was lost.
func (q *Queue) chunks(ds []*Delivery, n int, f func([]*Delivery) error) error {
	for _, d := range ds {
		if d.queue != q && d.queue.keys != q.keys {
			return fmt.Errorf("luatomic: delivery of job %q is from queue %q, not %q", d.ID, d.queue.name, q.name)
		}
	}
	var gone LeaseLostError
	var errs []error
	for part := range slices.Chunk(ds, n) {
		var lost *LeaseLostError
		if err := f(part); errors.As(err, &lost) {
			gone.IDs = append(gone.IDs, lost.IDs...)
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	if len(gone.IDs) > 0 {
		errs = append(errs, &gone)
	}
	return errors.Join(errs...)
}
