package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/lease"
	"github.com/luatomic/luatomic/lua"
)

// Delivery is a job leased to a worker. It belongs to the worker until Deadline; after that Ack, Nack, Return, Bury
// and Extend report ErrLeaseLost as soon as the job has been reclaimed. Its methods are safe for concurrent use.
type Delivery struct {
	ID   string
	Body []byte
	// EnqueuedAt is when the job last became ready, by the server's clock.
	EnqueuedAt time.Time
	// Attempt is one more than the failures of the job: 1 for the first delivery, and again for the next one where the
	// job was snoozed or returned without a failure.
	Attempt int
	// Details has the fields of the job that do not travel in its body.
	Details

	queue *Queue
	// fence is the score of the lease in Redis: its end in us.
	fence atomic.Int64
	// unanswered is the last extend while it has no reply: the fence is then the old one or the one that it sets.
	unanswered atomic.Pointer[extension]
	// settled says how the lease was ended; the zero value says that no call has ended it.
	settled atomic.Int32
	// given is how the call that has given the job back asked for that.
	given atomic.Pointer[gen.QueueNackJob]
	// ending is the last call that ends the lease while it has no reply.
	ending atomic.Pointer[ending]
	// cancelled says that an extend has learnt of a Cancel.
	cancelled atomic.Bool
	// finished says that the handler has returned.
	finished atomic.Bool
	// consumer has the delivery, if one has.
	consumer *consumer
	lease    lease.Lease
	taken    time.Time     // by the server's clock
	wait     time.Duration // from EnqueuedAt to the take
	// When the job expires, on the clock of the process: between the two, since a take reads the server's clock between
	// its request and its reply. Zero for never.
	mayExpire, expires time.Time
}

// How a delivery was settled.
const (
	notSettled int32 = iota
	settledAcked
	settledReturned
	settledDead
	settledLost
	settledCancelled
)

// cancel ends the context of the handler. The lease runs out, unless the handler returns before.
func (d *Delivery) cancel() {
	d.cancelled.Store(true)
	d.lease.End(ErrCancelled)
}

// diedIn reports that the delivery has ended in the dead set of q, also by a Bury of its handler.
func (d *Delivery) diedIn(q *Queue) bool { return d.queue == q && d.settled.Load() == settledDead }

// Deadline is when the lease ends, by the server's clock. Each Extend moves it; Consume extends leases by itself.
func (d *Delivery) Deadline() time.Time { return time.UnixMicro(d.fence.Load()) }

// Ack finishes this delivery; see Queue.Ack.
func (d *Delivery) Ack(ctx context.Context) error { return d.queue.Ack(ctx, d) }

// Nack returns this delivery after a failure; see Queue.Nack.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration, reason string) error {
	return d.queue.Nack(ctx, delay, reason, d)
}

// Return returns this delivery without counting a failure; see Queue.Return.
func (d *Delivery) Return(ctx context.Context, delay time.Duration) error {
	return d.queue.Return(ctx, delay, d)
}

// Bury moves this delivery's job to the dead set; see Queue.Bury.
func (d *Delivery) Bury(ctx context.Context, reason string) error {
	return d.queue.Bury(ctx, reason, d)
}

// Extend sets the end of this delivery's lease to that long from now; see Queue.Extend.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	return d.queue.Extend(ctx, lease, d)
}

// LeaseLostError lists the deliveries of a call whose lease was lost. It matches ErrLeaseLost. The call succeeded
// for the other deliveries.
type LeaseLostError struct {
	IDs []string

	deliveries []*Delivery
}

func (e *LeaseLostError) Error() string {
	if len(e.IDs) == 1 {
		return fmt.Sprintf("luatomic: lease lost: job %q; %s", e.IDs[0], leaseCure)
	}
	return fmt.Sprintf("luatomic: lease lost: %d jobs, the first %q; %s", len(e.IDs), e.IDs[0], leaseCure)
}

