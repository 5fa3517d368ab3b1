package queue

import (
	"time"

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
