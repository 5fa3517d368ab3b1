package sidekiq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/decline"
)

// ErrDeclined matches the error of Decline, which is no failure.
var ErrDeclined = decline.Err

// A Handler returns Decline when it has not begun a job because its process cannot perform it, but another one may: a
// class that this program does not know, a machine without the hardware. Handlers declines jobs of other classes, and
// Work declines jobs with a field of ErrMiddleware.
//
// The job goes to Schedule with the bytes that it had, except that a queue field that names another queue is replaced.
// It counts no failure, and its retry and dead fields do not matter. A poller of Ruby or Go puts it back into its queue
// after 1 s at first, then after as long as it has been declined, a minute at most, by the server's clock. A Ruby
// process that waits for jobs of the queue then gets it, before the Go processes that wait. A job that has only been
// declined for WorkOptions.Declined goes to the dead set, with the reason in its error_message and error_class.
//
// A failure ends that row, and so does an hour in which no Go process declines the job.
func Decline(err error) error { return decline.New(err) }

// isDecline reports whether a handler has declined its job. A choice of what follows a failure is a failure.
func isDecline(err error) bool {
	var v *verdict
	var r *retryIn
	return errors.Is(err, ErrDeclined) && !errors.As(err, &v) && !errors.As(err, &r)
}

// declinedJob is the error that OnError gets for a declined job.
type declinedJob struct {
	err   error // of Decline
	queue string
	n     int // how many such jobs this process has declined
}

func (e *declinedJob) Error() string {
	return fmt.Sprintf("%v; this is no failure, and the job is unchanged (%d so far): queue %q gets it again, and a "+
		"Ruby process that serves the queue, or another Go program, may perform it then", e.err, e.n, e.queue)
}

func (e *declinedJob) Unwrap() error { return e.err }

// deadJob is the error that OnError gets for a job that no process could perform.
type deadJob struct {
	err   error     // of Decline
	since time.Time // of the first decline; zero for a job that no process can perform
}

func (e *deadJob) Error() string { return e.err.Error() + "; it is in the dead set" + e.age() }
func (e *deadJob) Unwrap() error { return e.err }

// age is the reason's text for the time for which a job was declined.
func (e *deadJob) age() string {
	if e.since.IsZero() {
		return ""
	}
	return ", declined since " + e.since.UTC().Format(time.RFC3339)
}

// decline gives a job back that its handler has not begun.
func (w *worker) decline(id int64, j *inFlight, cause error) outcome {
	if j.job.pushable() {
		if n, report := w.declines.Add(j.job.Queue + "\n" + cause.Error()); report {
			w.report(&declinedJob{cause, j.job.Queue, n}, j.job)
		}
	}
	dead := &deadJob{err: cause}
	o := w.moveWithRetry(id, j, func(ctx context.Context) (fate, bool, error) {
		return w.giveBack(ctx, id, j.job, dead)
	})
	if o.end == failed && o.fate == buried {
		w.report(dead, j.job)
	}
	return o
}

// giveBack moves a declined job to the scheduled set, or to the dead set when that has gone on for too long or no
// poller of Ruby could push it.
func (w *worker) giveBack(ctx context.Context, id int64, j *Delivery, dead *deadJob) (fate, bool, error) {
	if j.pushable() {
		waiting, err := j.queued()
		if err != nil {
			return 0, false, err
		}
		r, err := script.Decline(ctx, w.d.client, script.DeclineParams{
			Working: w.working, Schedule: w.d.key(string(Schedule)), Since: w.d.declinedKey(j), ID: id,
			Patience: w.o.Declined, Payload: waiting,
		})
		if err != nil || r.State != script.DeclineStateOver {
			return declined, r.State == script.DeclineStateWaits, err
		}
		dead.since = time.UnixMilli(r.Since)
	}
	last, err := j.withReason(dead)
	if err != nil {
		return 0, false, err
	}
	ours, err := w.bury(ctx, id, [][]byte{last}, script.RetryBuryFormNone)
	return buried, ours, err
}

// pushable reports whether Sidekiq's client accepts the job. A poller of Ruby takes a job out of its set and pushes it
// then: what the client refuses is lost.
func (j *Delivery) pushable() bool {
	at, tags := j.Field("at"), j.Field("tags")
	number := len(at) == 0 || at[0] == '-' || at[0] >= '0' && at[0] <= '9'
	return j.retry.nothing == "" && number && (len(tags) == 0 || tags[0] == '[' || !truthy(tags))
}

// declinedKey is the key of the time of a job's first decline. A failure or a death ends the row of declines: so the
// number of failures and the last message are in the name.
func (d *Dialect) declinedKey(j *Delivery) string {
	failures := digest(fmt.Appendf(nil, "%d %s", j.Retried, j.Field("error_message")))
	return d.key("luatomic:sidekiq:declined:" + d.rescueName(j) + ":" + failures[:16])
}

// queued returns the payload with the queue that the job was taken from: a poller pushes to the queue that it names.
func (j *Delivery) queued() ([]byte, error) {
	if j.retry.home == j.Queue {
		return j.Payload, nil
	}
	return setField(j.Payload, "queue", appendString(nil, strings.ToValidUTF8(j.Queue, string(utf8.RuneError))))
}

// withReason returns the payload of a job that no process could perform, with why. The number of its failures and
// their times stay.
func (j *Delivery) withReason(dead *deadJob) ([]byte, error) {
	p, err := j.queued()
	if err != nil {
		return nil, err
	}
	p, err = setField(canonicalPayload(p, j.version), "error_message",
		appendString(nil, message(errors.New(dead.err.Error()+dead.age()))))
	if err != nil {
		return nil, err
	}
	return setField(p, "error_class",
		appendString(nil, strings.ToValidUTF8(errorClass(dead.err), string(utf8.RuneError))))
}