// Is matches ErrLeaseLost.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// lostError is the error for the deliveries whose verdict is 0, nil if there is none.
func lostError(ds []*Delivery, verdicts []int64) error {
	var e LeaseLostError
	for i, v := range verdicts {
		if v == 0 {
			e.IDs, e.deliveries = append(e.IDs, ds[i].ID), append(e.deliveries, ds[i])
		}
	}
	if len(e.IDs) == 0 {
		return nil
	}
	return &e
}

// Ack finishes the deliveries: their jobs are removed and their unique names released. A delivery whose lease is
// lost is unchanged and named in a LeaseLostError. A job that the queue does not know counts as finished: an
// earlier Ack removed it, perhaps the first attempt of this call, whose reply was lost.
//
// When no attempt of an Ack, Nack, Return or Bury had a reply, the error is lua.ErrOutcomeUnknown, and that call
// decides all the same: the next one on the delivery repeats it first, in a round trip before its own, and learns
// what it did. A call of the same kind has that verdict then; to one of another kind a lease that it has ended is
// lost.
//
// One script for up to MaxBatch deliveries, atomic to other clients. A write refused half-way can leave a job to be
// delivered again, never lose one. Keys: l, b, n, u, ux, o, f. Cost: O(log n) for each.
func (q *Queue) Ack(ctx context.Context, ds ...*Delivery) error {
	return q.inChunks(ds, MaxBatch, func(ds []*Delivery) error {
		return q.endLeases(ctx, ds, nil, q.newAck)
	})
}

// newAck is an ack of the deliveries.
func (q *Queue) newAck(ds []*Delivery, fences []int64) func(context.Context) ([]int64, error) {
	p := q.ackParams()
	p.Jobs = make([]gen.QueueAckJob, len(ds))
	for i, d := range ds {
		p.Jobs[i] = gen.QueueAckJob{ID: d.ID, Fence: fences[i]}
	}
	return func(ctx context.Context) ([]int64, error) {
		verdicts, err := gen.QueueAck(ctx, q.client, p)
		if err != nil {
			return nil, q.wrap("ack on", err)
		}
		for i := range verdicts { // one that is gone was acked before
			verdicts[i] = min(verdicts[i], 1)
		}
		return verdicts, nil
	}
}

// Nack returns the deliveries to the queue after a failure. Without a delay the jobs are ready immediately, behind
// the others; with one they are scheduled, by the server's clock, no later than for their ExpiresAt. Each job counts
// one failure and keeps the first KiB of the reason. A lost lease is named in a LeaseLostError. A job that was
// cancelled meanwhile is deleted instead, without an error. After a lost reply the call repeats itself, with the same
// verdicts, for a minute; see Ack for a call without any reply. A negative delay is lua.ErrOutOfRange.
//
// One script for up to 200 deliveries, atomic to other clients. A write refused half-way can deliver a job twice,
// never lose one. Keys: l, r, s, b, n, d, u, ux, c, w, o, f, i. Cost: O(log n) for each.
func (q *Queue) Nack(ctx context.Context, delay time.Duration, reason string, ds ...*Delivery) error {
	if err := checkDelay(delay); err != nil {
		return q.wrap("nack on", err)
	}
	return q.giveBack(ctx, same(gen.QueueNackJob{Delay: clock.CeilMilli(delay), Counted: true, Reason: reason}), ds)
}

// Return is Nack without a failure: the work was interrupted or postponed. Without a delay the jobs are where they
// were, at the head of the ready list in the order given, each with its EnqueuedAt. More than 200 jobs take several
// scripts, of which the last is at the head.
func (q *Queue) Return(ctx context.Context, delay time.Duration, ds ...*Delivery) error {
	if err := checkDelay(delay); err != nil {
		return q.wrap("return to", err)
	}
	return q.giveBack(ctx, same(gen.QueueNackJob{Delay: clock.CeilMilli(delay)}), ds)
}

