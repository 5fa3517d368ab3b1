package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// errSettled says that a lease is not renewed because its delivery was settled.
var errSettled = errors.New("luatomic: delivery settled")

// errSettling says that the call that settles a delivery is on its way or had no reply. That call has the verdict.
var errSettling = errors.New("luatomic: delivery is being settled")

// errAnswered says that the extend which a renewal would have repeated has its reply now. The next renewal is soon.
var errAnswered = errors.New("luatomic: the last extend has its reply")

// holder is a Delivery as the keeper of leases sees it. One call extends the deliveries of a queue.
type holder Delivery

// Server names the server that has the queue.
func (h *holder) Server(ctx context.Context) string {
	_, name, _ := servers.Of(ctx, h.queue.client, h.queue.keys.Leases) // without a server, the call has the error
	return name
}

// Group identifies the queue.
func (h *holder) Group() any { return h.queue.keys.Leases }

// Extend extends the delivery alone.
func (h *holder) Extend(b *lua.Batch, ttl time.Duration) (outcome func() error) {
	of := h.ExtendAll(b, []keeper.Together{h}, ttl)
	return func() error { return of(0) }
}

// ExtendAll extends the deliveries. For a delivery whose last extend has no reply, it repeats that extend, so that the
// fence is known.
func (h *holder) ExtendAll(b *lua.Batch, hs []keeper.Together, ttl time.Duration) (outcome func(int) error) {
	var fresh []*Delivery
	for _, other := range hs {
		d := (*Delivery)(other.(*holder))
		if d.settled.Load() == notSettled && d.unanswered.Load() == nil {
			fresh = append(fresh, d)
		}
	}
	var failed error
	for chunk := range chunks(fresh, maxExtend, idSize) {
		if _, err := h.queue.newExtension(ttl, chunk); err != nil {
			failed = err
		}
	}
	calls := make(map[*extension]func() error)
	of := make([]func() error, len(hs))
	for i, other := range hs {
		d := (*Delivery)(other.(*holder))
		e := d.unanswered.Load()
		switch {
		case e == nil: // settled, or answered meanwhile, by a call of the handler
			of[i] = func() error { return cmp.Or(failed, errAnswered) }
			continue
		case calls[e] == nil:
			calls[e] = e.queueIn(b)
		}
		of[i] = func() error { return d.renewed(calls[e]()) }
	}
	return func(i int) error { return of[i]() }
}

// queueIn adds the extension to b. The function that it returns handles the reply, once.
func (e *extension) queueIn(b *lua.Batch) func() error {
	e.attempts.begin()
	future := queuescript.ExtendIn(b, e.params)
	done := false
	var err error
	return func() error {
		if !done {
			done = true
			err = e.replied(future.Get())
			if err != nil && !errors.Is(err, ErrLeaseLost) {
				e.report(err)
			}
		}
		return err
	}
}

// report passes the failure of a renewal to each consumer whose deliveries it concerns.
func (e *extension) report(err error) {
	reported := map[*consumer]bool{nil: true} // a delivery that was taken by hand has none
	for _, d := range e.deliveries {
		if !reported[d.consumer] {
			reported[d.consumer] = true
			d.consumer.report(context.Background(), err)
		}
	}
}

// renewed returns the outcome of a renewal for this delivery. err is the error of the whole call.
func (d *Delivery) renewed(err error) error {
	var lost *LeaseLostError
	switch {
	case !errors.As(err, &lost):
		return err
	case !slices.Contains(lost.deliveries, d):
		return nil
	case d.ending.Load() != nil || d.settled.Load() != notSettled:
		return errSettling
	}
	return &LeaseLostError{IDs: []string{d.ID}, deliveries: []*Delivery{d}}
}

// Release returns the job.
func (h *holder) Release(ctx context.Context) error { return (*Delivery)(h).Return(ctx, 0) }

// Ended reports the loss of a lease while a handler works.
func (h *holder) Ended(why error, _ time.Duration) {
	if h.consumer == nil || h.finished.Load() || h.settled.Load() != notSettled {
		return
	}
	if lost := (*LeaseLostError)(nil); !errors.As(why, &lost) {
		why = &LeaseLostError{IDs: []string{h.ID}}
	}
	h.consumer.report(context.Background(), why)
}

// renew renews the leases of a job of q that a Cancel has named, so that its handlers learn of the Cancel now. If this
// fails, they learn of it at the next renewal.
func (c *consumer) renew(q *Queue, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.held {
		if d.queue == q && d.ID == id {
			d.lease.Renew()
		}
	}
}

// finish records that no handler works on the delivery any more. Its lease is renewed until the job is settled.
func (d *Delivery) finish() {
	d.finished.Store(true)
	d.lease.Leave()
}
