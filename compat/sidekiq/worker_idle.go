package sidekiq

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/lua"
)

// order returns the keys of the queues in the order in which one take serves them: as given, or with weights at
// random, as in Sidekiq.
func (w *worker) order() []string {
	keys := make([]string, 0, len(w.o.Queues))
	if !w.weighted {
		for _, q := range w.o.Queues {
			keys = append(keys, w.d.queueKey(q.Name))
		}
		return keys
	}
	left := slices.Clone(w.o.Queues)
	for len(left) > 0 {
		at := draw(left)
		keys = append(keys, w.d.queueKey(left[at].Name))
		left = slices.Delete(left, at, at+1)
	}
	return keys
}

// draw returns the index of a random queue, by weight; none counts as 1.
func draw(queues []Queue) int {
	total := 0
	for _, q := range queues {
		total += max(q.Weight, 1)
	}
	ticket := rand.IntN(total)
	for i, q := range queues {
		if ticket -= max(q.Weight, 1); ticket < 0 {
			return i
		}
	}
	return 0
}

// idler waits until an empty queue gets a job. BLMOVE from the tail of a list to its own tail changes nothing and
// blocks while the list is empty. The job itself is taken by the script, which cannot lose it.
type idler struct {
	client  lua.Client
	keys    []string
	blocked []bool
	woken   chan waitResult
	more    bool // some queues have no blocking command
}

// waitResult is the end of one wait.
type waitResult struct {
	at   int
	poll bool
}

func newIdler(d *Dialect, queues []Queue) idler {
	i := idler{client: d.client, more: len(queues) > maxBlocked}
	for _, q := range queues[:min(len(queues), maxBlocked)] {
		i.keys = append(i.keys, d.queueKey(q.Name))
	}
	i.blocked = make([]bool, len(i.keys))
	i.woken = make(chan waitResult, len(i.keys))
	return i
}

// start begins a wait for each queue that has none. A blocked command cannot be cancelled, so a wait may outlast Work
// for up to blockFor. It changes nothing, and the channel has a slot for its result.
func (i *idler) start(ctx context.Context) {
	for at, key := range i.keys {
		if i.blocked[at] {
			continue
		}
		i.blocked[at] = true
		go func() { i.woken <- waitResult{at, i.wait(ctx, key)} }()
	}
}

// ended records the end of a wait and reports whether to poll the queues.
func (i *idler) ended(w waitResult) bool {
	i.blocked[w.at] = false
	return w.poll
}

// wait reports whether to poll: the queue has a job, or some queues have no blocking command. After an error it
// sleeps and reports true: the poll returns the error.
func (i *idler) wait(ctx context.Context, key string) bool {
	err := i.client.BLMove(ctx, key, key, "RIGHT", "RIGHT", blockFor).Err()
	switch {
	case err == nil:
		return true
	case errors.Is(err, redis.Nil):
		return i.more
	}
	clock.Sleep(ctx, blockFor)
	return true
}