// Bury moves the deliveries to the dead set. They keep their bodies and the reason until Requeue, Cancel or Trim.
// Each counts one failure and releases its unique name. A lost lease is named in a LeaseLostError. Keys and cost:
// as Nack.
func (q *Queue) Bury(ctx context.Context, reason string, ds ...*Delivery) error {
	return q.giveBack(ctx, same(gen.QueueNackJob{Delay: -1, Counted: true, Reason: reason}), ds)
}

func checkDelay(delay time.Duration) error {
	if delay < 0 {
		return &lua.RangeError{Field: "delay", Value: delay.String(), Min: "0s"}
	}
	return nil
}

// same treats all deliveries of a call alike.
func same(how gen.QueueNackJob) func(*Delivery) gen.QueueNackJob {
	return func(*Delivery) gen.QueueNackJob { return how }
}

const (
	maxNack   = 200  // jobs in one script, which handles them one by one: keeps it under 2 ms
	maxReason = 1024 // bytes
)

// giveBack ends the leases without finishing the jobs. how says for each job whether it becomes ready, scheduled or
// dead.
func (q *Queue) giveBack(ctx context.Context, how func(*Delivery) gen.QueueNackJob, ds []*Delivery) error {
	return q.inChunks(ds, maxNack, func(ds []*Delivery) error {
		return q.endLeases(ctx, ds, how, func(ds []*Delivery, fences []int64) func(context.Context) ([]int64, error) {
			return q.newNack(how, ds, fences)
		})
	})
}

// newNack gives the deliveries back, each time that it is called under the same receipt: the verdicts are the same.
func (q *Queue) newNack(how func(*Delivery) gen.QueueNackJob, ds []*Delivery,
	fences []int64) func(context.Context) ([]int64, error) {
	p := q.nackParams()
	p.Receipt = q.keys.Receipt(rand.Text()[:16])
	p.Jobs = make([]gen.QueueNackJob, len(ds))
	for i, d := range ds {
		j := how(d)
		j.ID, j.Fence, j.Reason = d.ID, fences[i], j.Reason[:min(len(j.Reason), maxReason)]
		j.EnqueuedAt = d.EnqueuedAt.UnixMilli()
		p.Jobs[i] = j
	}
	return func(ctx context.Context) ([]int64, error) {
		verdicts, err := gen.QueueNack(ctx, q.client, p)
		if err != nil {
			return nil, q.wrap("give back to", err)
		}
		return verdicts, nil
	}
}

// inChunks calls f for each run of at most n deliveries and joins the errors; lost leases of all runs become one
// error.
func (q *Queue) inChunks(ds []*Delivery, n int, f func([]*Delivery) error) error {
	for _, d := range ds {
		if d.queue != q && d.queue.keys != q.keys {
			return fmt.Errorf("luatomic: delivery of job %q is from queue %q, not %q; use a Queue of that name",
				d.ID, d.queue.name, q.name)
		}
	}
	var errs []error
	for chunk := range slices.Chunk(ds, n) {
		errs = append(errs, f(chunk))
	}
	return joinLost(errs...)
}

// joinLost joins errors, each of which may be such a join; their lost leases become one error.
func joinLost(errs ...error) error {
	var lost LeaseLostError
	var others []error
	for _, err := range apart(errs) {
		if e, is := err.(*LeaseLostError); is {
			lost.IDs, lost.deliveries = append(lost.IDs, e.IDs...), append(lost.deliveries, e.deliveries...)
		} else {
			others = append(others, err)
		}
	}
	if len(lost.IDs) > 0 {
		others = append(others, &lost)
	}
	return errors.Join(others...)
}

// apart are the errors, with those of a join in its place.
func apart(errs []error) (out []error) {
	for _, err := range errs {
		if join, is := err.(interface{ Unwrap() []error }); is {
			out = append(out, apart(join.Unwrap())...)
		} else if err != nil {
			out = append(out, err)
		}
	}
	return out
}
