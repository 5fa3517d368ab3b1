// Package merge lets calls that happen at the same time share round trips.
//
// A Line stands before one server. While few round trips are under way, a call is sent at once and alone. What comes
// meanwhile waits, and goes out together as soon as one of them returns. No timer delays a call. A call without company
// costs a mutex, and where its context can end, the way to another goroutine and back.
package merge

import (
	"context"
	"slices"
	"sync"

	"github.com/luatomic/luatomic/internal/reuse"
)

const (
	// maxActive is how many round trips are under way at most. Fewer share more and make a few callers wait for each
	// other's round trip. Of 4, 6, 8 and 12, 8 had the most lock pairs of 16 to 256 callers: 4 had 6 to 12 % less.
	maxActive = 8
	// maxItems and maxBytes bound one round trip, which is as slow as its slowest part.
	maxItems = 512
	maxBytes = 128 << 10
)

// Line is the way to one server.
type Line[T any] struct {
	send func(ctx context.Context, items []T)

	spare   sync.Pool // of places
	mu      sync.Mutex
	active  int
	waiting []*place[T]
	gone    int // of those that wait
}

// New returns a line. Its send makes one round trip for the items; a single item is sent with the context of its caller,
// without its end.
func New[T any](send func(ctx context.Context, items []T)) *Line[T] {
	return &Line[T]{send: send}
}

// place is an item with the caller that waits for it.
type place[T any] struct {
	ctx   context.Context // of the caller
	item  [1]T
	size  int
	sent  chan struct{} // filled when its round trip is over
	carry func()        // makes its round trip in another goroutine

	taken, gone bool // part of a round trip; withdrawn. Guarded by the line's lock
}

// Outcome is what became of an item.
type Outcome uint8

const (
	// Sent: its round trip is over.
	Sent Outcome = iota
	// Withdrawn: the caller's context ended before the item was part of a round trip. It is never sent.
	Withdrawn
	// Left: the caller's context ended while the item's round trip was under way. Send still uses the item.
	Left
)

// Do sends the item, which counts as so many bytes, and returns when its round trip is over or ctx ends. The item must
// stay as it is after Left. A ctx that cannot end needs no other goroutine.
func (l *Line[T]) Do(ctx context.Context, item T, size int) Outcome {
	l.mu.Lock()
	alone := l.active < maxActive
	p := l.place(ctx, item, size, alone)
	if alone {
		l.active++
	} else {
		l.waiting = append(l.waiting, p)
	}
	l.mu.Unlock()
	if alone && ctx.Done() == nil { // this goroutine can wait for the server
		defer l.returned()
		l.send(ctx, p.item[:])
		l.free(p)
		return Sent
	}
	if alone {
		reuse.Go(p.carry)
	}
	select {
	case <-p.sent:
		l.free(p)
		return Sent
	case <-ctx.Done():
	}
	if l.withdraw(p) {
		return Withdrawn
	}
	select {
	case <-p.sent: // both happened: the answer counts
		return Sent
	default:
		return Left
	}
}

// place returns a spare place or a new one.
func (l *Line[T]) place(ctx context.Context, item T, size int, taken bool) *place[T] {
	p, ok := l.spare.Get().(*place[T])
	if !ok {
		p = &place[T]{sent: make(chan struct{}, 1)}
		p.carry = func() { l.carry(p) }
	}
	p.ctx, p.item[0], p.size, p.taken = ctx, item, size, taken
	return p
}

// free keeps the place of a caller that has its answer. One whose caller has left is still in use.
func (l *Line[T]) free(p *place[T]) {
	*p = place[T]{sent: p.sent, carry: p.carry}
	l.spare.Put(p)
}

// withdraw takes a place out of those that wait. It stays in the slice, which shrinks when half of it is gone, so that
// many callers that leave at once cost no more than they cost when they came.
func (l *Line[T]) withdraw(p *place[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.taken {
		return false
	}
	p.gone = true
	if l.gone++; 2*l.gone > len(l.waiting) {
		l.waiting = slices.DeleteFunc(l.waiting, func(p *place[T]) bool { return p.gone })
		l.gone = 0
	}
	return true
}

// returned ends a round trip that a caller made itself. What waits is sent by another goroutine.
func (l *Line[T]) returned() {
	if next := l.next(); len(next) > 0 {
		reuse.Go(func() { l.sendWaiting(next) })
	}
}

// carry makes the round trip of a call that was alone, and after it those of what waits.
func (l *Line[T]) carry(p *place[T]) {
	l.send(context.WithoutCancel(p.ctx), p.item[:])
	p.sent <- struct{}{}
	l.sendWaiting(l.next())
}

// sendWaiting sends what waits until nothing does.
func (l *Line[T]) sendWaiting(batch []*place[T]) {
	for ; len(batch) > 0; batch = l.next() {
		items := make([]T, len(batch))
		for i, p := range batch {
			items[i] = p.item[0]
		}
		ctx := context.Background() // the round trip of several belongs to none of them
		if len(batch) == 1 {
			ctx = context.WithoutCancel(batch[0].ctx)
		}
		l.send(ctx, items)
		for _, p := range batch {
			p.sent <- struct{}{}
		}
	}
}

// next takes what the next round trip carries. Where nothing waits, one round trip less is under way.
func (l *Line[T]) next() []*place[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch []*place[T]
	n, size := 0, 0
	for ; n < len(l.waiting) && len(batch) < maxItems; n++ {
		p := l.waiting[n]
		if p.gone {
			l.gone--
			continue
		}
		if size += p.size; len(batch) > 0 && size > maxBytes {
			break
		}
		p.taken = true
		batch = append(batch, p)
	}
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	if len(batch) == 0 {
		l.active--
	}
	return batch
}
