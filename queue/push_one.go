package queue

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
)

const (
	// ownReceipt is how long the server remembers a call under a token that the call itself has made, and a finished
	// job.
	ownReceipt = time.Minute
	// unboundedCall is longer than the time for which the runtime repeats a call whose context has no deadline.
	unboundedCall = 15 * time.Second
)

// withinReceipt ends the attempts of a call while the server still remembers it: after five sixths of keep, the time
// for which the server does.
func withinReceipt(ctx context.Context, keep time.Duration) (context.Context, context.CancelFunc) {
	last := keep / 6 * 5
	end, bounded := ctx.Deadline()
	switch {
	case keep < time.Millisecond: // out of range, which the call reports
	case bounded && time.Until(end) < last, !bounded && last > unboundedCall:
	default:
		return context.WithTimeout(ctx, last)
	}
	return ctx, func() {}
}

// once makes a call that sets a state, with a receipt of its own. So repeats get the same answer, and a copy that
// arrives after a later call changes nothing.
func (q *Queue) once(ctx context.Context, call func(ctx context.Context, receipt string) error) error {
	within, end := withinReceipt(ctx, ownReceipt)
	defer end()
	return call(within, q.keys.Receipt(rand.Text()[:16]))
}

// bare reports whether the job is only a body.
func (j *Job) bare() bool {
	return j.ID == "" && j.At.IsZero() && j.Delay == 0 && j.Unique == "" && j.UniqueTTL == 0 && j.plain()
}

func (q *Queue) sendOne(ctx context.Context, id string, body []byte) (limited bool, now time.Time, err error) {
	p := q.pushOneParams()
	p.ID, p.Body = id, body
	r, err := queuescript.PushOne(ctx, q.client, p)
	return r.Limited, r.Now, err
}

// belief is a fact from a reply, which counts for a second.
type belief struct{ until atomic.Int64 }

func (b *belief) set(now time.Time)     { b.until.Store(now.Add(time.Second).UnixNano()) }
func (b *belief) is(now time.Time) bool { return now.UnixNano() < b.until.Load() }
