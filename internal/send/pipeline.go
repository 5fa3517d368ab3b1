package send

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// fewTrips is how many callers may have a round trip each: with a lower limit they wait for each other.
	fewTrips = 4
	// sharedTrips is the most round trips under way while more callers share them. The server answers one while the
	// callers of another run, and the third waits for neither.
	sharedTrips = 3
	// longTrip is the age at which round trips no longer count against the limit, while there are fewer than mostTrips.
	// So a dead connection delays only the calls on it.
	longTrip  = 20 * time.Millisecond
	mostTrips = 8
	// maxItems and maxBytes bound one round trip, which is as slow as its slowest part.
	maxItems = 512
	maxBytes = 128 << 10
)

// Pipeline sends items to one server. Items of the same moment share a round trip.
type Pipeline[T any] struct {
	send     func(ctx context.Context, items []T)
	longTrip time.Duration

	spare      sync.Pool // of requests
	mu         sync.Mutex
	active     int       // round trips under way
	began      time.Time // when the last round trip of a batch began
	generation uint64    // increases each time that all round trips under way take long
	overdue    int       // round trips under way of an earlier generation: they do not count against the limit
	items      int       // items that wait or are under way
	shared     bool      // the last batch had several items
	waiting    []*request[T]
	withdrawn  int // requests in waiting that were withdrawn
}

// NewPipeline returns a pipeline. Its send makes one round trip for the items. A single item is sent with the values of
// its caller's context, without its end.
func NewPipeline[T any](send func(ctx context.Context, items []T)) *Pipeline[T] {
	return &Pipeline[T]{send: send, longTrip: longTrip}
}

// request is an item with the caller that waits for its round trip.
type request[T any] struct {
	ctx   context.Context // of the caller
	item  [1]T
	size  int
	trip  uint64        // the generation of the round trip that it begins alone
	sent  chan struct{} // receives a value when its round trip is over
	carry func()        // makes its round trip in another goroutine

	taken, withdrawn bool // part of a round trip; withdrawn by its caller. Guarded by the pipeline's lock
}

// endless returns the context of a round trip for this item alone: that of the caller, without its end.
func (r *request[T]) endless() context.Context {
	if r.ctx.Done() == nil {
		return r.ctx
	}
	return context.WithoutCancel(r.ctx)
}

// Outcome says whether an item was sent.
type Outcome uint8

const (
	// Sent: its round trip is over.
	Sent Outcome = iota
	// Withdrawn: the caller's context ended before the item was part of a round trip. It is never sent.
	Withdrawn
	// Left: the caller's context ended while the item's round trip was under way. Send still uses the item.
	Left
)

// start says how the round trip of a new item begins.
type start uint8

const (
	waits   start = iota // a later round trip takes the item
	gathers              // a new round trip takes all items that wait
	alone                // a new round trip carries this item alone
)

// Do sends the item, of size bytes, and returns when its round trip is over or ctx ends. The caller must not change the
// item after Left. An item alone whose ctx cannot end is sent by the goroutine of its caller.
func (p *Pipeline[T]) Do(ctx context.Context, item T, size int) Outcome {
	r, start, generation := p.admit(ctx, item, size)
	switch {
	case start == alone && ctx.Done() == nil: // this goroutine can wait for the server
		defer p.returned(generation)
		p.send(ctx, r.item[:])
		p.free(r)
		return Sent
	case start == alone:
		Go(r.carry)
	case start == gathers:
		GoLast(func() { p.sendWaiting(p.nextBatch(0, generation)) })
	}
	if ctx.Done() == nil {
		<-r.sent
		p.free(r)
		return Sent
	}
	select {
	case <-r.sent:
		p.free(r)
		return Sent
	case <-ctx.Done():
	}
	if p.withdraw(r) {
		return Withdrawn
	}
	select {
	case <-r.sent: // both happened: the answer counts
		return Sent
	default:
		return Left
	}
}

// admit adds an item, and returns the generation of the round trip that begins with it. A request that waits may be
// taken and sent before admit returns.
func (p *Pipeline[T]) admit(ctx context.Context, item T, size int) (*request[T], start, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items++
	start := waits
	if p.active-p.overdue >= p.limit() && p.active < mostTrips && time.Since(p.began) > p.longTrip {
		p.overdue = p.active
		p.generation++
	}
	if p.active-p.overdue < p.limit() {
		p.active++
		start = gathers
		if p.items == 1 && !p.shared {
			start = alone
		}
	}
	r := p.newRequest(ctx, item, size, start == alone)
	r.trip = p.generation
	if start != alone {
		p.waiting = append(p.waiting, r)
	}
	return r, start, p.generation
}

