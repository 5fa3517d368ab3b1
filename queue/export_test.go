package queue

import (
	"context"
	"crypto/rand"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
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
	ctx, _ = withinReceipt(ctx, ownReceipt) //nolint:govet // its test ends the parent
	return ctx
}

// Taker makes takes as a consumer of several queues does, with the order drawn by intN.
func Taker(intN func(int) int, from ...Source) (take func(ctx context.Context, max int, waiter string) ([]Taken,
	error)) {
	by := newTaker(from...)
	by.intN = intN
	return func(ctx context.Context, max int, waiter string) ([]Taken, error) {
		return by.take(ctx, max, waiter, time.Minute)
	}
}

// LastDays are the last n days that Counts reads at that time.
func LastDays(now time.Time, n int) (out []string) {
	for _, d := range lastDays(now, n) {
		out = append(out, d.Day)
	}
	return out
}

// Reporter counts jobs of a process that has no consumer, and reports them.
func Reporter(client lua.Client, prefix string) (count func(q *Queue), report func(ctx context.Context)) {
	p := &presence{
		place: place{client, prefix}, keys: keys.NewFleet(prefix), process: rand.Text(),
		counts: make(map[string]*queuescript.ReportEntry),
	}
	return func(q *Queue) { p.count(q.keys.Listed, 1, 0, 0, 0) },
		func(ctx context.Context) { p.report(ctx) }
}

// ReportsOfARenewal is how often each of n consumers gets the error of an extend of deliveries that these have.
func ReportsOfARenewal(err error, of []int, n int) []int {
	got, cs := make([]int, n), make([]*consumer, n)
	for i := range cs {
		cs[i] = &consumer{opts: ConsumeOptions{OnError: func(error) { got[i]++ }}}
	}
	e := &extension{}
	for _, i := range of {
		d := &Delivery{}
		if i >= 0 {
			d.consumer = cs[i]
		}
		e.deliveries = append(e.deliveries, d)
	}
	e.report(err)
	return got
}
