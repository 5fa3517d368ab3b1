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
	// NextDue is when the next item is due. It is in the past if more items are due than one call moves.
	NextDue lua.Opt[time.Time]
}

// MalformedItem is an item that does not parse, and why.
type MalformedItem struct {
	Raw    []byte
	Reason error
}

// PollQueue moves up to MaxBatch due items to their queues, earliest first, never before their time by the server's
// clock. Each step reads due items and moves them with one script, which skips items whose score has changed. Any
// number of processes may poll, also the book's pollers: each item is moved once. PollQueue does not check the locks
// that the book's pollers take on an item, so the lock of a dead poller blocks nothing.
//
// An item that cannot be parsed goes to malformed: with its bytes. ErrForeignScore and ErrQueueRefused are returned
// with a result, after everything else was moved. Items after the first 10 000 refused ones are not moved, but by a
// Poller they are. After a lost reply, Moved can be too low.
//
// Keys: delayed:, malformed:, queue:<q> of the items. Cost: O(log n) for each item.
func (c *Client) PollQueue(ctx context.Context) (Polled, error) {
	out, _, err := c.pollFrom(ctx, 0)
	return out, err
}

// pollFrom polls as PollQueue does, without the first items. next says how many the next poll passes over: those that
// stay before the place where this one ended, or none if nothing is due behind it.
func (c *Client) pollFrom(ctx context.Context, first int64) (out Polled, next int64, err error) {
	p := poll{Client: c, first: first, skip: first}
	for p.done < MaxBatch {
		more, err := p.step(ctx)
		if err != nil {
			return p.out, 0, fmt.Errorf("redisinaction: poll %q: %w", c.delayed(), err)
		}
		if !more {
			return p.out, 0, p.complaint()
		}
		if p.skip-first > stepsOver { // refused items are due, but no reason to poll again immediately
			p.out.NextDue = lua.Opt[time.Time]{}
			break
		}
	}
	return p.out, p.skip, p.complaint()
}

// Limits of one step; a single item may be larger.
const (
	stepItems = 500
	stepBytes = 1 << 19
	stepsOver = 10000 // refused items that one poll skips
)

// poll is one call of PollQueue.
type poll struct {
	*Client
	out     Polled
	done    int   // items that are moved, or were no longer in delayed:
	first   int64 // items at the head that are passed over from the start
	skip    int64 // the same, and those that their queue refuses
	refused []string
	foreign int64
}

// step moves some items and reports whether there may be more.
func (p *poll) step(ctx context.Context) (more bool, err error) {
	due, err := script.Due(ctx, p.redis, script.DueParams{
		Delayed: p.delayed(), Skip: p.skip, Max: int64(min(stepItems, MaxBatch-p.done)), Bytes: stepBytes,
	})
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
		return false, fmt.Errorf("move_due: %w: %d counts for %d lists", lua.ErrBadReply, len(counts),
			len(m.params.Lists))
	}
	p.count(&m, counts)
	return true, nil
}

// move is the work of one script call.
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
		if err == nil && item.ID == "" && item.Queue == "" {
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

// count records how many items were added to each list; -1 is a list that refuses them.
func (p *poll) count(m *move, counts []int64) {
	for i, n := range counts {
		switch list := m.params.Lists[i]; {
		case n < 0:
			p.refused = append(p.refused, list)
			p.skip += int64(m.sizes[i])
			continue
		case list == p.malformed() && n == 0: // moved by another poller
		case list == p.malformed():
			p.out.Malformed = append(p.out.Malformed, m.malformed...)
		default:
			p.out.Moved += int(n)
		}
		p.done += m.sizes[i]
	}
}

// complaint returns the errors that a retry cannot cure.
func (p *poll) complaint() error {
	var errs []error
	if len(p.refused) > 0 {
		errs = append(errs, fmt.Errorf("redisinaction: %w: %q is not a list, or this user may not write it; "+
			"%d items are due for it", ErrQueueRefused, p.refused[0], p.skip-p.first))
	}
	if p.foreign > 0 {
		errs = append(errs,
			fmt.Errorf("redisinaction: %w: %d items of %q are never due; the Go port of the book's code "+
				"scores in nanoseconds: give it another key or another server, and remove them "+
				"(ZRANGE %s (100000000000 +inf BYSCORE lists them)", ErrForeignScore, p.foreign, p.delayed(),
				p.delayed()))
	}
	return errors.Join(errs...)
}
