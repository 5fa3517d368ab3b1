package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// allPage is how many ids one command reads.
const allPage = 1000

// jobIDs reads the ids of a queue's jobs of a state, while consumers take some and promoters move others. A rank is no
// place to go on from: each job that leaves moves those behind it up.
type jobIDs struct {
	client lua.Client
	ids    []string
	seen   map[string]bool
}

// allJobs returns the ids of the jobs that are in the state and stay in it meanwhile, each once, in the order in which
// they come up. One that comes meanwhile may be among them.
func allJobs(
	ctx context.Context, client lua.Client, q *queue.Queue, prefix string, state queue.State,
) ([]string, error) {
	k, err := keys.NewQueue(prefix, q.Tag(), q.Name())
	if err != nil {
		return nil, err
	}
	a := &jobIDs{client: client, seen: map[string]bool{}}
	switch state {
	case queue.Ready:
		err = a.list(ctx, k.Ready)
	case queue.Scheduled:
		err = a.set(ctx, k.Scheduled)
	case queue.Leased:
		err = a.set(ctx, k.Leases)
	case queue.Dead:
		err = a.set(ctx, k.Dead)
	}
	if err != nil {
		return nil, fmt.Errorf("the jobs of queue %q cannot be read: %w", q.Name(), err)
	}
	return inState(ctx, q, a.ids, state)
}

func (a *jobIDs) add(id string) {
	if !a.seen[id] {
		a.seen[id] = true
		a.ids = append(a.ids, id)
	}
}

// list reads the list from its tail to its head, by ranks that count from the tail: what is taken from the head moves
// none of them, and what is pushed meanwhile only shows some again.
func (a *jobIDs) list(ctx context.Context, key string) error {
	for last := int64(-1); ; last -= allPage {
		page, err := nodes.Read(ctx, a.client,
			redis.NewStringSliceCmd(ctx, "lrange", key, last-allPage+1, last)).Result()
		if err != nil {
			return err
		}
		for _, entry := range slices.Backward(page) {
			if _, id, ok := strings.Cut(entry, ":"); ok {
				a.add(id)
			}
		}
		if len(page) < allPage {
			slices.Reverse(a.ids)
			return nil
		}
	}
}

// set reads a sorted set on from the score of the page before. The jobs of that score are read again; where they fill
// the page, the next one is larger.
func (a *jobIDs) set(ctx context.Context, key string) error {
	for from, n := "-inf", allPage; ; {
		page, err := nodes.Read(ctx, a.client, redis.NewZSliceCmd(ctx, "zrange", key, from, "+inf", "byscore",
			"limit", 0, n, "withscores")).Result()
		if err != nil {
			return err
		}
		for _, z := range page {
			id, _ := z.Member.(string)
			a.add(id)
		}
		if len(page) < n {
			return nil
		}
		last := strconv.FormatFloat(page[len(page)-1].Score, 'f', -1, 64)
		if n = allPage; last == from {
			n = 2 * len(page)
		}
		from = last
	}
}

// inState leaves out the ids whose jobs are in another state by now. A job that was cancelled or buried can have its
// entry in the list of ready ones still.
func inState(ctx context.Context, q *queue.Queue, ids []string, state queue.State) (out []string, err error) {
	for some := range slices.Chunk(ids, 200) {
		found, err := q.Find(ctx, some...)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if f.State == state {
				out = append(out, f.ID)
			}
		}
	}
	return out, nil
}
