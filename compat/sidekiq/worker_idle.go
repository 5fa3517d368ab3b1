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

// order is the keys of the queues in the order in which one look serves them: as given, or with weights by lot, as in Sidekiq.
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

// draw gives the place of one of the queues, by their weights; none counts as 1.
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

// idler waits for empty queues to get a job. BLMOVE from the tail of a list to its own tail changes nothing and blocks while the list is
// empty, so it is a look that waits: whoever takes the job then does so by the script, which cannot lose it.
type idler struct {
	client  lua.Client
	keys    []string
	blocked []bool
	woken   chan wake
	more    bool // there are queues that nobody waits for
}

// wake is the end of one wait.
type wake struct {
	at   int
	look bool
}

func newIdler(d *Dialect, queues []Queue) idler {
	i := idler{client: d.client, more: len(queues) > maxBlocked}
	for _, q := range queues[:min(len(queues), maxBlocked)] {
		i.keys = append(i.keys, d.queueKey(q.Name))
	}
	i.blocked = make([]bool, len(i.keys))
	i.woken = make(chan wake, len(i.keys))
	return i
}

// start waits for each queue that is not waited for. A blocked command cannot be called off, so a wait may go on for a while when Work has
// ended; it changes nothing, and its word has room in the channel.
func (i *idler) start(ctx context.Context) {
	for at, key := range i.keys {
		if i.blocked[at] {
			continue
		}
		i.blocked[at] = true
		go func() { i.woken <- wake{at, i.wait(ctx, key)} }()
	}
}

// ended takes note of the end of a wait, and says whether to look into the queues.
func (i *idler) ended(w wake) bool {
	i.blocked[w.at] = false
	return w.look
}

// wait says whether the queue has a job, or whether it is time to look all the same. What is wrong with the server or with the key shows
// when the worker looks.
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
