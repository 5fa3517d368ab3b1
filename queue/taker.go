package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	randv2 "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// taker makes one take at a time, each with the next number. Its receipt at each queue has what its last take leased
// there. So the repeat of a take without a reply returns the same jobs, and a late copy takes none.
type taker struct {
	from     []tap // in the order of the take
	weighted bool  // the order is drawn for each take, with intN
	intN     func(int) int
	drawn    int64 // the take that the order is drawn for
	call     int64 // of the next take
	since    int64 // of the first take since the last reply: the next one repeats those between them
}

// repeats reports whether the last take had no reply, so that the next one repeats it.
func (by *taker) repeats() bool { return by.since < by.call }

// tap is a queue that a taker takes from.
type tap struct {
	queue   *Queue
	receipt string
	weight  int
}

func newTaker(sources ...Source) *taker {
	id, by := rand.Text()[:16], &taker{from: make([]tap, len(sources)), intN: randv2.IntN, drawn: -1}
	for i, s := range sources {
		by.from[i] = tap{s.Queue, s.Queue.keys.Receipt(id), max(s.Weight, 1)}
		by.weighted = by.weighted || s.Weight > 0
	}
	return by
}

// begin writes the queues into p. A repeat uses the order of the take that it repeats.
func (by *taker) begin(p *queuescript.TakeParams) error {
	if by.weighted && by.drawn != by.since {
		by.draw()
		by.drawn = by.since
	}
	p.Queues = make([]queuescript.TakeQueue, len(by.from))
	for i, t := range by.from {
		if lease := t.queue.opts.Lease; lease < time.Millisecond {
			return &lua.RangeError{Field: "lease", Value: lease.String(), Min: "1ms"}
		}
		p.Queues[i] = t.queue.takeQueue(t.receipt)
	}
	return nil
}

// draw puts the queues into a random order: each place goes to one of the remaining queues, in proportion to their
// weights.
func (by *taker) draw() {
	left := 0
	for _, t := range by.from {
		left += t.weight
	}
	for i := range by.from {
		ticket, at := by.intN(left), i
		for ; ticket >= by.from[at].weight; at++ {
			ticket -= by.from[at].weight
		}
		left -= by.from[at].weight
		by.from[i], by.from[at] = by.from[at], by.from[i]
	}
}

// wrap puts the names of the queues before an error.
func (by *taker) wrap(err error) error {
	names := make([]string, len(by.from))
	for i, t := range by.from {
		names[i] = strconv.Quote(t.queue.name)
	}
	return fmt.Errorf("luatomic: take from %s: %w", strings.Join(names, ", "), layoutError(err))
}

// takers has the takers of Queue.Take that are idle now. Those with a take to repeat are at the end, from which the
// next taker comes.
type takers struct {
	mu   sync.Mutex
	idle []*taker
}

func (ts *takers) get(q *Queue) *taker {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	n := len(ts.idle)
	if n == 0 {
		return newTaker(Source{Queue: q})
	}
	t := ts.idle[n-1]
	ts.idle = ts.idle[:n-1]
	return t
}

func (ts *takers) put(t *taker) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.repeats() {
		ts.idle = append(ts.idle, t)
	} else {
		ts.idle = slices.Insert(ts.idle, 0, t)
	}
}

// returnUnanswered repeats the last take of a consumer that has ended, if that take had no reply. The repeat puts the
// jobs of the first call back and takes one of them, or another job if that call took none. returnUnanswered then
// returns that job. An attempt of the first call that arrives after the repeat takes nothing. If the repeat fails, it
// is not made again, and the leases end by time.
func (c *consumer) returnUnanswered(work context.Context) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(work), c.settleBy())
	defer cancel()
	ts, err := c.taker.take(ctx, 1, "", 0)
	if err != nil {
		return
	}
	for i, t := range ts {
		if len(t.Deliveries) > 0 {
			_ = c.taker.from[i].queue.giveBack(ctx, same(queuescript.NackJob{}), t.Deliveries)
		}
	}
}
