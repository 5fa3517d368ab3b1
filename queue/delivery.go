package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// Delivery is a job leased to a worker. It is the worker's until Deadline; ack,
// nack and extend then find that the lease is lost. Its methods are safe for
// concurrent use.
type Delivery struct {
	ID   string
	Body []byte
	// EnqueuedAt is when the job became ready this time, by the server's clock.
	EnqueuedAt time.Time
	// Attempt is 1 for the first delivery of the job.
	Attempt int

	queue *Queue
	// fence is the score of the lease in Redis: its end in us.
	fence atomic.Int64
}

// Deadline is when the lease ends, by the server's clock. It moves when the lease
// is extended, which Consume does by itself.
func (d *Delivery) Deadline() time.Time { return time.UnixMicro(d.fence.Load()) }

// Taken is the result of a take.
type Taken struct {
	Deliveries []*Delivery
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next scheduled job is due, if there is one.
	NextDue lua.Opt[time.Time]
	// NextLapse is when the first lease of the queue ended or will end, as it was
	// before this take. One that has passed is a matter for Reclaim.
	NextLapse lua.Opt[time.Time]
	// Dropped counts entries whose job was cancelled or is gone.
	Dropped int
	// Paused says that the queue gives out no jobs; see Queue.Pause.
	Paused bool
}

// MaxTake is the most jobs that one Take leases, which keeps the script under 2 ms.
const MaxTake = 300

// takeBytes bounds the bodies of one take, so that no reply stalls the server.
const takeBytes = MaxBatchBytes

// Take leases up to max of the oldest ready jobs, at most MaxTake, fewer when their
// bodies pass 1 MiB. Scheduled jobs that are due become ready in the same
// step, so delays work with no poller at all. An empty queue is an empty result.
//
// The jobs of a lost reply come back when their lease ends. Keys: r, s, b, l, n.
// Cost: O(log n) for each job.
func (q *Queue) Take(ctx context.Context, max int) (Taken, error) {
	return q.take(ctx, max, "", 0)
}

// take is Take, and leaves the channel of a waiter where it finds nothing.
func (q *Queue) take(ctx context.Context, max int, waiter string, wait time.Duration) (Taken, error) {
	r, err := gen.QueueTake(ctx, q.client, gen.QueueTakeParams{
		Ready: q.keys.Ready, Scheduled: q.keys.Scheduled, Bodies: q.keys.Bodies,
		Leases: q.keys.Leases, Failures: q.keys.Failures, Control: q.keys.Control, Wake: q.keys.Wake,
		Lease: q.opts.Lease, Max: int64(min(max, MaxTake)), Bytes: takeBytes, Waiter: waiter, Wait: wait,
	})
	if err != nil {
		return Taken{}, fmt.Errorf("luatomic: take from %q: %w", q.name, err)
	}
	out := Taken{Paused: r.Paused, Now: time.UnixMicro(r.Now), NextDue: r.NextDue, NextLapse: micros(r.NextLapse), Dropped: int(r.Dropped)}
	out.Deliveries = make([]*Delivery, len(r.Jobs))
	for i, j := range r.Jobs {
		d := &Delivery{ID: j.ID, Body: j.Body, EnqueuedAt: j.EnqueuedAt, Attempt: int(j.Failures) + 1, queue: q}
		d.fence.Store(r.Fence)
		out.Deliveries[i] = d
	}
	return out, nil
}

// micros is an optional time that the server gave in us.
func micros(at lua.Opt[int64]) lua.Opt[time.Time] {
	us, ok := at.Get()
	if !ok {
		return lua.Opt[time.Time]{}
	}
	return lua.Some(time.UnixMicro(us))
}

// LeaseLostError lists the deliveries of a call that were not the worker's any
// more. It matches ErrLeaseLost. The other deliveries of the call went through.
type LeaseLostError struct {
	IDs []string
}

func (e *LeaseLostError) Error() string {
	if len(e.IDs) == 1 {
		return fmt.Sprintf("%v: job %q", ErrLeaseLost, e.IDs[0])
	}
	return fmt.Sprintf("%v: %d jobs, the first %q", ErrLeaseLost, len(e.IDs), e.IDs[0])
}

