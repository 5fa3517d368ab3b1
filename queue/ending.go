package queue

import (
	"context"
	"fmt"
	"slices"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// ending is one call that ends the leases of some deliveries. The deliveries keep it until it has a reply: the next
// call on them repeats it first, and so learns what it did.
type ending struct {
	deliveries []*Delivery
	fences     []int64
	how        func(*Delivery) queuescript.NackJob // nil for an ack
	send       func(context.Context) ([]int64, error)
	attempts   attempts
}

// newCall makes a call that ends the leases with those fences. The function send sends the same request each time. Its
// verdicts are 0 for a lost lease, 1 for a lease that it has ended, 2 for the lease of a cancelled job, and 3 for the
// lease of a job that is dead because it was declined for too long.
type newCall func(ds []*Delivery, fences []int64) (send func(context.Context) ([]int64, error))

// newEnding makes a call that ends the leases. It is the unanswered call of the deliveries until it has a reply.
// newEnding returns nil if one of them has got such a call since the last look.
func newEnding(ds []*Delivery, how func(*Delivery) queuescript.NackJob, call newCall) *ending {
	e := &ending{deliveries: slices.Clone(ds), fences: make([]int64, len(ds)), how: how} // ds is the caller's
	for i, d := range ds {
		e.fences[i] = d.fence.Load()
	}
	e.send = call(ds, e.fences)
	beginning.Lock()
	defer beginning.Unlock()
	if slices.ContainsFunc(ds, (*Delivery).ends) {
		return nil
	}
	for _, d := range ds {
		d.ending.Store(e)
	}
	return e
}

// ends reports whether the delivery has a call that ends the lease and has no reply yet.
func (d *Delivery) ends() bool { return d.ending.Load() != nil }

// run makes an attempt and records what became of the deliveries. The ending stays unanswered after an attempt that may
// have run.
func (e *ending) run(ctx context.Context) ([]int64, error) {
	e.attempts.begin()
	verdicts, err := e.send(ctx)
	if err == nil && len(verdicts) != len(e.deliveries) {
		err = fmt.Errorf("%w: %d verdicts for %d deliveries", lua.ErrBadReply, len(verdicts), len(e.deliveries))
	}
	if err != nil {
		if e.attempts.none(err) {
			e.answered()
		}
		return nil, err
	}
	for i, d := range e.deliveries {
		switch verdicts[i] {
		case 0:
		case 2:
			d.settled.Store(settledCancelled)
		case 3:
			e.settle(d, settledDead)
		default:
			e.settle(d, settledBy(e.how, d))
		}
	}
	e.answered()
	return verdicts, nil
}

// settle records that the call has ended the lease.
func (e *ending) settle(d *Delivery, as int32) {
	if e.how != nil {
		how := e.how(d)
		d.given.Store(&how)
	}
	d.settled.Store(as)
	if !d.finished.Load() {
		d.lease.Forget() // a handler that has settled its job may go on
	}
}

// settledBy returns the state of a delivery after such a call.
func settledBy(how func(*Delivery) queuescript.NackJob, d *Delivery) int32 {
	switch {
	case how == nil:
		return settledAcked
	case how(d).Delay < 0:
		return settledDead
	}
	return settledReturned
}

// settledAs reports whether such a call has this outcome.
func settledAs(settled int32, how func(*Delivery) queuescript.NackJob, d *Delivery) bool {
	return settled == settledBy(how, d) || settled == settledDead && how != nil && how(d).Patience > 0
}

func (e *ending) answered() {
	for _, d := range e.deliveries {
		d.ending.CompareAndSwap(e, nil)
	}
}

// maxEndings bounds how often a call that ends leases is made again because an extend has moved their fences or another
// call ends one of them.
const maxEndings = 10

// errMoving reports that other calls interfered with each attempt to end a lease.
var errMoving = fmt.Errorf("other calls extended or ended leases during each of %d attempts; make fewer", maxEndings)

// endLeases ends the leases. An extend that runs at the same moment, or whose reply was lost, moves a fence: then
// endLeases makes another call, with the new fence. It also makes another call after one that ends a lease at the same
// moment.
func (q *Queue) endLeases(ctx context.Context, ds []*Delivery, how func(*Delivery) queuescript.NackJob,
	call newCall) error {
	var errs []error
	for range maxEndings {
		err := q.repeatExtends(ctx, ds)
		if err == nil {
			ds, err = repeatEndings(ctx, ds, how)
		}
		if err != nil {
			return joinLost(append(errs, err)...)
		}
		moved, err := endOnce(ctx, ds, how, call)
		errs = append(errs, err)
		if ds = moved; len(ds) == 0 {
			return joinLost(errs...)
		}
	}
	return joinLost(append(errs, q.wrap("end leases of", errMoving))...)
}

// endOnce makes one call to end the leases, and returns the deliveries whose fence has moved.
func endOnce(ctx context.Context, ds []*Delivery, how func(*Delivery) queuescript.NackJob,
	call newCall) (moved []*Delivery, _ error) {
	if len(ds) == 0 {
		return nil, nil
	}
	e := newEnding(ds, how, call)
	if e == nil {
		return ds, nil
	}
	verdicts, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	for i, d := range ds {
		switch {
		case verdicts[i] != 0:
		case d.unanswered.Load() != nil || d.fence.Load() != e.fences[i]:
			moved = append(moved, d)
			verdicts[i] = 1 // the next call has the verdict
		default:
			d.settled.CompareAndSwap(notSettled, settledLost)
		}
	}
	return moved, lostError(ds, verdicts)
}

// repeatEndings repeats the calls that have no reply, and returns the deliveries whose leases are still to be ended. A
// repeat may have ended the other leases in the same way, or found the jobs cancelled.
func repeatEndings(ctx context.Context, ds []*Delivery, how func(*Delivery) queuescript.NackJob) ([]*Delivery, error) {
	if !slices.ContainsFunc(ds, (*Delivery).ends) {
		return ds, nil
	}
	unanswered := make([]*ending, len(ds)) // one may be that of several deliveries
	for i, d := range ds {
		unanswered[i] = d.ending.Load()
	}
	var left []*Delivery
	for i, d := range ds {
		if e := unanswered[i]; e != nil && d.ending.Load() == e {
			if _, err := e.run(ctx); err != nil {
				return nil, err
			}
		}
		settled := d.settled.Load()
		if unanswered[i] == nil || settled != settledCancelled && !settledAs(settled, how, d) {
			left = append(left, d)
		}
	}
	return left, nil
}
