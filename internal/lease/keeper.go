package lease

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// Keeper renews the leases of a process, 500 in a round trip, with one goroutine that runs while there are any.
type Keeper struct {
	client  lua.Client
	causes  Causes
	running sync.WaitGroup

	mu     sync.Mutex // guards all below
	kept   map[*Lease]struct{}
	due    dueHeap
	wake   chan struct{} // nil while nothing runs
	stop   context.CancelFunc
	closed bool
}

// NewKeeper returns a keeper whose leases end with the causes. Nothing is sent and nothing starts.
func NewKeeper(client lua.Client, causes Causes) *Keeper {
	return &Keeper{client: client, causes: causes, kept: make(map[*Lease]struct{})}
}

// RenewAll renews every lease now: a notification may have been missed.
func (k *Keeper) RenewAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wake == nil {
		return
	}
	now := time.Now()
	for _, c := range k.due {
		c.next = now
	}
	k.signal()
}

// EndWhere ends, because of why, the leases that are kept and whose holder matches.
func (k *Keeper) EndWhere(why error, match func(Holder) bool) {
	var matched []*Lease
	k.mu.Lock()
	for l := range k.kept {
		if match(l.holder) {
			matched = append(matched, l)
		}
	}
	k.mu.Unlock()
	for _, l := range matched {
		l.End(why)
	}
}

// Close renews no lease any more. It ends none: each ends at its deadline.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	k.idle()
	k.mu.Unlock()
	k.running.Wait()
}

// add renews the lease of c after d for the first time.
func (k *Keeper) add(c *keptContext, d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.lease.ended() {
		return // since Keep looked; nobody would remove it
	}
	k.kept[c.lease] = struct{}{}
	c.next = time.Now().Add(d)
	heap.Push(&k.due, c)
	switch {
	case k.closed:
	case k.wake == nil:
		ctx, stop := context.WithCancel(context.Background())
		wake := make(chan struct{}, 1)
		k.wake, k.stop = wake, stop
		k.running.Go(func() { k.run(ctx, wake) })
	case c.index == 0:
		k.signal()
	}
}

// ended reports whether the end of the lease was noticed.
func (l *Lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over != nil
}

// remove renews the lease no more.
func (k *Keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, l)
	if l.kept.index >= 0 {
		heap.Remove(&k.due, l.kept.index)
	}
	if len(k.kept) == 0 {
		k.idle()
	}
}

// idle stops the goroutine. The caller holds the lock.
func (k *Keeper) idle() {
	if k.wake != nil {
		k.stop()
		k.wake = nil
	}
}

// signal has the goroutine pick what is due. The caller holds the lock.
func (k *Keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run renews while there is a lease to keep.
func (k *Keeper) run(ctx context.Context, wake <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		timer.Reset(k.renewDue(ctx))
	}
}

// renewDue renews what is due and returns how long until the next is.
func (k *Keeper) renewDue(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		batch, wait := k.pick()
		if len(batch) == 0 {
			return wait
		}
		k.renew(ctx, batch)
	}
	return 0
}

const (
	// batchSize is how many leases are renewed in one round trip.
	batchSize = 500
	// maxRoundTrip bounds one round trip of renewals.
	maxRoundTrip = 5 * time.Second
)

// pick takes what is due out of the heap, with what is due soon, or says how long until something is.
func (k *Keeper) pick() ([]*keptContext, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.due) == 0 {
		return nil, time.Hour
	}
	now := time.Now()
	if wait := k.due[0].next.Sub(now); wait > 0 {
		return nil, wait
	}
	var batch []*keptContext
	for len(k.due) > 0 && len(batch) < batchSize {
		c := k.due[0]
		if c.next.After(now.Add(c.lease.terms.TTL / 30)) {
			break
		}
		heap.Pop(&k.due)
		batch = append(batch, c)
	}
	return batch, 0
}

// renew extends a batch and puts back what is still held.
func (k *Keeper) renew(ctx context.Context, batch []*keptContext) {
	sent := time.Now()
	b := lua.NewBatch(k.client)
	lengths := make([]time.Duration, len(batch))
	outcomes := make([]func() error, len(batch))
	bound := sent.Add(maxRoundTrip)
	for i, c := range batch {
		l := c.lease
		l.mu.Lock()
		lengths[i] = l.length(sent)
		if l.deadline.Before(bound) {
			bound = l.deadline
		}
		l.mu.Unlock()
		outcomes[i] = l.holder.Extend(b, lengths[i])
	}
	ctx, cancel := context.WithDeadline(ctx, bound)
	defer cancel()
	_ = b.Exec(ctx) // each outcome has its own error
	for i, c := range batch {
		err := c.lease.extended(sent, lengths[i], outcomes[i]())
		if wait, again := k.nextRenewal(c.lease, lengths[i], err); again {
			k.putBack(c, sent.Add(wait))
		}
	}
}

// nextRenewal is how long after one renewal the next one is due, if it is.
func (k *Keeper) nextRenewal(l *Lease, length time.Duration, err error) (wait time.Duration, again bool) {
	switch {
	case errors.Is(err, k.causes.Lost):
		return 0, false
	case err != nil:
		return min(length/10, time.Second), true
	}
	return length / 3, length >= l.terms.TTL // else MaxHold allows no more
}

func (k *Keeper) putBack(c *keptContext, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, kept := k.kept[c.lease]; !kept {
		return // it ended meanwhile
	}
	c.next = next
	heap.Push(&k.due, c)
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
	c.index = -1
	return c
}
