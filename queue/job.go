package queue

import (
	"errors"
	"strconv"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Job is one piece of work to push.
type Job struct {
	// ID identifies the job. A queue has each id once, and knows it for Options.Receipt after the end of its job: until
	// then a job with this id is a duplicate. Empty means a new id, which begins with a colon and sorts by its time. An
	// ID of the caller may not begin with one. At most 128 bytes.
	ID string
	// Body is the payload. Delivery.Body has the same bytes.
	Body []byte
	// At is when the job is due, by the server's clock, rounded up to a millisecond. The zero time or a time that has
	// passed means now.
	At time.Time
	// Delay, if above zero, makes the job due that long after the push, by the server's clock. At and Delay exclude
	// each other.
	Delay time.Duration
	// Unique, if set, is a name that only one job of the queue can hold at a time, from its push until it is acked,
	// cancelled or dead. Meanwhile another job with the same name is a duplicate. At most 128 bytes.
	Unique string
	// UniqueTTL, if above zero, is the longest time for which the job holds the name, from the push on, by the server's
	// clock. It needs Unique.
	UniqueTTL time.Duration
	// Kind is the kind of work, so that one consumer can serve several kinds; see Kind. At most 128 bytes.
	Kind string
	// Headers travel with the body to each delivery. A trace context is an example. At most 64 headers; names of 1 to
	// 1024 bytes, values of at most 1024. Names that begin with luatomic- are reserved.
	Headers map[string]string
	// MaxFailures, if not zero, replaces Options.MaxFailures for this job. Below zero means that failures never make it
	// dead.
	MaxFailures int
	// Timeout, if above zero, is how long the handler may run, by the clock of the process. Then its context ends with
	// the cause ErrTimeout. Timeout is rounded up to a millisecond. It does not depend on Options.Lease: Consume renews
	// the lease while the handler runs.
	Timeout time.Duration
	// ExpiresAt, if set, is when the job is no longer of use, by the server's clock, rounded down to a millisecond.
	// From then on no worker gets it, and a take deletes it. ExpiresAt must be after At. It is not compared with Delay,
	// which only the server adds to its clock: a job that expires before it is due never runs. A job that is returned
	// with a longer delay, as for a retry, is due when it expires.
	ExpiresAt time.Time

	made bool // the call made the id from a token of its own
}

// Pushed is the result of a push.
type Pushed struct {
	// IDs are the ids of all jobs given, in order, generated ids included.
	IDs []string
	// Ready and Scheduled count the jobs that were added.
	Ready, Scheduled int
	// Duplicates are the jobs that were left out.
	Duplicates []Duplicate
	// Now is the time of the push by the server's clock, and the EnqueuedAt of the ready jobs.
	Now time.Time
}

// Duplicate is a job that was left out of a push because the queue knows its id or another job holds its unique name. A
// queue knows an id that the caller chose, or that came under a token, for Options.Receipt after the end of its job.
type Duplicate struct {
	// Position is the job's place in the call, from 0.
	Position int
	// ID is the id of the existing job, which is unchanged, or of the one that has ended.
	ID string
}

// encodeJob checks a job and writes it in the form of the script. It does not change the job, so that the caller can
// push it again.
func (q *Queue) encodeJob(to *queuescript.PushJob, j *Job) (err error) {
	to.Body = j.Body
	if to.ID, err = idOf(j); err != nil {
		return err
	}
	if to.Extra, err = q.encodeExtra(j); err != nil {
		return err
	}
	to.Due, err = encodeDue(j.At, j.Delay)
	return err
}

// encodeExtra returns what a job has beside its body, in the form of the scripts: the TTL of its unique name in ms, the
// size of the name, the name, then the details. It is empty if the job has none of these.
func (q *Queue) encodeExtra(j *Job) (string, error) {
	if j.Unique == "" && j.UniqueTTL == 0 && j.plain() {
		return "", nil
	}
	if err := j.checkUnique(); err != nil {
		return "", err
	}
	hold := strconv.FormatInt(clock.CeilMilli(j.UniqueTTL), 10) + ":" + strconv.Itoa(len(j.Unique)) + ":" + j.Unique
	if j.plain() {
		return hold, nil
	}
	return hold + j.encodeDetails(), j.checkDetails()
}

func (j *Job) checkUnique() error {
	switch {
	case j.UniqueTTL < 0:
		return &lua.RangeError{Field: "unique TTL", Value: j.UniqueTTL.String(), Min: "0s"}
	case j.Unique != "":
		return keys.CheckSecret("unique", j.Unique)
	case j.UniqueTTL > 0:
		return errors.New("UniqueTTL is set and Unique is not; set both, or leave both empty")
	}
	return nil
}

// encodeDue returns a due time in the form of the scripts: 0 for now, above 0 a Unix time in ms, below 0 a delay in ms.
func encodeDue(at time.Time, delay time.Duration) (int64, error) {
	switch {
	case delay < 0:
		return 0, &lua.RangeError{Field: "delay", Value: delay.String(), Min: "0s"}
	case delay > 0 && !at.IsZero():
		return 0, errors.New("both At and Delay are set; leave one of them zero")
	case delay > 0:
		return -clock.CeilMilli(delay), nil
	case !at.IsZero():
		return scoreOf(at.Add(time.Millisecond - 1)), nil
	}
	return 0, nil
}

// scoreOf returns a time in ms, rounded down, within the range of a score. UnixMilli alone overflows: a time that means
// "never" would become early.
func scoreOf(t time.Time) int64 {
	switch {
	case t.Before(earliest):
		return earliest.UnixMilli()
	case t.After(latest):
		return latest.UnixMilli()
	}
	return t.UnixMilli()
}

// A time of 0 ms means none, so earliest is 1 ms. latest is the last time that a score holds exactly.
var earliest, latest = time.UnixMilli(1), time.UnixMilli(1<<53 - 1)

// bare reports whether the job is only a body.
func (j *Job) bare() bool {
	return j.ID == "" && j.At.IsZero() && j.Delay == 0 && j.Unique == "" && j.UniqueTTL == 0 && j.plain()
}