// limit is the most round trips that may be under way.
func (p *Pipeline[T]) limit() int {
	if p.items <= fewTrips {
		return fewTrips
	}
	return sharedTrips
}

// newRequest returns a spare request or a new one.
func (p *Pipeline[T]) newRequest(ctx context.Context, item T, size int, taken bool) *request[T] {
	r, ok := p.spare.Get().(*request[T])
	if !ok {
		r = &request[T]{sent: make(chan struct{}, 1)}
		r.carry = func() { p.carry(r) }
	}
	r.ctx, r.item[0], r.size, r.taken = ctx, item, size, taken
	return r
}

// free keeps the request for reuse. The request of a caller that has left is still in use.
func (p *Pipeline[T]) free(r *request[T]) {
	*r = request[T]{sent: r.sent, carry: r.carry}
	p.spare.Put(r)
}

// withdraw withdraws a request that waits. The request stays in the slice until half of the slice is withdrawn, so that
// the cost of a withdrawal does not grow with the number of requests.
func (p *Pipeline[T]) withdraw(r *request[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.taken {
		return false
	}
	r.withdrawn = true
	p.items--
	if p.withdrawn++; 2*p.withdrawn > len(p.waiting) {
		p.waiting = slices.DeleteFunc(p.waiting, func(r *request[T]) bool { return r.withdrawn })
		p.withdrawn = 0
	}
	return true
}

// returned ends a round trip that a caller made itself. Another goroutine sends the items that wait.
func (p *Pipeline[T]) returned(generation uint64) {
	if batch, generation := p.nextBatch(1, generation); len(batch) > 0 {
		Go(func() { p.sendWaiting(batch, generation) })
	}
}

// carry makes the round trip of one request, and then those of the requests that wait.
func (p *Pipeline[T]) carry(r *request[T]) {
	generation := r.trip
	p.makeTrip(r.endless(), r.item[:], generation, r)
	p.sendWaiting(p.nextBatch(1, generation))
}

// makeTrip sends the items of a batch, and wakes their callers. A hook of the client may end this goroutine, as a
// failed assertion in a test does. Then the callers return as well, and another goroutine sends the items that wait.
func (p *Pipeline[T]) makeTrip(ctx context.Context, items []T, generation uint64, batch ...*request[T]) {
	exits := true
	defer func() {
		for _, r := range batch {
			r.sent <- struct{}{}
		}
		if n := len(batch); exits {
			Go(func() { p.sendWaiting(p.nextBatch(n, generation)) })
		}
	}()
	p.send(ctx, items)
	exits = false
}

// sendWaiting sends a batch, and then the items that wait until none does. The callers that a reply wakes run before
// the next batch is taken, so that their next items are part of it.
func (p *Pipeline[T]) sendWaiting(batch []*request[T], generation uint64) {
	for len(batch) == 1 {
		r := batch[0]
		p.makeTrip(r.endless(), r.item[:], generation, batch...)
		batch, generation = p.nextBatch(1, generation)
	}
	if len(batch) == 0 {
		return
	}
	items := make([]T, len(batch))
	for i, r := range batch {
		items[i] = r.item[0]
	}
	// No caller's context applies to a round trip of several.
	p.makeTrip(context.Background(), items, generation, batch...)
	// Copies: the function would take the variables of the loop to the heap.
	n, trip := len(batch), generation
	GoLast(func() { p.sendWaiting(p.nextBatch(n, trip)) })
}

// nextBatch ends a round trip of the given generation that carried returned items, and takes the batch of the next one,
// with its generation. It returns no batch if no item waits or if enough round trips are under way.
func (p *Pipeline[T]) nextBatch(returned int, generation uint64) ([]*request[T], uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.items -= returned
	if generation < p.generation {
		p.overdue--
	}
	if p.active-p.overdue > p.limit() {
		p.active--
		return nil, 0
	}
	return p.takeBatch(), p.generation
}

// takeBatch takes the items that wait, up to the bounds of one round trip.
func (p *Pipeline[T]) takeBatch() (batch []*request[T]) {
	n, size := 0, 0
	for ; n < len(p.waiting) && len(batch) < maxItems; n++ {
		r := p.waiting[n]
		if r.withdrawn {
			p.withdrawn--
			continue
		}
		if size += r.size; len(batch) > 0 && size > maxBytes {
			break
		}
		r.taken = true
		batch = append(batch, r)
	}
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting = nil
	}
	if len(batch) == 0 {
		p.active--
		return nil
	}
	p.shared, p.began = len(batch) > 1, time.Now()
	return batch
}
