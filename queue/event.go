package queue

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Outcome says what became of a delivery.
type Outcome string

// The outcomes of a delivery.
const (
	// OutcomeAcked: the job is done and deleted.
	OutcomeAcked Outcome = "acked"
	// OutcomeRetried: the job is in the queue again, after a failure, a snooze or the end of the consumer.
	OutcomeRetried Outcome = "retried"
	// OutcomeDead: the job is in the dead set.
	OutcomeDead Outcome = "dead"
	// OutcomeLost: the lease was lost, and another worker has the job or gets it. Or the call that settles the job had
	// no reply, and it is not known what became of the job.
	OutcomeLost Outcome = "lost"
	// OutcomeCancelled: the job was cancelled while the consumer had it, and is deleted.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeExpired: the job was deleted without a run, after its ExpiresAt.
	OutcomeExpired Outcome = "expired"
)

// Event is the end of one delivery in a consumer, for metrics, logs and traces. A job that the consumer returns before
// its handler has begun causes no event. Nor does a job whose worker died, unless that was its last failure. Then the
// consumer or the call of Reclaim that reclaims it reports OutcomeDead, with an error that matches ErrLeaseLost. A
// worker that stalled and did not die may report OutcomeLost for the same delivery.
type Event struct {
	// Tag is Options.Tag: two queues with the same name can differ by it.
	Queue, Tag, ID, Kind string
	// Attempt is Delivery.Attempt.
	Attempt int
	Headers map[string]string
	// Wait is the time from EnqueuedAt to the take, by the server's clock. Run is how long the handler ran, by the
	// clock of the process. Both are 0 for a job that is dead because its worker died.
	Wait, Run time.Duration
	Outcome   Outcome
	// Retry is the delay before the next delivery, for OutcomeRetried; for a declined job the shortest one. A job that
	// expires during the delay is not delivered again.
	Retry time.Duration
	// Err is the handler's error. It is nil for a job that was acked without an error, and for a job that no handler
	// had. An error that matches ErrSnoozed or ErrDeclined is no failure.
	Err error
}

func (e *JobError) follows() string {
	switch e.Outcome {
	case OutcomeDead:
		return "it is dead"
	case OutcomeLost:
		if e.unknown {
			return "it is not known what became of it; if it is not done, another worker gets it when its lease ends"
		}
		return "its lease is lost, another worker gets it"
	case OutcomeAcked:
		return "it is done, acked by its handler"
	case OutcomeCancelled:
		return "it is cancelled"
	}
	if e.Declined > 1 {
		return fmt.Sprintf("it is the %d. such job here, and delivered again", e.Declined)
	}
	if e.Declined == 1 {
		return "it is delivered again, to any consumer; the next such jobs are reported by their count"
	}
	text := fmt.Sprintf("it is delivered again in %v", e.Retry)
	if errors.Is(e.Err, ErrLeaseLost) { // by this process' clock, or of another lease that the handler had
		text = "the server still had its lease, so no other worker had it; " + text
	}
	return text
}

// Unwrap returns the handler's error.
func (e *JobError) Unwrap() error { return e.Err }

// event describes the end of a delivery.
func (o *outcome) event() Event {
	d := o.delivery
	e := Event{
		Queue: d.queue.name, Tag: d.queue.opts.Tag, ID: d.ID, Kind: d.Kind, Attempt: d.Attempt, Headers: d.Headers,
		Wait: max(d.wait, 0), Run: o.run, Err: o.err,
	}
	e.Outcome, e.Retry = o.became()
	if !o.ran {
		e.Err = nil // it says why there was no run
	}
	return e
}

// jobError describes a handler's failure.
func (o *outcome) jobError() error {
	d := o.delivery
	e := &JobError{
		Queue: d.queue.name, Tag: d.queue.opts.Tag, ID: d.ID, Kind: d.Kind, Attempt: d.Attempt, Err: o.err,
		Declined: o.declined,
	}
	e.Outcome, e.Retry = o.became()
	e.unknown = d.settled.Load() == notSettled && d.ends()
	return e
}

// maxMillis is the longest delay that a Duration holds, in ms: the delay itself is rounded up.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

// became returns what became of the delivery, and the delay if its job was returned.
func (o *outcome) became() (Outcome, time.Duration) {
	d := o.delivery
	settled := d.settled.Load()
	switch {
	case settled == settledAcked && o.err == errExpired:
		return OutcomeExpired, 0
	case settled == settledAcked:
		return OutcomeAcked, 0
	case settled == settledReturned:
		return OutcomeRetried, time.Duration(min(d.given.Load().Delay, maxMillis)) * time.Millisecond
	case settled == settledDead:
		return OutcomeDead, 0
	case settled == settledCancelled || d.cancelled.Load():
		return OutcomeCancelled, 0
	}
	return OutcomeLost, 0
}
