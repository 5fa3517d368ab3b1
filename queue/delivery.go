package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/lua"
)

// Delivery is a job leased to a worker. It belongs to the worker until Deadline. When the job has been reclaimed after
// that, Ack, Nack, Return, Bury and Extend return ErrLeaseLost. Its methods are safe for concurrent use.
type Delivery struct {
	ID   string
	Body []byte
	// EnqueuedAt is when the job last became ready, by the server's clock.
	EnqueuedAt time.Time
	// Attempt is one more than the failures of the job: 1 for the first delivery. It is the same for the next delivery
	// if the job was snoozed or returned without a failure.
	Attempt int
	// Details has the fields of the job that do not travel in its body.
	Details

	queue *Queue
	// fence is the score of the lease in Redis: its end in us.
	fence atomic.Int64
	// unanswered is the last extend while it has no reply. The fence is then the old one or the one that the extend
	// sets.
	unanswered atomic.Pointer[extension]
	// settled says how the lease was ended. The zero value says that no call has ended it.
	settled atomic.Int32
	// given is what the call that gave the job back asked for.
	given atomic.Pointer[queuescript.NackJob]
	// ending is the last call that ends the lease while it has no reply.
	ending atomic.Pointer[ending]
	// cancelled says that the reply to an extend reported a Cancel.
	cancelled atomic.Bool
	// finished says that the handler has returned.
	finished atomic.Bool
	// consumer has the delivery, if one has.
	consumer *consumer
	lease    keeper.Entry
	taken    time.Time     // by the server's clock
	wait     time.Duration // from EnqueuedAt to the take
	// The job expires between these two times, by the clock of the process: a take reads the server's clock between its
	// request and its reply. Zero means never.
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

// cancel ends the context of the handler. The lease ends by time, unless the handler returns before.
func (d *Delivery) cancel() {
	d.cancelled.Store(true)
	d.lease.End(ErrCancelled)
}

// diedIn reports that the delivery has ended in the dead set of q, which includes a Bury by its handler.
func (d *Delivery) diedIn(q *Queue) bool { return d.queue == q && d.settled.Load() == settledDead }

// Deadline is when the lease ends, by the server's clock. Each Extend moves it. Consume extends leases by itself.
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

// Extend makes this delivery's lease end after the time lease, counted from now; see Queue.Extend.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	return d.queue.Extend(ctx, lease, d)
}

// lostError returns the error for the deliveries whose verdict is 0, and nil if there are none.
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

// Ack finishes the deliveries: their jobs are removed and their unique names released. If the lease of a delivery is
// lost, its job is unchanged and a LeaseLostError names the delivery. A job that the queue does not know counts as
// finished: an earlier Ack removed it, or the first attempt of this call, whose reply was lost.
//
// When no attempt of an Ack, Nack, Return or Bury had a reply, the error is lua.ErrOutcomeUnknown. That call still
// decides. The next call on the delivery first repeats it, in a round trip before its own, and so learns what it did. A
// next call of the same kind returns that verdict. For a next call of another kind, a lease that the first call has
// ended is lost.
//
// Ack, Nack, Return and Bury also work when ctx has ended before, which is usual in a handler that was interrupted and
// in a deferred call. Then they take up to 10 s.
//
// Ack runs one script for up to MaxBatch deliveries, atomic to other clients. After a write refused half-way a job can
// be delivered again, but is never lost. Keys: l, b, n, u, ux, o, f. Cost: O(log n) for each.
func (q *Queue) Ack(ctx context.Context, ds ...*Delivery) error {
	ctx, cancel := clock.Outlast(ctx)
	defer cancel()
	return q.ack(ctx, ds)
}

func (q *Queue) ack(ctx context.Context, ds []*Delivery) error {
	return q.inChunks(ds, MaxBatch, func(ds []*Delivery) error {
		return q.endLeases(ctx, ds, nil, q.newAck)
	})
}

// newAck returns an ack of the deliveries.
func (q *Queue) newAck(ds []*Delivery, fences []int64) func(context.Context) ([]int64, error) {
	p := q.ackParams()
	p.Jobs = make([]queuescript.AckJob, len(ds))
	for i, d := range ds {
		p.Jobs[i] = queuescript.AckJob{ID: d.ID, Fence: fences[i]}
	}
	return func(ctx context.Context) ([]int64, error) {
		verdicts, err := queuescript.Ack(ctx, q.client, p)
		if err != nil {
			return nil, q.wrap("ack on", err)
		}
		for i := range verdicts { // one that is gone was acked before
			verdicts[i] = min(verdicts[i], 1)
		}
		return verdicts, nil
	}
}

