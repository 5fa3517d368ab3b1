package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/exact"
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

// belief is a fact from a reply, which counts for a second.
type belief struct{ until atomic.Int64 }

// tokenError adds the cure to the refusal of a token that belongs to other jobs.
func tokenError(err error) error {
	if errors.Is(err, queuescript.ErrPushReused) || errors.Is(err, queuescript.ErrPushManyReused) {
		return fmt.Errorf("%w: %w", ErrTokenReused, err)
	}
	return err
}

// addJobs adds a queue and its jobs, whose ids are set. It has what a job is: its place, id, kind, unique name and
// body. It leaves out what a program that repeats the push works out anew: times, limits and headers such as a trace
// context.
func addJobs(to exact.Sum, ready string, jobs []Job) {
	to.Add(ready)
	to.Count(len(jobs))
	for i := range jobs {
		j := &jobs[i]
		to.Add(j.ID, j.Kind, j.Unique)
		to.AddBytes(j.Body)
	}
}
