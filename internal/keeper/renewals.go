package keeper

import (
	"container/heap"
	"sync"
	"time"
)

// renewals are the leases of this process that are kept, by server.
var renewals = registry{servers: make(map[serverKey]*server)}

type registry struct {
	mu      sync.Mutex // guards all below, and the heaps
	servers map[serverKey]*server
}

// serverKey names a server: more than one client may have an empty name for theirs.
type serverKey struct {
	of   any // the client, or the keeper where clients cannot be compared
	name string
}

// server renews the leases of one server, in a goroutine that runs while there are any, and a little longer.
type server struct {
	key   serverKey
	due   dueHeap
	wakes time.Time     // when the goroutine looks for due leases next
	wake  chan struct{} // makes it look now
	slots chan struct{} // taken by the round trips in flight
}

// add schedules the first renewal of the lease of c.
func (r *registry) add(c *keptContext, at time.Time) {
	l := c.lease
	name := l.holder.Server(c.Context)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.ended() || l.keeper.closed {
		return // since Keep checked; nothing would remove it
	}
	r.assign(c, serverKey{l.keeper.id, name}, at)
}

// assign gives the lease to a server. The caller holds the lock.
func (r *registry) assign(c *keptContext, key serverKey, at time.Time) {
	s := r.servers[key]
	if s == nil {
		s = &server{key: key, wake: make(chan struct{}, 1), slots: make(chan struct{}, maxInFlight)}
		r.servers[key] = s
		s.wakes = time.Now() // it looks as it starts
		go s.run()
		time.AfterFunc(maxSleep, s.endExpired)
	}
	c.server, c.next = s, at
	heap.Push(&s.due, c)
	if at.Before(s.wakes) {
		s.signal()
	}
}

// remove stops the renewal of the lease.
func (r *registry) remove(c *keptContext) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.server != nil {
		c.server.remove(c)
	}
}

// of returns the contexts of the keeper's leases. The caller holds the lock.
func (r *registry) of(k *Keeper) (kept []*keptContext) {
	for key, s := range r.servers {
		if key.of != k.id {
			continue
		}
		for _, c := range s.due {
			if c.lease.keeper == k {
				kept = append(kept, c)
			}
		}
	}
	return kept
}

// remove takes the lease out of the heap. The caller holds the lock.
func (s *server) remove(c *keptContext) {
	heap.Remove(&s.due, c.index)
	c.server = nil
}

// schedule sets the time of the next renewal. The caller holds the lock.
func (s *server) schedule(c *keptContext, at time.Time) {
	c.next = at
	heap.Fix(&s.due, c.index)
	if at.Before(s.wakes) {
		s.signal()
	}
}

// signal wakes the goroutine to renew the leases that are due.
func (s *server) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// move gives the lease to the server of that name, and renews it now: its hash slot has moved.
func (r *registry) move(c *keptContext, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := c.server; s != nil {
		s.remove(c)
		r.assign(c, serverKey{s.key.of, name}, time.Now())
	}
}

// endExpired ends the leases that are over by a clock: timers do not count the time in which the machine was suspended.
// It runs again after maxSleep while the server has leases. Neither a slow round trip nor a slow holder delays it.
func (s *server) endExpired() {
	over := make(map[*Entry]error)
	renewals.mu.Lock()
	if renewals.servers[s.key] == s {
		time.AfterFunc(maxSleep, s.endExpired)
	}
	for _, c := range s.due {
		if err := c.lease.Err(); err != nil {
			over[c.lease] = err
		}
	}
	renewals.mu.Unlock()
	for l, err := range over {
		l.End(err)
	}
}

// dueHeap orders contexts by the time of their renewal.
type dueHeap []*keptContext

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].next.Before(d[j].next) }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *dueHeap) Push(x any) {
	c := x.(*keptContext)
	c.index = len(*d)
	*d = append(*d, c)
}

func (d *dueHeap) Pop() any {
	old := *d
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	return c
}