// Nack returns the deliveries to the queue after a failure. Without a delay the jobs are ready immediately, behind the
// others. With a delay they are scheduled, by the server's clock, no later than their ExpiresAt. Each job counts one
// failure and keeps the first KiB of the reason. A LeaseLostError names the deliveries whose lease is lost. A job that
// was cancelled meanwhile is deleted instead, without an error. After a lost reply Nack repeats itself, with the same
// verdicts, for a minute. See Ack for a call without any reply. A negative delay is lua.ErrOutOfRange.
//
// Nack runs one script for up to 200 deliveries, atomic to other clients. A write refused half-way can deliver a job
// twice, never lose one. Keys: l, r, s, b, n, d, u, ux, c, w, o, f, i. Cost: O(log n) for each.
func (q *Queue) Nack(ctx context.Context, delay time.Duration, reason string, ds ...*Delivery) error {
	if err := checkDelay(delay); err != nil {
		return q.wrap("nack on", err)
	}
	return q.give(ctx, queuescript.NackJob{Delay: clock.CeilMilli(delay), Counted: true, Reason: reason}, ds)
}

// Return is Nack without a failure, for work that was interrupted or postponed. Without a delay the jobs go back to the
// head of the ready list, in the order given, each with its EnqueuedAt. More than 200 jobs take several scripts. The
// jobs of the last script are at the head.
func (q *Queue) Return(ctx context.Context, delay time.Duration, ds ...*Delivery) error {
	if err := checkDelay(delay); err != nil {
		return q.wrap("return to", err)
	}
	return q.give(ctx, queuescript.NackJob{Delay: clock.CeilMilli(delay)}, ds)
}

// Bury moves the deliveries to the dead set. The jobs keep their bodies and the reason until Requeue, Cancel or Trim.
// Each counts one failure and releases its unique name. A LeaseLostError names the deliveries whose lease is lost. Keys
// and cost: as Nack.
func (q *Queue) Bury(ctx context.Context, reason string, ds ...*Delivery) error {
	return q.give(ctx, queuescript.NackJob{Delay: -1, Counted: true, Reason: reason}, ds)
}

func checkDelay(delay time.Duration) error {
	if delay < 0 {
		return &lua.RangeError{Field: "delay", Value: delay.String(), Min: "0s"}
	}
	return nil
}

// give gives all deliveries back in the same way, also when ctx has ended before.
func (q *Queue) give(ctx context.Context, how queuescript.NackJob, ds []*Delivery) error {
	ctx, cancel := clock.Outlast(ctx)
	defer cancel()
	return q.giveBack(ctx, same(how), ds)
}

// same returns a function that treats all deliveries of a call alike.
func same(how queuescript.NackJob) func(*Delivery) queuescript.NackJob {
	return func(*Delivery) queuescript.NackJob { return how }
}

const (
	maxNack   = 200  // jobs in one script, which handles them one by one: keeps it under 2 ms
	maxReason = 1024 // bytes
)

// giveBack ends the leases without finishing the jobs. how says for each job whether it becomes ready, scheduled or
// dead.
func (q *Queue) giveBack(ctx context.Context, how func(*Delivery) queuescript.NackJob, ds []*Delivery) error {
	return q.inChunks(ds, maxNack, func(ds []*Delivery) error {
		return q.endLeases(ctx, ds, how, func(ds []*Delivery, fences []int64) func(context.Context) ([]int64, error) {
			return q.newNack(how, ds, fences)
		})
	})
}

// newNack returns a call that gives the deliveries back. Each repeat of the call has the same receipt, so it returns
// the same verdicts.
func (q *Queue) newNack(how func(*Delivery) queuescript.NackJob, ds []*Delivery,
	fences []int64) func(context.Context) ([]int64, error) {
	p := q.nackParams()
	p.Receipt = q.keys.Receipt(rand.Text()[:16])
	p.Jobs = make([]queuescript.NackJob, len(ds))
	for i, d := range ds {
		j := how(d)
		j.ID, j.Fence, j.Reason = d.ID, fences[i], j.Reason[:min(len(j.Reason), maxReason)]
		j.EnqueuedAt = d.EnqueuedAt.UnixMilli()
		p.Jobs[i] = j
	}
	return func(ctx context.Context) ([]int64, error) {
		verdicts, err := queuescript.Nack(ctx, q.client, p)
		if err != nil {
			return nil, q.wrap("give back to", err)
		}
		return verdicts, nil
	}
}

// inChunks calls f for each chunk of at most n deliveries and joins the errors. The lost leases of all chunks become
// one error.
func (q *Queue) inChunks(ds []*Delivery, n int, f func([]*Delivery) error) error {
	for _, d := range ds {
		if d.queue != q && d.queue.keys != q.keys {
			return fmt.Errorf("luatomic: delivery of job %q is from queue %q, not %q; use a Queue of that name",
				d.ID, d.queue.name, q.name)
		}
	}
	var errs []error
	for chunk := range chunks(ds, n, idSize) {
		errs = append(errs, f(chunk))
	}
	return joinLost(errs...)
}

// joinLost joins errors, each of which may be such a join. Their lost leases become one error.
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

// apart returns the errors, with each join replaced by its errors.
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

// expired reports whether the job has expired.
func (d *Delivery) expired() bool { return !d.expires.IsZero() && time.Until(d.expires) <= 0 }

// mayRun reports whether the job has certainly not expired, however long the request of its take was on its way. A job
// that may not run and has not certainly expired is returned: the next take reads the server's clock again.
func (d *Delivery) mayRun() bool { return d.mayExpire.IsZero() || time.Until(d.mayExpire) > 0 }
