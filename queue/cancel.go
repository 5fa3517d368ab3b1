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
