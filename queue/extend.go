package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// maxExtend is the number of jobs in one extend.
const maxExtend = 500

// Extend makes the leases end after the time lease, counted from now by the server's clock. It moves the Deadline of
// each Delivery. A LeaseLostError names the deliveries whose lease is lost. The lease of a cancelled job is extended
// too, so that its worker has time to stop. The error then matches ErrCancelled and names the job.
//
// If Consume has the job, it renews the lease before that end, for Options.Lease again.
//
// After a lost reply Extend repeats itself and learns the end that the first attempt set. When no attempt had a reply,
// the error is lua.ErrOutcomeUnknown: the leases end at the old time or at the new one. The next call on these
// deliveries, such as Ack, finds out which, in a round trip before its own.
//
// One script for up to 500 deliveries: all leases that are held move, or none. Keys: l, n, i; the receipt lasts
// as long as the lease. Cost: O(log n) for each.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, ds ...*Delivery) error {
	err := q.inChunks(ds, maxExtend, func(ds []*Delivery) error {
		for {
			if err := q.repeatExtends(ctx, ds); err != nil {
				return err
			}
			e, err := q.newExtension(lease, ds)
			switch {
			case err == nil:
				return e.run(ctx)
			case err != errExtending:
				return err
			}
		}
	})
	if over := cancelledError(ds); over != nil {
		return errors.Join(err, over)
	}
	return err
}

// cancelledError returns an error that names the deliveries whose job was cancelled, if an extend has reported it.
func cancelledError(ds []*Delivery) error {
	var errs []error
	for _, d := range ds {
		if d.cancelled.Load() {
			errs = append(errs, fmt.Errorf("%w: job %q", ErrCancelled, d.ID))
		}
	}
	return errors.Join(errs...)
}

// extension is one extend of some deliveries. A repeat sends the same parameters: their receipt makes the script set
// the same fence.
type extension struct {
	queue      *Queue
	params     queuescript.ExtendParams
	deliveries []*Delivery
	sent       time.Time
	attempts   attempts
}

// attempts counts the attempts of a call. The refusal of one attempt says nothing about the others: another one may
// have run, or may run later.
type attempts struct{ begun, refused atomic.Int32 }

// begin counts an attempt before it is sent.
func (a *attempts) begin() { a.begun.Add(1) }

// none records the failure of an attempt, and reports whether the call has not run because each attempt was refused.
func (a *attempts) none(err error) bool {
	return !errors.Is(err, lua.ErrOutcomeUnknown) && a.refused.Add(1) == a.begun.Load()
}

// beginning guards the step in which a delivery gets an unanswered call, be it one that extends its lease or one that
// ends it. A second call would name a fence that the first is about to move or to remove, and report a lost lease.
var beginning sync.Mutex

// errExtending says that a delivery has an unanswered extension already.
var errExtending = errors.New("luatomic: another extend of the delivery has no reply yet")

// newExtension makes an extension of the deliveries. It is their unanswered extension until it has a reply.
func (q *Queue) newExtension(lease time.Duration, ds []*Delivery) (*extension, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return nil, q.wrap("extend on", err)
	}
	e := &extension{queue: q, deliveries: slices.Clone(ds), sent: time.Now(), params: queuescript.ExtendParams{
		Leases: q.keys.Leases, Failures: q.keys.Failures, Receipt: q.keys.Receipt(token.String()), Lease: lease,
		Jobs: make([]queuescript.ExtendJob, len(ds)),
	}}
	beginning.Lock()
	defer beginning.Unlock()
	for i, d := range ds {
		if d.unanswered.Load() != nil {
			return nil, errExtending
		}
		e.params.Jobs[i] = queuescript.ExtendJob{ID: d.ID, Fence: d.fence.Load()} // after the reply to the last one
	}
	for _, d := range ds {
		d.unanswered.Store(e)
	}
	return e, nil
}

// run sends the extension.
func (e *extension) run(ctx context.Context) error {
	e.attempts.begin()
	r, err := queuescript.Extend(ctx, e.queue.client, e.params)
	return e.replied(r, err)
}

// replied handles the reply. The extension stays unanswered after an attempt that may have run.
func (e *extension) replied(r queuescript.ExtendResult, err error) error {
	if err != nil {
		if e.attempts.none(err) {
			e.answered()
		}
		return e.queue.wrap("extend on", err)
	}
	for i, d := range e.deliveries {
		named := e.params.Jobs[i].Fence
		switch {
		case r.Verdicts[i] != 0 && d.fence.CompareAndSwap(named, r.Fence):
			_ = d.lease.Extended(e.sent, e.params.Lease) // one that is over by the clocks stays over
			if r.Verdicts[i] == 2 {
				d.cancel()
			}
		case d.fence.Load() != named:
			r.Verdicts[i] = 1 // another extend has moved the fence since
		}
	}
	e.answered()
	return lostError(e.deliveries, r.Verdicts)
}

func (e *extension) answered() {
	for _, d := range e.deliveries {
		d.unanswered.CompareAndSwap(e, nil)
	}
}

// repeatExtends repeats the extends that have no reply, so that the fences of the deliveries are known.
func (q *Queue) repeatExtends(ctx context.Context, ds []*Delivery) error {
	for _, d := range ds {
		e := d.unanswered.Load()
		if e == nil {
			continue
		}
		if err := e.run(ctx); err != nil && !errors.Is(err, ErrLeaseLost) {
			return err
		}
	}
	return nil
}
