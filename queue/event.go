package queue

import (
	"errors"
	"fmt"
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
	// OutcomeLost: the lease was lost. Another worker gets the job, or has it.
	OutcomeLost Outcome = "lost"
	// OutcomeCancelled: the job was cancelled while the consumer had it, and is deleted.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeExpired: the job was deleted without a run, after its ExpiresAt.
	OutcomeExpired Outcome = "expired"
)

// Event is the end of one delivery in a consumer, for metrics, logs and traces. A job that a stopping consumer returns
// before its handler has begun causes none.
type Event struct {
	Queue, ID, Kind string
	// Attempt is 1 for the first delivery of the job.
	Attempt int
	Headers map[string]string
	// Wait is the time from EnqueuedAt to the take, by the server's clock; Run that of the handler, by the clock of the
	// process.
	Wait, Run time.Duration
	Outcome   Outcome
	// Retry is the delay before the next delivery, for OutcomeRetried.
	Retry time.Duration
	// Err is the handler's error. It is nil for a job that was acked without one.
	Err error
}

// JobError is what OnError gets when a handler fails: the error with its job and what follows.
type JobError struct {
	Queue, ID, Kind string
	Attempt         int
	// Outcome is what follows, and Retry the delay before the next delivery of a job that is retried.
	Outcome Outcome
	Retry   time.Duration
	// Err is the handler's error.
	Err error
}

func (e *JobError) Error() string {
	kind := ""
	if e.Kind != "" {
		kind = fmt.Sprintf(" of kind %q", e.Kind)
	}
	return fmt.Sprintf("luatomic: queue %q: job %q%s, attempt %d: %v; %s",
		e.Queue, e.ID, kind, e.Attempt, e.Err, e.follows())
}

func (e *JobError) follows() string {
	switch e.Outcome {
	case OutcomeDead:
		return "it is dead"
	case OutcomeLost:
		return "its lease is lost, another worker gets it"
	case OutcomeAcked:
		return "it is done, acked by its handler"
	case OutcomeCancelled:
		return "it is cancelled"
	}
	return fmt.Sprintf("it is delivered again in %v", e.Retry)
}

// Unwrap returns the handler's error.
func (e *JobError) Unwrap() error { return e.Err }

// event describes the end of a delivery.
func (o *outcome) event() Event {
	d := o.delivery
	e := Event{
		Queue: d.queue.name, ID: d.ID, Kind: d.Kind, Attempt: d.Attempt, Headers: d.Headers,
		Wait: max(d.wait, 0), Run: o.run, Err: o.err,
	}
	switch settled := d.settled.Load(); {
	case errors.Is(o.err, errExpired):
		e.Outcome, e.Err = OutcomeExpired, nil
	case settled == settledAcked:
		e.Outcome = OutcomeAcked
	case settled == settledReturned:
		e.Outcome = OutcomeRetried
		if o.nack != nil {
			e.Retry = time.Duration(max(o.nack.Delay, 0)) * time.Millisecond
		}
	case settled == settledDead:
		e.Outcome = OutcomeDead
	case settled == settledCancelled || d.cancelled.Load():
		e.Outcome = OutcomeCancelled
		if !o.ran {
			e.Err = nil
		}
	default:
		e.Outcome = OutcomeLost
	}
	return e
}

// jobError describes a handler's failure.
func (o *outcome) jobError() error {
	d := o.delivery
	e := &JobError{
		Queue: d.queue.name, ID: d.ID, Kind: d.Kind, Attempt: d.Attempt, Err: o.err, Outcome: OutcomeRetried,
		Retry: time.Duration(max(o.nack.Delay, 0)) * time.Millisecond,
	}
	switch settled := d.settled.Load(); {
	case settled == settledAcked:
		e.Outcome = OutcomeAcked
	case settled == settledCancelled || settled == notSettled && d.cancelled.Load():
		e.Outcome = OutcomeCancelled
	case settled == settledDead || settled == notSettled && o.nack.Delay < 0:
		e.Outcome = OutcomeDead
	case settled == settledLost || errors.Is(o.cause, ErrLeaseLost):
		e.Outcome = OutcomeLost
	}
	return e
}
