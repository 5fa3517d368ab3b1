package queue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

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

// bare reports whether the job is a body alone.
func (j *Job) bare() bool {
	return j.ID == "" && j.At.IsZero() && j.Delay == 0 && j.Unique == "" && j.UniqueTTL == 0 && j.plain()
}

// pushOne adds a ready job with a new id. A queue with a limit takes none in this way.
func (q *Queue) pushOne(ctx context.Context, body []byte) (out Pushed, limited bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Pushed{}, false, q.wrap("push to", err)
	}
	ctx, cancel := withinReceipt(ctx, ownReceipt)
	defer cancel()
	p := q.pushOneParams()
	p.ID, p.Body = id.String(), body
	r, err := gen.QueuePushOne(ctx, q.client, p)
	if err != nil {
		return Pushed{}, false, q.wrap("push to", err)
	}
	if r.Limited {
		q.limited.set(time.Now())
		return Pushed{}, true, nil
	}
	register(ctx, q)
	return Pushed{IDs: []string{p.ID}, Ready: 1, Now: r.Now}, false, nil
}

// belief is what a reply said, for a second.
type belief struct{ until atomic.Int64 }

func (b *belief) set(now time.Time)     { b.until.Store(now.Add(time.Second).UnixNano()) }
func (b *belief) is(now time.Time) bool { return now.UnixNano() < b.until.Load() }
