package queue

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/gen"
)

// ownReceipt is how long the server knows the push of a token that only this call has, and a finished job. All attempts
// of a push are made in a shorter time.
const (
	ownReceipt = time.Minute
	lastPush   = 50 * time.Second
)

func withinReceipt(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); !ok || time.Until(end) < lastPush {
		return ctx, func() {} // the runtime's own budget is shorter
	}
	return context.WithTimeout(ctx, lastPush)
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
	q.register(ctx)
	return Pushed{IDs: []string{p.ID}, Ready: 1, Now: r.Now}, false, nil
}

// belief is what a reply said, for a second.
type belief struct{ until atomic.Int64 }

func (b *belief) set(now time.Time)     { b.until.Store(now.Add(time.Second).UnixNano()) }
func (b *belief) is(now time.Time) bool { return now.UnixNano() < b.until.Load() }
