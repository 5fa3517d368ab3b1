package queue

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/keys"
)

const (
	// registerAgain is how often a producer or a poller lists its queue, registerRetry how soon it does again after a
	// failure.
	registerAgain = time.Hour
	registerRetry = 10 * time.Second
	// registerWithin bounds one attempt. firstRegister bounds the time for which the first push of a Queue waits for
	// it.
	registerWithin = 5 * time.Second
	firstRegister  = time.Second
)

// listing is when a Queue is to be listed next, in Unix ns.
type listing struct{ next atomic.Int64 }

func (l *listing) again(after time.Duration) { l.next.Store(time.Now().Add(after).UnixNano()) }

// due reports whether this caller, and no other, is to list the queue now, and whether it is the first to do so.
func (l *listing) due(now time.Time) (due, first bool) {
	next := l.next.Load()
	if now.UnixNano() < next || !l.next.CompareAndSwap(next, now.Add(registerAgain).UnixNano()) {
		return false, false
	}
	return true, next == 0
}

// register lists queues that were pushed to, once an hour, in a call of its own that does not delay the push. The first
// push waits up to a second for it, because the program may end after the push. A failure is not reported: the jobs are
// in the queue, and a push ten seconds later tries again. The queues have one client and one prefix.
func register(ctx context.Context, queues ...*Queue) {
	named, wait := dueQueues(queues)
	if len(named) == 0 {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		nameQueues(context.Background(), named)
	}()
	if !wait {
		return
	}
	limit := time.NewTimer(firstRegister)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// dueQueues returns the queues that are to be listed now. first reports that one of them is listed for the first time.
func dueQueues(queues []*Queue) (named []*Queue, first bool) {
	now := time.Now()
	for _, q := range queues {
		if due, new := q.listing.due(now); due {
			named, first = append(named, q), first || new
		}
	}
	return named, first
}

// registerAll lists the queues of a poller, which may have several clients and prefixes.
func registerAll(ctx context.Context, queues []*Queue) {
	named, _ := dueQueues(queues)
	for len(named) > 0 {
		first := named[0]
		var here, elsewhere []*Queue
		for _, q := range named {
			if q == first || q.opts.Prefix == first.opts.Prefix && sameClient(q.client, first.client) {
				here = append(here, q)
			} else {
				elsewhere = append(elsewhere, q)
			}
		}
		nameQueues(ctx, here)
		named = elsewhere
	}
}

// nameQueues adds queues of one client and prefix to the list of queues.
func nameQueues(ctx context.Context, queues []*Queue) {
	ctx, cancel := context.WithTimeout(ctx, registerWithin)
	defer cancel()
	fleet := keys.NewFleet(queues[0].opts.Prefix)
	for chunk := range slices.Chunk(queues, maxReported) {
		entries := make([]gen.QueueReportEntry, len(chunk))
		for i, q := range chunk {
			entries[i].Queue = q.keys.Listed
		}
		_, err := gen.QueueReport(ctx, chunk[0].client, fleetParams(fleet, "", 0, reportLease, nil, entries))
		for _, q := range chunk {
			if err != nil {
				q.listing.again(registerRetry)
			}
		}
	}
}
