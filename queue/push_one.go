package queue

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
)

const (
	// ownReceipt is how long the server knows a call under a token that the call has drawn, and a finished job.
	ownReceipt = time.Minute
	// unboundedCall is longer than the runtime repeats a call whose context has no deadline.
	unboundedCall = 15 * time.Second
)

// withinReceipt lets the attempts of a call end while the server knows it, which it does for keep: after five sixths of
// that time.
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

// once makes a call that names a state, with a receipt of its own: its repeats get the same answer, and a copy that
// arrives after a later call changes nothing.
func (q *Queue) once(ctx context.Context, call func(ctx context.Context, receipt string) error) error {
	within, end := withinReceipt(ctx, ownReceipt)
	defer end()
	return call(within, q.keys.Receipt(rand.Text()[:16]))
}

// bare reports whether the job is a body alone.
func (j *Job) bare() bool {
	return j.ID == "" && j.At.IsZero() && j.Delay == 0 && j.Unique == "" && j.UniqueTTL == 0 && j.plain()
}

func (q *Queue) sendOne(ctx context.Context, id string, body []byte) (limited bool, now time.Time, err error) {
	p := q.pushOneParams()
	p.ID, p.Body = id, body
	r, err := gen.QueuePushOne(ctx, q.client, p)
	return r.Limited, r.Now, err
}

// belief is what a reply said, for a second.
type belief struct{ until atomic.Int64 }

func (b *belief) set(now time.Time)     { b.until.Store(now.Add(time.Second).UnixNano()) }
func (b *belief) is(now time.Time) bool { return now.UnixNano() < b.until.Load() }
