package queue

import (
	"context"
	"time"
)

// KeepsForFreeHandlers reports whether a consumer that waits for too long keeps a job for its only handler, which is
// busy or not.
func KeepsForFreeHandlers(busy bool) bool {
	c := &consumer{
		opts:       ConsumeOptions{Concurrency: 1},
		prefetched: make(chan *Delivery, 1), outcomes: make(chan outcome, 1),
	}
	if busy {
		c.busy.Add(1)
	}
	c.prefetched <- &Delivery{}
	c.returnPrefetched()
	return len(c.prefetched) == 1
}

// WithinReceipt is the context of a push's attempts.
func WithinReceipt(ctx context.Context) context.Context {
	ctx, _ = withinReceipt(ctx) //nolint:govet // its test ends the parent
	return ctx
}

// Taker makes takes as a consumer of several queues does, with the order drawn by intN.
func Taker(intN func(int) int, from ...Source) (take func(ctx context.Context, max int, waiter string) ([]Taken, error)) {
	by := newTaker(from...)
	by.intN = intN
	return func(ctx context.Context, max int, waiter string) ([]Taken, error) {
		return by.take(ctx, max, waiter, time.Minute)
	}
}
