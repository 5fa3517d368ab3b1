package queue

import (
	"errors"

	"github.com/luatomic/luatomic/internal/decline"
)

// ErrDeclined matches the error of Decline, which is no failure.
var ErrDeclined = decline.Err

// Decline returns the error of a handler that has not begun a job because its process cannot work on it, but another
// one may: a kind or a version of the body that this program does not know, a machine without the hardware. Mux
// declines jobs of unknown kinds and bodies that it cannot decode.
//
// The job is delivered again, to the process that takes it then. No failure is counted. The delay is 1 s at first, then
// as long as the job has been declined, a minute at most, by the server's clock. A job that has only been declined for
// ConsumeOptions.Declined moves to the dead set. Its body and its failures are unchanged. Its reason is err, after
// "declined since" and the first time in Unix ms. A failure, or a return after its work began, ends that row.
func Decline(err error) error { return decline.New(err) }

// firstDecline is the delay of a job that is declined for the first time, in ms.
const firstDecline = 1000

// reportsDecline counts a job that its handler declined and reports whether OnError gets it: a job that nobody serves
// is declined again and again.
func (c *consumer) reportsDecline(o *outcome, became Outcome) bool {
	if !errors.Is(o.err, ErrDeclined) {
		return false
	}
	d, report := o.delivery, false
	o.declined, report = c.declines.Add(d.queue.keys.Listed + "\n" + d.Kind + "\n" + o.err.Error())
	return report || became != OutcomeRetried
}