// Is matches ErrLeaseLost.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// lost makes the error for the deliveries whose verdict is 0.
func lost(ds []*Delivery, verdicts []int64) error {
	var e LeaseLostError
	for i, v := range verdicts {
		if v == 0 {
			e.IDs = append(e.IDs, ds[i].ID)
		}
	}
	if len(e.IDs) == 0 {
		return nil
	}
	return &e
}

// Ack finishes the deliveries: their jobs are removed. A delivery whose lease is
// lost is named in a LeaseLostError and left alone. A job that the queue does not
// know any more counts as finished: somebody acked it before, perhaps this call's
// first attempt whose reply was lost.
//
// Keys: l, b, n. Cost: O(log n) for each. More than MaxBatch go in several calls.
func (q *Queue) Ack(ctx context.Context, ds ...*Delivery) error {
	return q.chunks(ds, MaxBatch, func(ds []*Delivery) error {
		p := gen.QueueAckParams{
			Leases: q.keys.Leases, Bodies: q.keys.Bodies, Failures: q.keys.Failures,
			Unique: q.keys.Unique, Expiry: q.keys.Expiry,
			Jobs: make([]gen.QueueAckJob, len(ds)),
		}
		for i, d := range ds {
			p.Jobs[i] = gen.QueueAckJob{ID: d.ID, Fence: d.fence.Load()}
		}
		verdicts, err := gen.QueueAck(ctx, q.client, p)
		if err != nil {
			return fmt.Errorf("luatomic: ack on %q: %w", q.name, err)
		}
		return lost(ds, verdicts)
	})
}

// Nack gives the deliveries back to be delivered again after the delay. Each counts
// one failure, with the reason, of which 1 KiB is kept. A lost lease is named in a
// LeaseLostError.
//
// Keys: l, r, s, b, n, d, u, ux, c. Cost: O(log n) for each.
func (q *Queue) Nack(ctx context.Context, delay time.Duration, reason string, ds ...*Delivery) error {
	if delay < 0 {
		return fmt.Errorf("luatomic: nack on %q: %w", q.name, &lua.RangeError{Field: "delay", Value: delay.String(), Min: "0s"})
	}
	return q.nack(ctx, alike(gen.QueueNackJob{Delay: clock.CeilMilli(delay), Counted: true, Reason: reason}), ds)
}

// Return gives the deliveries back without counting a failure: work that was
// interrupted, or put off. Else it is as Nack.
func (q *Queue) Return(ctx context.Context, delay time.Duration, ds ...*Delivery) error {
	if delay < 0 {
		return fmt.Errorf("luatomic: return to %q: %w", q.name, &lua.RangeError{Field: "delay", Value: delay.String(), Min: "0s"})
	}
	return q.nack(ctx, alike(gen.QueueNackJob{Delay: clock.CeilMilli(delay)}), ds)
}

// Bury moves the deliveries to the dead set, where they stay with their bodies and
// the reason until Requeue, Cancel or Trim. It counts one failure for each and
// releases their unique names. A lost lease is named in a LeaseLostError.
func (q *Queue) Bury(ctx context.Context, reason string, ds ...*Delivery) error {
	return q.nack(ctx, alike(gen.QueueNackJob{Delay: -1, Counted: true, Reason: reason}), ds)
}

// maxNack keeps the script under 2 ms: it works job by job.
const (
	maxNack   = 200
	maxReason = 1024
)

func alike(how gen.QueueNackJob) func(*Delivery) gen.QueueNackJob {
	return func(*Delivery) gen.QueueNackJob { return how }
}

func (q *Queue) nack(ctx context.Context, how func(*Delivery) gen.QueueNackJob, ds []*Delivery) error {
	return q.chunks(ds, maxNack, func(ds []*Delivery) error {
		p := gen.QueueNackParams{
			Leases: q.keys.Leases, Ready: q.keys.Ready, Scheduled: q.keys.Scheduled, Bodies: q.keys.Bodies,
			Failures: q.keys.Failures, Dead: q.keys.Dead, Unique: q.keys.Unique, Expiry: q.keys.Expiry, Control: q.keys.Control, Wake: q.keys.Wake,
			Jobs: make([]gen.QueueNackJob, len(ds)),
		}
		for i, d := range ds {
			j := how(d)
			j.ID, j.Fence, j.Reason = d.ID, d.fence.Load(), j.Reason[:min(len(j.Reason), maxReason)]
			p.Jobs[i] = j
		}
		verdicts, err := gen.QueueNack(ctx, q.client, p)
		if err != nil {
			return fmt.Errorf("luatomic: give back to %q: %w", q.name, err)
		}
		return lost(ds, verdicts)
	})
}

