package redisinaction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// Polled is the result of PollQueue.
type Polled struct {
	// Moved items are in their queues now.
	Moved int
	// Malformed items are in malformed: now.
	Malformed []MalformedItem
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next item is due. It has passed when more are due than one
	// call moves.
	NextDue lua.Opt[time.Time]
}

// MalformedItem is an item that nobody can run, and why.
type MalformedItem struct {
	Raw    []byte
	Reason error
}

// PollQueue moves up to MaxBatch items that are due to their queues, earliest first,
// never before the server's clock has reached their time. Each step reads items that
// are due, and moves them by one script, which leaves alone what has another score by
// then. Any number of processes may poll, the book's pollers too: each item is moved
// once. The locks that the book's pollers take on an item are not looked at, so one that
// a dead poller left behind stops nothing.
//
// An item that cannot be parsed goes to malformed: with its bytes. Two errors come with
// a result, after everything else was moved, but for what is due behind the first
// 10 000 items that their queues refuse: ErrForeignScore, and ErrQueueRefused.
// After a lost reply, Moved can be too low.
//
// Keys: delayed:, malformed:, queue:<q> of the items. Cost: O(log n) for each item.
func (c *Client) PollQueue(ctx context.Context) (Polled, error) {
	p := poll{Client: c}
	for p.done < MaxBatch {
		more, err := p.step(ctx)
		if err != nil {
			return p.out, fmt.Errorf("redisinaction: poll %q: %w", c.delayed(), err)
		}
		if !more {
			break
		}
		if p.skip > stepsOver { // those are due, but not to come back for at once
			p.out.NextDue = lua.Opt[time.Time]{}
			break
		}
	}
	return p.out, p.complaint()
}

// What one step moves at most; an item alone may be larger.
const (
	stepItems = 500
	stepBytes = 1 << 19
	stepsOver = 10000 // items of queues that take none, that one poll passes over
)

// poll is one PollQueue.
type poll struct {
	*Client
	out     Polled
	done    int   // items that are moved, or gone when they were to be
	skip    int64 // items at the head that stay, because their queue refuses them
	refused []string
	foreign int64
}

// step moves some items. It says whether there may be more.
func (p *poll) step(ctx context.Context) (more bool, err error) {
	due, err := script.Due(ctx, p.redis, script.DueParams{Delayed: p.delayed(), Skip: p.skip, Max: stepItems, Bytes: stepBytes})
	if err != nil {
		return false, err
	}
	p.out.Now, p.foreign = time.UnixMicro(due.Now), due.Foreign
	p.out.NextDue = lua.Opt[time.Time]{}
	if len(due.Items) == 0 {
		if next, ok := due.Next.Get(); ok {
			p.out.NextDue = seconds(next)
		}
		return false, nil
	}
	p.out.NextDue = lua.Some(p.out.Now)
	m := p.plan(due.Items)
	counts, err := script.MoveDue(ctx, p.redis, m.params)
	if err != nil {
		return false, err
	}
	if len(counts) != len(m.params.Lists) {
		return false, fmt.Errorf("move_due: %w: %d counts for %d lists", lua.ErrBadReply, len(counts), len(m.params.Lists))
	}
	p.count(&m, counts)
	return true, nil
}

// move is what one script is to do.
type move struct {
	params    script.MoveDueParams
	sizes     []int // items for each list
	malformed []MalformedItem
}

// plan finds the list for each item.
func (p *poll) plan(items []script.DueItem) move {
	m := move{params: script.MoveDueParams{Delayed: p.delayed(), Items: make([]script.MoveDueItem, len(items))}}
	places := make(map[string]int64)
	for i, found := range items {
		list := p.malformed()
		item, err := ParseItem(found.Body)
		if err == nil && item.ID == "" {
			err = fmt.Errorf("%w: it has no id and no queue", ErrMalformed)
		}
		if err == nil {
			list = p.queue(item.Queue)
		} else {
			m.malformed = append(m.malformed, MalformedItem{found.Body, err})
		}
		if places[list] == 0 {
			m.params.Lists = append(m.params.Lists, list)
			m.sizes = append(m.sizes, 0)
			places[list] = int64(len(m.params.Lists))
		}
		m.sizes[places[list]-1]++
		m.params.Items[i] = script.MoveDueItem{To: places[list], Score: found.Score, Body: found.Body}
	}
	return m
}

// count takes in how many items went to each list, -1 for a list that refuses them.
func (p *poll) count(m *move, counts []int64) {
	for i, n := range counts {
		switch list := m.params.Lists[i]; {
		case n < 0:
			p.refused = append(p.refused, list)
			p.skip += int64(m.sizes[i])
			continue
		case list == p.malformed() && n == 0: // another poller's
		case list == p.malformed():
			p.out.Malformed = append(p.out.Malformed, m.malformed...)
		default:
			p.out.Moved += int(n)
		}
		p.done += m.sizes[i]
	}
}

// complaint is what no repeat mends.
func (p *poll) complaint() error {
	var errs []error
	if len(p.refused) > 0 {
		errs = append(errs, fmt.Errorf("redisinaction: %w: %q is not a list, or this user may not write it; %d items that are due wait for it", ErrQueueRefused, p.refused[0], p.skip))
	}
	if p.foreign > 0 {
		errs = append(errs, fmt.Errorf("redisinaction: %w: %d items of %q will never be due; the Go port of the book's code scores by nanoseconds: "+
			"give it another key or another server, and remove them (ZRANGE %s (100000000000 +inf BYSCORE lists them)", ErrForeignScore, p.foreign, p.delayed(), p.delayed()))
	}
	return errors.Join(errs...)
}
