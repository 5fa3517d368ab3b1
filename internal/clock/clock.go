// Package clock holds the waits that every package of this module makes: a sleep that ends with its context, a context
// for what must work after another has ended, a back-off, a rest behind work for nothing, and the rounding of durations
// to the milliseconds of the scripts.
package clock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sleep returns after d, or as soon as ctx ends. It reports whether all of d has passed. A d of zero or less passes at
// once, also under a context that has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// outlast is how long the context of Outlast lasts.
const outlast = 10 * time.Second

// Outlast is the context of a call that gives something up, which must also work when ctx has ended before: a deferred
// call has the context of a request that is over. Then Outlast returns a context with the values of ctx that lasts 10
// s. While ctx lasts, it bounds the call.
func Outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), outlast)
}

// EndOf returns why ctx has ended, as an error that matches both ctx.Err() and the cause.
func EndOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Backoff doubles from First to Last. The zero value of the unexported rest is a Backoff that begins.
type Backoff struct {
	First, Last time.Duration
	now         time.Duration
}

// Next is how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.now = min(max(2*b.now, b.First), b.Last)
	return b.now
}

// Reset begins again at First, after a success.
func (b *Backoff) Reset() { b.now = 0 }

// RestAfter is how long to rest after work that took so long and achieved nothing: four times as long, at most 5 s. So
// it takes a fifth of the time of its server until somebody removes the cause.
func RestAfter(took time.Duration) time.Duration {
	const longest = 5 * time.Second
	return min(4*min(took, longest), longest)
}

// CeilMilli is d in milliseconds, rounded up: nothing fires early, and a short duration does not become none.
func CeilMilli(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++ // adding 1ms-1ns first would overflow the longest durations
	}
	return ms
}
