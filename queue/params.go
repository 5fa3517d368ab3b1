package queue

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/luatomic/luatomic/lua"

	queuescript "github.com/luatomic/luatomic/gen/queue"
)

// The keys that each script gets, in one place. The callers add the arguments.

func (q *Queue) pushParams() queuescript.PushParams {
	k := &q.keys
	return queuescript.PushParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
	}
}

func (q *Queue) pushOneParams() queuescript.PushOneParams {
	k := &q.keys
	return queuescript.PushOneParams{
		Ready: k.Ready, Bodies: k.Bodies, Control: k.Control, Wake: k.Wake, Finished: k.Finished,
	}
}

func (q *Queue) pushBareParams() queuescript.PushBareParams {
	k := &q.keys
	return queuescript.PushBareParams{
		Ready: k.Ready, Bodies: k.Bodies, Control: k.Control, Wake: k.Wake, Finished: k.Finished,
	}
}

// pushManyQueue returns the keys of one queue in a push to several queues.
func (q *Queue) pushManyQueue() queuescript.PushManyQueue {
	k := &q.keys
	return queuescript.PushManyQueue{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
		Finished: k.Finished,
	}
}

// takeQueue returns the keys and the lease of one queue in a take.
func (q *Queue) takeQueue(receipt string) queuescript.TakeQueue {
	k := &q.keys
	return queuescript.TakeQueue{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Control: k.Control, Wake: k.Wake, Options: k.Options, Receipt: receipt, Dead: k.Dead, Lease: q.opts.Lease,
	}
}

// known is how long an id of the caller is known after the end of its job.
func (q *Queue) known() time.Duration { return max(q.opts.Receipt, ownReceipt) }

func (q *Queue) ackParams() queuescript.AckParams {
	k := &q.keys
	return queuescript.AckParams{
		Leases: k.Leases, Bodies: k.Bodies, Failures: k.Failures, Unique: k.Unique, Expiry: k.Expiry,
		Options: k.Options, Finished: k.Finished, Known: q.known(),
	}
}

func (q *Queue) nackParams() queuescript.NackParams {
	k := &q.keys
	return queuescript.NackParams{
		Leases: k.Leases, Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Failures: k.Failures,
		Dead: k.Dead, Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake,
		Options: k.Options, Finished: k.Finished, Known: q.known(),
	}
}

func (q *Queue) reclaimParams() queuescript.ReclaimParams {
	k := &q.keys
	return queuescript.ReclaimParams{
		Leases: k.Leases, Ready: k.Ready, Bodies: k.Bodies, Failures: k.Failures, Dead: k.Dead,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
		Scheduled: k.Scheduled, Finished: k.Finished, Known: q.known(),
	}
}

func (q *Queue) peekParams() queuescript.PeekParams {
	k := &q.keys
	return queuescript.PeekParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Leases: k.Leases, Dead: k.Dead, Bodies: k.Bodies, Failures: k.Failures,
		Options: k.Options,
	}
}

func (q *Queue) cancelParams() queuescript.CancelParams {
	k := &q.keys
	return queuescript.CancelParams{
		Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures, Dead: k.Dead,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Options: k.Options, Finished: k.Finished,
		Known: q.known(),
	}
}

func (q *Queue) buryParams() queuescript.BuryParams {
	k := &q.keys
	return queuescript.BuryParams{
		Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures, Dead: k.Dead,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control,
	}
}

func (q *Queue) requeueParams() queuescript.RequeueParams {
	k := &q.keys
	return queuescript.RequeueParams{
		Dead: k.Dead, Ready: k.Ready, Bodies: k.Bodies, Failures: k.Failures, Control: k.Control, Wake: k.Wake,
		Unique: k.Unique, Expiry: k.Expiry,
	}
}

func (q *Queue) repairParams() queuescript.MendParams {
	k := &q.keys
	return queuescript.MendParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Dead: k.Dead, Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
		Finished: k.Finished,
	}
}

// Layout is the version of the keys and formats of a queue that this package reads and writes. docs/layout.md lists
// them.
const Layout = 1

// layoutError adds the cure to the error of a script that found a later layout.
func layoutError(err error) error {
	var refused *lua.Error
	if errors.As(err, &refused) && refused.Outcome == lua.ErrRefused && refused.Code == "LAYOUT" {
		return fmt.Errorf("%w than %d, which is all that this program knows: update luatomic: %w", ErrLayout,
			Layout, err)
	}
	return err
}

// maxIDs bounds the bytes of the ids in one call. Only another program pushes jobs with ids so long that it matters.
const maxIDs = MaxBatchBytes / 2

// chunks yields the items in chunks for one call each, as first has them.
func chunks[T any](items []T, n int, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for more := true; more && len(items) > 0; {
			chunk := first(items, n, size)
			more, items = yield(chunk), items[len(chunk):]
		}
	}
}

// first returns the items of the first call: at most n, and at most maxIDs bytes unless it is one. So an id that no
// call can name is refused alone.
func first[T any](items []T, n int, size func(T) int) []T {
	end, sum := 1, size(items[0])
	for ; end < min(len(items), n) && sum+size(items[end]) <= maxIDs; end++ {
		sum += size(items[end])
	}
	return items[:end:end]
}

// idSize is the size of a delivery among those of a call.
func idSize(d *Delivery) int { return len(d.ID) }

// textSize is the size of an id among those of a call.
func textSize(id string) int { return len(id) }
