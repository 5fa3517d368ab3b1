package queue

import "github.com/luatomic/luatomic/gen"

// The keys that each script gets, in one place. The callers add the arguments.

func (q *Queue) pushParams() gen.QueuePushParams {
	k := &q.keys
	return gen.QueuePushParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
	}
}

func (q *Queue) pushOneParams() gen.QueuePushOneParams {
	k := &q.keys
	return gen.QueuePushOneParams{
		Ready: k.Ready, Bodies: k.Bodies, Control: k.Control, Wake: k.Wake, Finished: k.Finished,
	}
}

func (q *Queue) pushBareParams() gen.QueuePushBareParams {
	k := &q.keys
	return gen.QueuePushBareParams{
		Ready: k.Ready, Bodies: k.Bodies, Control: k.Control, Wake: k.Wake, Finished: k.Finished,
	}
}

// pushManyQueue returns the keys of one queue in a push to several queues.
func (q *Queue) pushManyQueue() gen.QueuePushManyQueue {
	k := &q.keys
	return gen.QueuePushManyQueue{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
	}
}

// takeQueue returns the keys and the lease of one queue in a take.
func (q *Queue) takeQueue(receipt string) gen.QueueTakeQueue {
	k := &q.keys
	return gen.QueueTakeQueue{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Control: k.Control, Wake: k.Wake, Options: k.Options, Receipt: receipt, Dead: k.Dead, Lease: q.opts.Lease,
	}
}

func (q *Queue) ackParams() gen.QueueAckParams {
	k := &q.keys
	return gen.QueueAckParams{
		Leases: k.Leases, Bodies: k.Bodies, Failures: k.Failures, Unique: k.Unique, Expiry: k.Expiry,
		Options:  k.Options,
		Finished: k.Finished,
	}
}

func (q *Queue) nackParams() gen.QueueNackParams {
	k := &q.keys
	return gen.QueueNackParams{
		Leases: k.Leases, Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Failures: k.Failures,
		Dead: k.Dead, Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake,
		Options: k.Options, Finished: k.Finished,
	}
}

func (q *Queue) reclaimParams() gen.QueueReclaimParams {
	k := &q.keys
	return gen.QueueReclaimParams{
		Leases: k.Leases, Ready: k.Ready, Bodies: k.Bodies, Failures: k.Failures, Dead: k.Dead,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
		Scheduled: k.Scheduled, Finished: k.Finished,
	}
}

func (q *Queue) peekParams() gen.QueuePeekParams {
	k := &q.keys
	return gen.QueuePeekParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Leases: k.Leases, Dead: k.Dead, Bodies: k.Bodies, Failures: k.Failures,
		Options: k.Options,
	}
}

func (q *Queue) cancelParams() gen.QueueCancelParams {
	k := &q.keys
	return gen.QueueCancelParams{
		Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures, Dead: k.Dead,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Options: k.Options, Finished: k.Finished,
	}
}

func (q *Queue) buryParams() gen.QueueBuryParams {
	k := &q.keys
	return gen.QueueBuryParams{
		Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures, Dead: k.Dead,
		Unique: k.Unique, Expiry: k.Expiry, Control: k.Control,
	}
}

func (q *Queue) requeueParams() gen.QueueRequeueParams {
	k := &q.keys
	return gen.QueueRequeueParams{
		Dead: k.Dead, Ready: k.Ready, Bodies: k.Bodies, Failures: k.Failures, Control: k.Control, Wake: k.Wake,
		Unique: k.Unique, Expiry: k.Expiry,
	}
}

func (q *Queue) repairParams() gen.QueueMendParams {
	k := &q.keys
	return gen.QueueMendParams{
		Ready: k.Ready, Scheduled: k.Scheduled, Bodies: k.Bodies, Leases: k.Leases, Failures: k.Failures,
		Dead: k.Dead, Unique: k.Unique, Expiry: k.Expiry, Control: k.Control, Wake: k.Wake, Options: k.Options,
		Finished: k.Finished,
	}
}
