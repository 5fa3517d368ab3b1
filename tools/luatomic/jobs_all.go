package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// allJobs returns the ids of the jobs that are in the state and stay in it meanwhile, each once, in the order in which
// they come up. One that comes or leaves meanwhile may be among them, and a ready one that was cancelled or buried and
// has its entry in the list still: the change names its state, and passes over those. So no body is read.
func allJobs(
	ctx context.Context, client lua.Client, q *queue.Queue, prefix string, state queue.State,
) ([]string, error) {
	k, err := keys.NewQueue(prefix, q.Tag(), q.Name())
	if err != nil {
		return nil, err
	}
	from := map[queue.State]*operate.Reader{
		queue.Ready: operate.ReadList(client, k.Ready), queue.Scheduled: operate.ReadSet(client, k.Scheduled),
		queue.Leased: operate.ReadSet(client, k.Leases), queue.Dead: operate.ReadSet(client, k.Dead),
	}[state]
	all, seen := []string(nil), make(map[string]bool)
	for !from.Over() {
		page, err := from.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("the jobs of queue %q cannot be read: %w", q.Name(), err)
		}
		for _, j := range page {
			if !seen[j.ID] {
				seen[j.ID] = true
				all = append(all, j.ID)
			}
		}
	}
	if state == queue.Ready { // it is read from its tail
		slices.Reverse(all)
	}
	return all, nil
}
