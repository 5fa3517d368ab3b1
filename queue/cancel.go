package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// endStates translates the verdicts of queue_cancel and queue_bury.
var endStates = [...]State{Absent, Scheduled, Ready, Leased, Dead}

// Cancel removes jobs from the queue and returns the state that each job had before. Scheduled, ready and dead jobs are
// deleted and release their unique names. An Absent job was not in the queue.
//
// A Leased job gets a mark, which the next Extend of its worker reports. Consume is notified and extends immediately;
// if the notification is lost, it extends within a third of a lease. Then the handler's context ends with the cause
// ErrCancelled. The job is not tried again, whatever the handler returns. It is deleted and its name released when its
// lease ends: by an Ack (its work was done), by a Nack, Return or Bury, or by time.
//
// Cancel does not search the list for a ready job: it deletes the body now, and a Take deletes the entry when it
// reaches it. Until then the queue knows the id. After a lost reply Cancel repeats itself, with the same answer: each
// script for at most 50 s.
//
// Cancel runs one script for up to 200 ids, atomic to other clients. A write refused half-way leaves a job cancelled or
// where it was. A job whose id no call can name counts as Absent: the others are cancelled, and the error is
// lua.ErrTooLarge. Keys: s, b, l, n, d, u, ux, c, o, f, i. Cost: O(log n) for each.
func (q *Queue) Cancel(ctx context.Context, ids ...string) ([]State, error) {
	return q.CancelIn(ctx, []State{Scheduled, Ready, Leased, Dead}, ids...)
}

// CancelIn is Cancel for jobs in one of the states in. A job in another state stays as it is, and its state is
// returned. So a job that was seen ready and that a worker has taken since runs to its end.
func (q *Queue) CancelIn(ctx context.Context, in []State, ids ...string) ([]State, error) {
	p := q.cancelParams()
	p.Only = verdictsOf(in)
	return q.endJobs(ctx, "cancel in", ids, func(ctx context.Context, ids []string, receipt string) ([]int64, error) {
		p.IDs, p.Receipt = ids, receipt
		return queuescript.Cancel(ctx, q.client, p)
	})
}

// endJobs runs a script for each chunk of the ids and returns the states of all. A job whose id no call can name is
// Absent, and the others do not wait for it.
func (q *Queue) endJobs(ctx context.Context, verb string, ids []string,
	script func(ctx context.Context, ids []string, receipt string) ([]int64, error)) (out []State, tooLong error) {
	for chunk := range chunks(ids, maxRows, textSize) {
		var verdicts []int64
		err := q.once(ctx, func(ctx context.Context, receipt string) (err error) {
			verdicts, err = script(ctx, chunk, receipt)
			return err
		})
		switch {
		case errors.Is(err, lua.ErrTooLarge):
			tooLong, verdicts = q.wrap(verb, err), make([]int64, len(chunk))
		case err != nil:
			return out, q.wrap(verb, err)
		}
		for _, v := range verdicts {
			if v < 0 || int(v) >= len(endStates) {
				return out, q.wrap(verb, fmt.Errorf("%w: verdict %d", lua.ErrBadReply, v))
			}
			out = append(out, endStates[v])
		}
	}
	return out, tooLong
}

// verdictsOf returns the digits that a script uses for the states. No job is Absent.
func verdictsOf(in []State) string {
	digits := ""
	for verdict, state := range endStates {
		if state != Absent && slices.Contains(in, state) {
			digits += strconv.Itoa(verdict)
		}
	}
	return digits
}

// Rescheduled is the result of a reschedule.
type Rescheduled struct {
	// Found reports that the job is scheduled, and has the new time.
	Found bool
	// Due is the due time after the call.
	Due time.Time
}

// Reschedule changes when a scheduled job is due, by the server's clock, rounded up to a millisecond. A time that has
// passed makes the job due immediately. A job that is no longer scheduled is not Found, and nothing changes: a job
// cannot be both moved and ready. After a lost reply Reschedule repeats itself, with the same answer, for at most 50 s.
// A copy of a request that arrives after a later call changes nothing.
//
// One script, atomic to other clients. Keys: s, w, i. Cost: O(log n).
func (q *Queue) Reschedule(ctx context.Context, id string, at time.Time) (Rescheduled, error) {
	due, err := encodeDue(at, 0)
	if err != nil {
		return Rescheduled{}, q.wrap("reschedule in", err)
	}
	p := queuescript.RescheduleParams{Scheduled: q.keys.Scheduled, Wake: q.keys.Wake, ID: id, Due: due}
	var r queuescript.RescheduleResult
	err = q.once(ctx, func(ctx context.Context, receipt string) (err error) {
		p.Receipt = receipt
		r, err = queuescript.Reschedule(ctx, q.client, p)
		return err
	})
	if err != nil {
		return Rescheduled{}, q.wrap("reschedule in", err)
	}
	return Rescheduled{Found: r.Found, Due: r.Due.Or(time.Time{})}, nil
}

