package send

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// fewTrips is how many callers may have a round trip each: with fewer they run in step and wait for each other.
	fewTrips = 4
	// sharedTrips is how many round trips are under way at most while more callers share them. While one is at the
	// server, the callers of another have their turn, and the third one waits for neither.
	sharedTrips = 3
	// longTrip is after how much time round trips count no more, while there are fewer than mostTrips: a connection
	// that is dead holds up its own calls only.
	longTrip  = 20 * time.Millisecond
	mostTrips = 8
	// maxItems and maxBytes bound one round trip, which is as slow as its slowest part.
	maxItems = 512
	maxBytes = 128 << 10
)

// Line is the way to one server.
type Line[T any] struct {
	send     func(ctx context.Context, items []T)
	longTrip time.Duration

	spare   sync.Pool // of places
	mu      sync.Mutex
	active  int       // round trips under way
	began   time.Time // the last of them that had company
	age     uint64    // counts how often all of them were long
	long    int       // of those under way: they are of an earlier age
	inside  int       // items that wait or are under way
	company bool      // the last round trip carried several items
	waiting []*place[T]
	gone    int // of those that wait
}

// NewLine returns a line. Its send makes one round trip for the items; a single item is sent with the context of its
// caller, without its end.
func NewLine[T any](send func(ctx context.Context, items []T)) *Line[T] {
	return &Line[T]{send: send, longTrip: longTrip}
}

// place is an item with the caller that waits for it.
type place[T any] struct {
	ctx   context.Context // of the caller
	item  [1]T
	size  int
	age   uint64        // of the round trip that it begins alone
	sent  chan struct{} // filled when its round trip is over
	carry func()        // makes its round trip in another goroutine

	taken, gone bool // part of a round trip; withdrawn. Guarded by the line's lock
}

// endless returns the context of a round trip for this item alone: that of the caller, without its end.
func (p *place[T]) endless() context.Context {
	if p.ctx.Done() == nil {
		return p.ctx
	}
	return context.WithoutCancel(p.ctx)
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

// start is what becomes of an item that enters.
type start uint8

const (
	waits   start = iota // until a round trip takes it
	gathers              // a round trip begins, which takes all that wait
	alone                // a round trip begins for it
)

// Do sends the item, which counts as so many bytes, and returns when its round trip is over or ctx ends. The item must
// stay as it is after Left. Without company, a ctx that cannot end needs no other goroutine.
func (l *Line[T]) Do(ctx context.Context, item T, size int) Outcome {
	p, start, age := l.enter(ctx, item, size)
	switch {
	case start == alone && ctx.Done() == nil: // this goroutine can wait for the server
		defer l.returned(age)
		l.send(ctx, p.item[:])
		l.free(p)
		return Sent
	case start == alone:
		Go(p.carry)
	case start == gathers:
		Behind(func() { l.sendWaiting(l.next(0, age)) })
	}
	if ctx.Done() == nil {
		<-p.sent
		l.free(p)
		return Sent
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

// enter lets an item in, and returns the age of the round trip that begins with it. A place that waits may be taken and
// sent before enter returns.
func (l *Line[T]) enter(ctx context.Context, item T, size int) (*place[T], start, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside++
	start := waits
	if l.active-l.long >= l.limit() && l.active < mostTrips && time.Since(l.began) > l.longTrip {
		l.long = l.active
		l.age++
	}
	if l.active-l.long < l.limit() {
		l.active++
		start = gathers
		if l.inside == 1 && !l.company {
			start = alone
		}
	}
	p := l.place(ctx, item, size, start == alone)
	p.age = l.age
	if start != alone {
		l.waiting = append(l.waiting, p)
	}
	return p, start, l.age
}

// limit is how many round trips may be under way.
func (l *Line[T]) limit() int {
	if l.inside <= fewTrips {
		return fewTrips
	}
	return sharedTrips
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
	l.inside--
	if l.gone++; 2*l.gone > len(l.waiting) {
		l.waiting = slices.DeleteFunc(l.waiting, func(p *place[T]) bool { return p.gone })
		l.gone = 0
	}
	return true
}

// returned ends a round trip that a caller made itself. What waits is sent by another goroutine.
func (l *Line[T]) returned(age uint64) {
	if batch, age := l.next(1, age); len(batch) > 0 {
		Go(func() { l.sendWaiting(batch, age) })
	}
}

// carry makes the round trip of a call that was alone, and after it those of what waits.
func (l *Line[T]) carry(p *place[T]) {
	age := p.age
	l.makeTrip(p.endless(), p.item[:], age, p)
	l.sendWaiting(l.next(1, age))
}

// makeTrip sends the items of the places, and wakes their callers. Where a hook of the client ends this goroutine, as a
// failed assertion in a test does, the callers do not wait for ever, and neither does what comes after them.
func (l *Line[T]) makeTrip(ctx context.Context, items []T, age uint64, batch ...*place[T]) {
	exits := true
	defer func() {
		for _, p := range batch {
			p.sent <- struct{}{}
		}
		if n := len(batch); exits {
			Go(func() { l.sendWaiting(l.next(n, age)) })
		}
	}()
	l.send(ctx, items)
	exits = false
}

// sendWaiting sends what waits until nothing does. After each reply the callers that it wakes have their turn first.
func (l *Line[T]) sendWaiting(batch []*place[T], age uint64) {
	for len(batch) == 1 {
		p := batch[0]
		l.makeTrip(p.endless(), p.item[:], age, batch...)
		batch, age = l.next(1, age)
	}
	if len(batch) == 0 {
		return
	}
	items := make([]T, len(batch))
	for i, p := range batch {
		items[i] = p.item[0]
	}
	// The round trip of several belongs to none of them.
	l.makeTrip(context.Background(), items, age, batch...)
	// Copies: the function would take the variables of the loop to the heap.
	n, trip := len(batch), age
	Behind(func() { l.sendWaiting(l.next(n, trip)) })
}

// next takes what the next round trip carries, after one of that age of so many items, and returns its age. Where
// nothing waits, or enough others are under way, there is one round trip less.
func (l *Line[T]) next(returned int, age uint64) ([]*place[T], uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside -= returned
	if age < l.age {
		l.long--
	}
	if l.active-l.long > l.limit() {
		l.active--
		return nil, 0
	}
	return l.take(), l.age
}

// take takes what waits, as much as a round trip carries.
func (l *Line[T]) take() (batch []*place[T]) {
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
		return nil
	}
	l.company, l.began = len(batch) > 1, time.Now()
	return batch
}
