package keeper

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/luatomic/luatomic/lua"
)

const (
	// batchSize is how many leases are renewed in one round trip.
	batchSize = 500
	// maxRoundTrip bounds one round trip of renewals.
	maxRoundTrip = 5 * time.Second
	// maxInFlight bounds the round trips to one server that have no answer.
	maxInFlight = 4
	// maxSleep bounds the time between two checks of the clocks, and between two checks for due leases.
	maxSleep = 500 * time.Millisecond
)

// retryAfter returns the time between an attempt without an answer and the next one.
func retryAfter(ttl time.Duration) time.Duration {
	return max(min(ttl/10, time.Second), time.Millisecond)
}

// slack returns how much earlier than due a lease may be renewed together with others.
func slack(ttl time.Duration) time.Duration { return min(ttl/30, retryAfter(ttl)/2) }

// run renews leases until the server has none.
func (s *server) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, wait, idle := s.pick()
		switch {
		case idle:
			return
		case len(batch) > 0:
			s.send(batch)
			continue
		}
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// pick returns the leases that are due now or within their slack, or the time until one is. The leases that it returns
// are due again after retryAfter, unless an answer postpones that. idle reports that the server has no lease: the
// goroutine ends.
func (s *server) pick() (batch []*keptContext, wait time.Duration, idle bool) {
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	if len(s.due) == 0 {
		delete(renewals.servers, s.key)
		return nil, 0, true
	}
	now := time.Now()
	if wait = min(s.due[0].next.Sub(now), maxSleep); wait > 0 {
		s.wakes = now.Add(wait)
		return nil, wait, false
	}
	for len(batch) < batchSize {
		c := s.due[0]
		ttl := c.lease.terms.TTL
		if c.next.After(now.Add(slack(ttl))) {
			break
		}
		c.next = now.Add(retryAfter(ttl))
		heap.Fix(&s.due, 0)
		batch = append(batch, c)
	}
	return batch, 0, false
}

// send renews a batch. It does not wait for a round trip that takes too long: that one's results count when they
// arrive, and meanwhile the leases are renewed in another round trip, on another connection.
func (s *server) send(batch []*keptContext) {
	late := time.Second
	here := batch[:0]
	for _, c := range batch {
		if name := c.lease.holder.Server(c.Context); name != s.key.name {
			renewals.move(c, name)
			continue
		}
		late = min(late, retryAfter(c.lease.terms.TTL))
		here = append(here, c)
	}
	if len(here) == 0 {
		return
	}
	s.slots <- struct{}{}
	done := make(chan struct{})
	go func() {
		renew(here)
		<-s.slots
		close(done)
	}()
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// extension is the renewal of one lease in a round trip.
type extension struct {
	kept    *keptContext
	length  time.Duration
	moves   bool // the holder calls Lease.Extended
	outcome func() error
}

// renew extends a batch in one round trip, and applies the result of each extension.
func renew(batch []*keptContext) {
	sent := time.Now()
	b := lua.NewBatch(batch[0].lease.keeper.client)
	extensions := fill(b, batch, sent)
	ctx, cancel := context.WithTimeout(context.Background(), maxRoundTrip)
	defer cancel()
	_ = b.Exec(ctx) // each outcome has its own error
	for i := range extensions {
		e := &extensions[i]
		l := e.kept.lease
		err := e.outcome()
		switch {
		case err != nil:
			err = l.failed(err)
		case !e.moves:
			err = l.Extended(sent, e.length)
		}
		if err == nil {
			e.kept.renewed(e.length)
		} else if errors.Is(err, l.keeper.causes.Lost) {
			renewals.remove(e.kept) // it was released meanwhile, or it has ended
		}
	}
}

// renewed schedules the next renewal after one of that length. A shorter extension may have come after it.
func (c *keptContext) renewed(length time.Duration) {
	l := c.lease
	l.mu.Lock()
	next := l.due()
	if length < l.terms.TTL { // MaxHold allows no more
		next = l.deadline.Add(time.Hour)
	}
	l.mu.Unlock()
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	if c.server != nil {
		c.server.schedule(c, next)
	}
}

// fill adds the calls of a batch to b: one for each lease, or one for each group of leases.
func fill(b *lua.Batch, batch []*keptContext, sent time.Time) []extension {
	extensions := make([]extension, 0, len(batch))
	type groupKey struct {
		of     any
		length time.Duration
	}
	groups := make(map[groupKey][]int)
	for _, c := range batch {
		l := c.lease
		l.mu.Lock()
		e := extension{kept: c, length: l.length(sent)}
		l.mu.Unlock()
		if t, ok := l.holder.(Together); ok {
			e.moves = true
			key := groupKey{t.Group(), e.length}
			groups[key] = append(groups[key], len(extensions))
		} else {
			e.outcome = l.holder.Extend(b, e.length)
		}
		extensions = append(extensions, e)
	}
	for key, members := range groups {
		hs := make([]Together, len(members))
		for i, at := range members {
			hs[i] = extensions[at].kept.lease.holder.(Together)
		}
		outcome := hs[0].ExtendAll(b, hs, key.length)
		for i, at := range members {
			extensions[at].outcome = func() error { return outcome(i) }
		}
	}
	return extensions
}