// maxExtend is the number of jobs that one extend takes.
const maxExtend = 500

// Extend lets the leases end that long from now; each Delivery's Deadline moves. An
// ack of the same delivery that runs at that moment may find its lease lost. A
// lost lease is named in a LeaseLostError.
//
// It is not repeated when a reply is lost: lua.ErrOutcomeUnknown then means that
// the leases end at the old time or the new one, and if it is the new one, an ack
// will find them lost. Keys: l. Cost: O(log n) for each.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, ds ...*Delivery) error {
	return q.chunks(ds, maxExtend, func(ds []*Delivery) error {
		p := gen.QueueExtendParams{Leases: q.keys.Leases, Lease: lease, Jobs: make([]gen.QueueExtendJob, len(ds))}
		for i, d := range ds {
			p.Jobs[i] = gen.QueueExtendJob{ID: d.ID, Fence: d.fence.Load()}
		}
		r, err := gen.QueueExtend(ctx, q.client, p)
		if err != nil {
			return fmt.Errorf("luatomic: extend on %q: %w", q.name, err)
		}
		for i, v := range r.Verdicts {
			if v == 1 {
				ds[i].fence.Store(r.Fence)
			}
		}
		return lost(ds, r.Verdicts)
	})
}

// Reclaimed is the result of a reclaim.
type Reclaimed struct {
	// Returned jobs are ready again, Buried ones have failed too often.
	Returned, Buried int
	// Now is the server's time, NextLapse when the next lease ends.
	Now       time.Time
	NextLapse lua.Opt[time.Time]
}

// maxReclaim keeps the script under 2 ms: it works job by job.
const maxReclaim = 200

// Reclaim takes back up to 200 jobs whose lease has ended because their
// worker died or stalled. Consume does it by itself; a program that only takes
// should call it when Taken.NextLapse has passed.
//
// Keys: l, r, b, n, d. Cost: O(log n) for each job.
func (q *Queue) Reclaim(ctx context.Context) (Reclaimed, error) {
	r, err := gen.QueueReclaim(ctx, q.client, gen.QueueReclaimParams{
		Leases: q.keys.Leases, Ready: q.keys.Ready, Bodies: q.keys.Bodies,
		Failures: q.keys.Failures, Dead: q.keys.Dead, Unique: q.keys.Unique, Expiry: q.keys.Expiry, Control: q.keys.Control, Wake: q.keys.Wake,
		Max: maxReclaim, MaxFailures: int64(max(q.opts.MaxFailures, 0)),
	})
	if err != nil {
		return Reclaimed{}, fmt.Errorf("luatomic: reclaim on %q: %w", q.name, err)
	}
	return Reclaimed{Returned: int(r.Returned), Buried: int(r.Buried), Now: time.UnixMicro(r.Now), NextLapse: micros(r.NextLapse)}, nil
}

// Ack finishes this delivery; see Queue.Ack.
func (d *Delivery) Ack(ctx context.Context) error { return d.queue.Ack(ctx, d) }

// Nack gives this delivery back after a failure; see Queue.Nack.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration, reason string) error {
	return d.queue.Nack(ctx, delay, reason, d)
}

// Return gives this delivery back without counting a failure; see Queue.Return.
func (d *Delivery) Return(ctx context.Context, delay time.Duration) error {
	return d.queue.Return(ctx, delay, d)
}

// Bury moves this delivery's job to the dead set; see Queue.Bury.
func (d *Delivery) Bury(ctx context.Context, reason string) error {
	return d.queue.Bury(ctx, reason, d)
}

// Extend lets this delivery's lease end that long from now; see Queue.Extend.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	return d.queue.Extend(ctx, lease, d)
}
