package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keys"
)

const (
	// nameWithin bounds one attempt to name queues. firstNaming bounds the time for which the first push of a Queue
	// waits for it.
	nameWithin  = 5 * time.Second
	firstNaming = time.Second
)

// listing is what a Queue has in the list of queues. The server may lose the list at any time, so a Queue that was
// named once is named again after each later use.
type listing struct {
	named atomic.Bool // once, by this process
	used  atomic.Bool // it is in the uses
}

// uses are the queues that were pushed to since their process last named them. It names all of them in one call, up to
// five seconds after the first use.
var uses struct {
	sync.Mutex
	queues []*Queue
}

// register lists queues that were pushed to. The first push of a Queue names it immediately, and waits for that for up
// to a second, because the program may end after the push. The later pushes of five seconds share one call, which no
// push waits for. A failure is not reported: the jobs are in the queue, and the next push tries again. The queues have
// one client and one prefix.
func register(ctx context.Context, queues ...*Queue) {
	var first []*Queue
	for _, q := range queues {
		if !q.listing.named.Load() && q.listing.named.CompareAndSwap(false, true) {
			first = append(first, q)
		} else {
			q.listing.use(q)
		}
	}
	if len(first) == 0 {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		nameQueues(context.Background(), first)
	}()
	limit := time.NewTimer(firstNaming)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// use adds the queue to the uses, unless it is there. It costs a push one load.
func (l *listing) use(q *Queue) {
	if l.used.Load() || !l.used.CompareAndSwap(false, true) {
		return
	}
	uses.Lock()
	defer uses.Unlock()
	if len(uses.queues) == 0 {
		time.AfterFunc(reportEvery, nameUses)
	}
	uses.queues = append(uses.queues, q)
}

func nameUses() {
	uses.Lock()
	queues := uses.queues
	uses.queues = nil
	uses.Unlock()
	for _, q := range queues {
		q.listing.used.Store(false) // before the call: a push after it is another use
	}
	nameAll(context.Background(), queues)
}

// nameAll names queues of several clients and prefixes. No server waits for another.
func nameAll(ctx context.Context, queues []*Queue) {
	var calls sync.WaitGroup
	for len(queues) > 0 {
		first := queues[0]
		var here, elsewhere []*Queue
		for _, q := range queues {
			if q == first || q.opts.Prefix == first.opts.Prefix && sameClient(q.client, first.client) {
				here = append(here, q)
			} else {
				elsewhere = append(elsewhere, q)
			}
		}
		calls.Go(func() { nameQueues(ctx, here) })
		queues = elsewhere
	}
	calls.Wait()
}

// nameQueues adds queues of one client and prefix to the list of queues.
func nameQueues(ctx context.Context, queues []*Queue) {
	ctx, cancel := context.WithTimeout(ctx, nameWithin)
	defer cancel()
	fleet := keys.NewFleet(queues[0].opts.Prefix)
	for chunk := range slices.Chunk(queues, maxReported) {
		entries := make([]queuescript.ReportEntry, len(chunk))
		for i, q := range chunk {
			entries[i].Queue = q.keys.Listed
		}
		_, _ = queuescript.Report(ctx, chunk[0].client, fleetParams(fleet, "", 0, reportLease, nil, entries))
	}
}
