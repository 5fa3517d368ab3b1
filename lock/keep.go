package lock

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// keptContext is the context of a lease that is kept. Its Err looks at the clock:
// a process that was paused past its lease learns of it at the first look, before
// any timer has run.
type keptContext struct {
	context.Context // ended by cancel
	cancel          context.CancelCauseFunc
	lease           *Lease
	timer           *time.Timer
	life            context.Context // the lease's, for later contexts; nil while there are none
	die             context.CancelCauseFunc
	next            time.Time // when to renew; guarded by the hub's lock
	index           int       // in the keeper's heap, -1 while it is being renewed
}

// Err is nil while the lease holds.
func (k *keptContext) Err() error {
	if k.Context.Err() == nil {
		if over := k.lease.Err(); over != nil {
			k.lease.end(over)
			k.cancel(over) // it may not be the lease's first context
		}
	}
	return k.Context.Err()
}

// Keep renews the lease three times in its TTL until Release, and returns a context
// that ends with ctx or with the lease. context.Cause then says why: ErrLost when
// the server said so or the deadline passed without an answer, ErrRevoked,
// ErrMaxHold or ErrReleased. The end of ctx does not release the lease.
//
// The leases of a Locker are renewed together, 500 in one round trip, by one
// goroutine that runs while there are any. A second Keep returns a context of its
// own.
func (l *Lease) Keep(ctx context.Context) context.Context {
	inner, cancel := context.WithCancelCause(ctx)
	k := &keptContext{Context: inner, cancel: cancel, lease: l}
	l.mu.Lock()
	over := l.errAt(time.Now())
	first := l.kept == nil
	if over == nil && first {
		l.kept = k
		k.timer = time.AfterFunc(time.Until(l.nextLook()), func() { l.expire(k) })
	}
	left := time.Until(l.deadline)
	l.mu.Unlock()
	switch {
	case over != nil:
		cancel(over)
	case first:
		l.locker.listenHome()
		l.locker.keep(k, left/3)
	default:
		l.follow(k)
	}
	return k
}

// follow ends k with the lease. The first context may have ended before that.
func (l *Lease) follow(k *keptContext) {
	l.mu.Lock()
	first, over := l.kept, l.over
	if first.die == nil {
		first.life, first.die = context.WithCancelCause(context.Background())
	}
	life := first.life
	l.mu.Unlock()
	if over != nil {
		k.cancel(over)
		return
	}
	stop := context.AfterFunc(life, func() { k.cancel(context.Cause(life)) })
	context.AfterFunc(k.Context, func() { stop() })
}

// expire ends the lease at its deadline, unless that has moved.
func (l *Lease) expire(k *keptContext) {
	l.mu.Lock()
	over := l.errAt(time.Now())
	if over == nil {
		k.timer.Reset(time.Until(l.nextLook()))
	}
	l.mu.Unlock()
	if over != nil {
		l.end(over)
	}
}

// keeper renews the leases of a process. It is guarded by the hub's lock.
type keeper struct {
	due    dueHeap
	wake   chan struct{} // nil while nothing runs
	stop   context.CancelFunc
	closed bool
}

// hurry lets every lease be renewed soon: something may have been missed.
func (k *keeper) hurry() {
	if k.wake == nil {
		return
	}
	now := time.Now()
	for _, c := range k.due {
		c.next = now
	}
	k.rouse()
}

func (k *keeper) rouse() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// keep renews the lease after d for the first time.
func (h *lockHub) keep(k *keptContext, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[k.lease.heldKey()] = k.lease
	k.next = time.Now().Add(d)
	heap.Push(&h.keeper.due, k)
	switch {
	case h.keeper.closed:
	case h.keeper.wake == nil:
		ctx, stop := context.WithCancel(context.Background())
		wake := make(chan struct{}, 1)
		h.keeper.wake, h.keeper.stop = wake, stop
		h.keeping.Go(func() { h.renew(ctx, wake) })
	case k.index == 0:
		h.keeper.rouse()
	}
}

// forget stops renewing the lease.
func (h *lockHub) forget(l *Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, l.heldKey())
	if l.kept.index >= 0 {
		heap.Remove(&h.keeper.due, l.kept.index)
	}
	if len(h.held) == 0 && h.keeper.wake != nil {
		h.keeper.stop()
		h.keeper.wake = nil
	}
}

func (h *lockHub) stopKeeping() {
	h.mu.Lock()
	h.keeper.closed = true
	if h.keeper.wake != nil {
		h.keeper.stop()
		h.keeper.wake = nil
	}
	h.mu.Unlock()
	h.keeping.Wait()
}

// renewBatch is how many leases are renewed in one round trip.
const renewBatch = 500

// renew runs while there is a lease to keep.
func (h *lockHub) renew(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		for {
			batch, wait := h.pickDue()
			if len(batch) == 0 {
				timer.Reset(wait)
				break
			}
			h.renewAll(ctx, batch)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// pickDue takes what is due out of the heap, or says how long until something is.
// What is due soon comes along.
func (h *lockHub) pickDue() ([]*keptContext, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := &h.keeper.due
	if len(*due) == 0 {
		return nil, time.Hour
	}
	now := time.Now()
	if wait := (*due)[0].next.Sub(now); wait > 0 {
		return nil, wait
	}
	var batch []*keptContext
	for len(*due) > 0 && len(batch) < renewBatch {
		k := (*due)[0]
		if k.next.After(now.Add(k.lease.locker.opts.TTL / 30)) {
			break
		}
		heap.Pop(due)
		k.index = -1
		batch = append(batch, k)
	}
	return batch, 0
}

// renewAll renews a batch and puts back what is still held.
func (h *lockHub) renewAll(ctx context.Context, batch []*keptContext) {
	start := time.Now()
	b := lua.NewBatch(h.client)
	ttls := make([]time.Duration, len(batch))
	verdicts := make([]func() error, len(batch))
	first := start.Add(longestRenewal)
	for i, k := range batch {
		l := k.lease
		l.mu.Lock()
		ttls[i] = l.length(start)
		if l.deadline.Before(first) {
			first = l.deadline
		}
		l.mu.Unlock()
		verdicts[i] = l.kind.extend(b, l, ttls[i])
	}
	ctx, cancel := context.WithDeadline(ctx, first)
	defer cancel()
	_ = b.Exec(ctx) // each verdict has its own error
	for i, k := range batch {
		err := k.lease.extended(start, ttls[i], verdicts[i]())
		wait := ttls[i] / 3
		switch {
		case errors.Is(err, ErrLost):
			continue
		case err == nil && ttls[i] < k.lease.locker.opts.TTL:
			continue // MaxHold allows no more
		case err != nil:
			wait = min(ttls[i]/10, time.Second)
		}
		h.putBack(k, start.Add(wait))
	}
}

// longestRenewal bounds one round trip of renewals.
const longestRenewal = 5 * time.Second

func (h *lockHub) putBack(k *keptContext, next time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[k.lease.heldKey()] != k.lease {
		return // released meanwhile
	}
	k.next = next
	heap.Push(&h.keeper.due, k)
}

// dueHeap orders leases by the time of their renewal.
type dueHeap []*keptContext

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].next.Before(d[j].next) }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *dueHeap) Push(x any) {
	k := x.(*keptContext)
	k.index = len(*d)
	*d = append(*d, k)
}

func (d *dueHeap) Pop() any {
	old := *d
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	k.index = -1
	return k
}
