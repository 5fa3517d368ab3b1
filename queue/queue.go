package queue

import (
	"context"
	"fmt"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Limits of one call. A larger batch is refused with lua.ErrTooLarge before anything is sent. PushSeq splits its jobs
// instead.
const (
	MaxBatch      = 1000    // jobs in one call
	MaxBatchBytes = 1 << 20 // bytes of all ids and bodies in one call, keys included
)

// defaultDead is how many dead jobs a queue keeps.
const defaultDead = 10_000

const leaseCure = "another worker may have the job; raise queue.Options.Lease, or extend in time"

// Options are the settings of a Queue. The zero value is ready to use.
type Options struct {
	// Prefix comes before every key, such as "app:".
	Prefix string
	// Tag, if set, chooses the slot of the queue on a Redis Cluster, so that PushAll can push to several queues of one
	// tag in one step. If Tag is empty, the name is the tag. The tag is part of the queue's identity: "mail" with and
	// without a tag are two queues. The rules for names apply to tags.
	Tag string
	// Lease is how long a job that was taken belongs to its worker, by the server's clock. Default 30 s.
	Lease time.Duration
	// MaxFailures is the number of failed deliveries after which Reclaim and Consume move a job to the dead set.
	// Default 25. Below zero means never.
	MaxFailures int
	// Dead bounds the dead set. After each death Consume and BuryJobs delete the jobs that died first. Calls of Bury
	// and Reclaim do not. Consume and BuryJobs delete about 200 more jobs than have died, so a set far above its bounds
	// shrinks death by death. Dead.Jobs below zero sets no bound for the number.
	//
	// Consume stores these bounds in Redis, when it begins and after each death. A process whose Dead is zero trims to
	// the stored ones, and so do the consumers of the command luatomic. Without stored ones the zero Dead means 10 000
	// jobs of any size and age. A process with bounds of its own trims to those: give all such processes the same.
	Dead DeadLimits
	// Observe, if set, is called at the end of each delivery in Consume, on a goroutine of the consumer. It is also
	// called for each job that a Reclaim moves to the dead set, on the goroutine of that call. It must neither block
	// nor panic: a panic in a consumer ends the process.
	Observe func(Event)
	// Receipt is how long the server keeps the result of a push under a token of the caller, for a repeat with the same
	// token, and how long the queue knows the id of a job after its end: a minute at least, by the options of the
	// process that ends the job. An id that the push made is known for a minute in any case. It must be longer than the
	// time after which a handler, or another program, pushes the same id again. Each id takes about 140 bytes, so the
	// memory is the rate of jobs with such ids x Receipt x 140 bytes. Default 2 hours, twice the longest back-off.
	Receipt time.Duration
}

// Queue is a queue of jobs, ready and scheduled. Make it once and keep it, because the first push of each Queue adds it
// to the list of Queues. All other state is in Redis: any number of Queues in any number of processes may share one
// name. Its methods are safe for concurrent use.
type Queue struct {
	client lua.Client
	name   string
	keys   keys.Queue
	opts   Options
	keeper *keeper.Keeper
	takers takers

	listing listing
	limited belief // the queue has a limit, so that a push of one takes the longer way
}

// New returns the queue of that name; nil options mean the defaults. Nothing is sent. The name and the tag must have 1
// to 128 bytes and neither braces nor control characters. Otherwise the error is lua.ErrBadName. A client that is nil
// is an error too.
func New(client lua.Client, name string, opts *Options) (*Queue, error) {
	if err := send.CheckClient(client); err != nil {
		return nil, fmt.Errorf("luatomic: queue %q: %w", name, err)
	}
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
	q.opts.Dead.Stored = q.opts.Dead.Stored || q.opts.Dead == DeadLimits{}
	if q.opts.Dead.Jobs == 0 {
		q.opts.Dead.Jobs = defaultDead
	}
	if q.opts.Receipt == 0 {
		q.opts.Receipt = 2 * time.Hour
	}
	q.keeper = keeper.NewKeeper(client, keeper.Causes{Lost: ErrLeaseLost, MaxHold: ErrLeaseLost, Released: errSettled})
	var err error
	if q.keys, err = keys.NewQueue(q.opts.Prefix, q.opts.Tag, name); err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	return q, nil
}

// Name is the name given to New.
func (q *Queue) Name() string { return q.name }

// wrap puts what the call tried, such as "push to", and the name of the queue before an error.
func (q *Queue) wrap(what string, err error) error {
	return fmt.Errorf("luatomic: %s %q: %w", what, q.name, layoutError(err))
}

// Pause stops the queue from giving out jobs, for every consumer. Pushes, promotes and the work on leased jobs
// continue. After a lost reply Pause, Resume and SetLimit repeat themselves for at most 50 s. A copy of a request that
// arrives after a later call changes nothing. One script. Keys: c, w, i. Cost: O(1).
func (q *Queue) Pause(ctx context.Context) error { return q.set(ctx, queuescript.ControlPauseOn, -1) }

// Resume ends a pause and notifies one waiting consumer. One script. Keys: c, w, i. Cost: O(1).
func (q *Queue) Resume(ctx context.Context) error { return q.set(ctx, queuescript.ControlPauseOff, -1) }

// SetLimit sets the limit for the number of jobs that are ready, scheduled or leased. It holds for every producer: a
// push that would exceed it fails with ErrFull. Zero removes the limit. A limit below zero or of 2^53 and more is
// lua.ErrOutOfRange. Existing jobs stay. One script. Keys: c, w, i. Cost: O(1).
func (q *Queue) SetLimit(ctx context.Context, jobs int) error {
	if jobs < 0 {
		return q.wrap("set the limit of", &lua.RangeError{Field: "jobs", Value: fmt.Sprint(jobs), Min: "0"})
	}
	return q.set(ctx, queuescript.ControlPauseKeep, int64(jobs))
}

func (q *Queue) set(ctx context.Context, pause queuescript.ControlPause, limit int64) error {
	p := queuescript.ControlParams{Control: q.keys.Control, Wake: q.keys.Wake, Pause: pause, Limit: limit}
	err := q.once(ctx, func(ctx context.Context, receipt string) error {
		p.Receipt = receipt
		_, err := queuescript.Control(ctx, q.client, p)
		return err
	})
	if err != nil {
		return q.wrap("change the settings of", err)
	}
	return nil
}
