package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/internal/decline"
	"github.com/luatomic/luatomic/lua"
)

// ErrSnoozed matches the error of Snooze, which is no failure: OnError does not get it, and no failure is counted. When
// a handler returns ErrSnoozed itself, its job is delivered again after the back-off.
var ErrSnoozed = errors.New("luatomic: snoozed")

// ErrNameHeld reports that a dead job was not requeued, because another job holds its unique name.
var ErrNameHeld = errors.New("luatomic: another job holds the unique name; requeue when that one is done, or cancel " +
	"one")

// NameHeldError lists the jobs that a Requeue has left dead. It matches ErrNameHeld. The call succeeded for the others.
type NameHeldError struct{ Jobs []NameHeld }

func (e *NameHeldError) Error() string {
	first := e.Jobs[0]
	if len(e.Jobs) == 1 {
		return fmt.Sprintf("%v: job %q, held by %q", ErrNameHeld, first.ID, first.Holder)
	}
	return fmt.Sprintf("%v: %d jobs, the first %q, held by %q", ErrNameHeld, len(e.Jobs), first.ID, first.Holder)
}

// Is matches ErrNameHeld.
func (e *NameHeldError) Is(target error) bool { return target == ErrNameHeld }

// ErrDeclined matches the error of Decline, which is no failure.
var ErrDeclined = decline.Err

// ErrTimeout is the cause that ends the context of a handler that has run for Job.Timeout.
var ErrTimeout = errors.New("luatomic: the handler ran longer than the job's Timeout")

// ErrUnknownKind is why a Mux declines a job: it does not serve its kind.
var ErrUnknownKind = errors.New("luatomic: no handler serves this kind of job")

// ErrLayout reports that a later version of this package has changed the layout of the queue. The call has changed
// nothing. The scripts see the version in settings that they read anyway, so the check costs nothing.
var ErrLayout = errors.New("luatomic: the queue has a later layout")

// ErrDataLost says that the server has lost what it had.
var ErrDataLost = errors.New("the server has lost data: it does not have the last report of this process, so jobs " +
	"that were there may be gone; causes are a restart without persistence, a failover, an eviction and FLUSHALL: " +
	"luatomic doctor checks the settings")

// ErrFull reports that a push would exceed the limit of the queue; see Queue.SetLimit.
var ErrFull = errors.New("luatomic: queue is full: its limit is reached; consume jobs, or raise it with SetLimit or " +
	"luatomic queue limit")

// ErrLeaseLost reports that a delivery no longer belongs to the worker: its lease ended and the job was reclaimed, or
// the worker returned the job before.
var ErrLeaseLost = errors.New("luatomic: lease lost: " + leaseCure)

// ErrCancelled is the cause that ends the context of a handler whose job was cancelled; see Queue.Cancel.
var ErrCancelled = errors.New("luatomic: job cancelled")

// ErrTokenReused reports that a push under a token has other jobs than the first push under that token. Nothing was
// added: the answer of the first push would say that these jobs are in.
var ErrTokenReused = errors.New("luatomic: the token belongs to other jobs: use another token, or pass the jobs of " +
	"the first push in their order, with the same ids, kinds, unique names and bodies")

// LeaseLostError lists the deliveries of a call whose lease was lost. It matches ErrLeaseLost. The call succeeded
// for the other deliveries.
type LeaseLostError struct {
	IDs []string

	deliveries []*Delivery
}

func (e *LeaseLostError) Error() string {
	if len(e.IDs) == 1 {
		return fmt.Sprintf("luatomic: lease lost: job %q; %s", e.IDs[0], leaseCure)
	}
	return fmt.Sprintf("luatomic: lease lost: %d jobs, the first %q; %s", len(e.IDs), e.IDs[0], leaseCure)
}

// Is matches ErrLeaseLost.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// JobError is what OnError gets when a handler has failed, or has declined a job, and the job is settled: the error,
// the job, and what became of it.
type JobError struct {
	// Tag is Options.Tag: two queues with the same name can differ by it.
	Queue, Tag, ID, Kind string
	Attempt              int
	// Outcome is what became of the job. It is OutcomeLost if the job could not be settled because the server did not
	// answer. Retry is the delay before the next delivery of a job that is retried.
	Outcome Outcome
	Retry   time.Duration
	// Err is the handler's error, a *lua.PanicError if it panicked.
	Err error
	// Declined is how many jobs of this kind the consumer has declined for this reason, this one included. It is 0 for
	// a failure.
	Declined int

	unknown bool // no reply said that the lease is lost
}

func (e *JobError) Error() string {
	kind := ""
	if e.Kind != "" {
		kind = fmt.Sprintf(" of kind %q", e.Kind)
	}
	text := fmt.Sprintf("luatomic: queue %q: job %q%s, attempt %d: %v; %s",
		e.Queue, e.ID, kind, e.Attempt, e.Err, e.follows())
	if p := new(lua.PanicError); errors.As(e.Err, &p) {
		text += "\n" + string(p.Stack)
	}
	return text
}
