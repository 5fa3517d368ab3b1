package queue

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// maxExtend is the number of jobs in one extend.
const maxExtend = 500

// Extend sets the end of the leases to that long from now, by the server's clock; each Delivery's Deadline moves. A
// lost lease is named in a LeaseLostError.
//
// After a lost reply Extend repeats itself and learns the end that the first attempt set. When no attempt had a
// reply, the error is lua.ErrOutcomeUnknown: the leases end at the old time or at the new one. The next call on
// these deliveries, such as Ack, learns which, in a round trip before its own.
//
// One script for up to 500 deliveries: all leases that are held move, or none. Keys: l, i; the receipt lasts as
// long as the lease. Cost: O(log n) for each.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, ds ...*Delivery) error {
	return q.inChunks(ds, maxExtend, func(ds []*Delivery) error {
		if err := q.repeatExtends(ctx, ds); err != nil {
			return err
		}
		e, err := q.newExtension(lease, ds)
		if err != nil {
			return err
		}
		for _, d := range ds {
			d.unanswered.Store(e)
		}
		return q.extend(ctx, e, true)
	})
}

// extension is one extend of some deliveries. To repeat it is to send the same parameters: their receipt makes the
// script set the same fence.
type extension struct {
	params     gen.QueueExtendParams
	deliveries []*Delivery
	sent       time.Time
}

func (q *Queue) newExtension(lease time.Duration, ds []*Delivery) (*extension, error) {
	token, err := uuid.NewV7()
	if err != nil {
		return nil, q.wrap("extend on", err)
	}
	e := &extension{deliveries: ds, sent: time.Now(), params: gen.QueueExtendParams{
		Leases: q.keys.Leases, Receipt: q.keys.Receipt(token.String()), Lease: lease,
		Jobs: make([]gen.QueueExtendJob, len(ds)),
	}}
	for i, d := range ds {
		e.params.Jobs[i] = gen.QueueExtendJob{ID: d.ID, Fence: d.fence.Load()}
	}
	return e, nil
}

// extend sends the extension. It stays unanswered after an attempt that may have run.
func (q *Queue) extend(ctx context.Context, e *extension, first bool) error {
	r, err := gen.QueueExtend(ctx, q.client, e.params)
	if err != nil {
		if first && !errors.Is(err, lua.ErrOutcomeUnknown) {
			e.answered()
		}
		return q.wrap("extend on", err)
	}
	for i, d := range e.deliveries {
		named := e.params.Jobs[i].Fence
		switch {
		case r.Verdicts[i] == 1 && d.fence.CompareAndSwap(named, r.Fence):
			d.end.set(e.sent, e.params.Lease)
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
		if err := q.extend(ctx, e, false); err != nil && !errors.Is(err, ErrLeaseLost) {
			return err
		}
	}
	return nil
}