// BuryJobs moves jobs that no worker has to the dead set, with the first KiB of the reason. It returns the state that
// each job had before. Scheduled and ready jobs are buried: no failure is counted, and their unique names are released.
// A Leased job stays with its worker, which can Bury its delivery. A Dead job stays as it is. An Absent job is not in
// the queue. Requeue makes buried jobs ready again.
//
// Then BuryJobs trims the dead set to Options.Dead. It deletes up to 200 jobs more than have died, so a set far above
// its bounds shrinks call by call. Trim shrinks it in one call.
//
// BuryJobs does not search the list for a ready job: the entry stays until a Take reaches it, and Stats.Ready counts
// it. A Requeue before that returns the job to its former place. After a lost reply BuryJobs repeats itself, with the
// same answer: each script for at most 50 s.
//
// BuryJobs runs one script for up to 200 ids, atomic to other clients, and one for each 200 jobs to trim. A write
// refused half-way can deliver a dead job, never lose one. An id that no call can name is as in Cancel. Keys: s, b, l,
// n, d, u, ux, c, i. Cost: O(log n) for each.
func (q *Queue) BuryJobs(ctx context.Context, reason string, ids ...string) ([]State, error) {
	return q.BuryJobsIn(ctx, []State{Scheduled, Ready}, reason, ids...)
}

// BuryJobsIn is BuryJobs for jobs in one of the states in, which can be Scheduled and Ready. A job in another state
// stays as it is, and its state is returned.
func (q *Queue) BuryJobsIn(ctx context.Context, in []State, reason string, ids ...string) ([]State, error) {
	p := q.buryParams()
	p.Only, p.Reason = verdictsOf(in), reason[:min(len(reason), maxReason)]
	script := func(ctx context.Context, ids []string, receipt string) ([]int64, error) {
		p.IDs, p.Receipt = ids, receipt
		return queuescript.Bury(ctx, q.client, p)
	}
	was, err := q.endJobs(ctx, "bury in", ids, script)
	deaths := 0
	for _, state := range was {
		if (state == Scheduled || state == Ready) && slices.Contains(in, state) {
			deaths++
		}
	}
	if deaths == 0 || err != nil && !errors.Is(err, lua.ErrTooLarge) {
		return was, err
	}
	return was, errors.Join(err, q.trimAfter(ctx, deaths, q.opts.Dead.named()))
}

// Release takes a job from its worker: the lease that Find or Peek has shown ends now, and the job is at the head of
// the ready list, with no failure more. It is for a worker that hangs, and for one that died and whose lease is long.
// The worker's own Ack, Nack or Extend then fails with ErrLeaseLost, as after any lost lease; Consume learns of it when
// it renews, at most a third of the lease later, and ends the context of the handler. Its work may have been done: the
// job is delivered again.
//
// The fence is the Peeked.Fence that was shown. If the lease was renewed or has ended since, Release returns false and
// changes nothing. So it never takes a job from a worker that has got it later. A renewal moves the fence: look again,
// then release. The lease of a cancelled job ends too, and the job is deleted. After a lost reply Release repeats
// itself, with the same answer, for at most 50 s.
//
// One script, atomic to other clients. A write refused half-way can deliver the job twice, never lose it. Keys: l, r,
// s, b, n, d, u, ux, c, w, i, o, f. Cost: O(log n).
func (q *Queue) Release(ctx context.Context, id string, fence int64) (bool, error) {
	p := q.nackParams()
	p.Jobs = []queuescript.NackJob{{ID: id, Fence: fence, EnqueuedAt: -1}} // no time: it is ready as of now
	var verdicts []int64
	err := q.once(ctx, func(ctx context.Context, receipt string) (err error) {
		p.Receipt = receipt
		verdicts, err = queuescript.Nack(ctx, q.client, p)
		return err
	})
	if err == nil && len(verdicts) != 1 {
		err = fmt.Errorf("%w: %d verdicts for 1 job", lua.ErrBadReply, len(verdicts))
	}
	if err != nil {
		return false, q.wrap("release in", err)
	}
	return verdicts[0] != 0, nil
}
