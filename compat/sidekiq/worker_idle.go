package sidekiq

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"

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
// blocks while the list is empty. The job itself is taken by the script, which cannot lose it. Queues for which there
// is no connection are polled.
type idler struct {
	client  lua.Client
	keys    []string
	blocked []bool
	polling bool // the wait between two polls is under way
	woken   chan waitResult
	more    bool // some queues have no blocking command
}

// waitResult is the end of one wait.
type waitResult struct {
	at   int // betweenPolls, or the index of the queue
	poll bool
}

const betweenPolls = -1

func newIdler(d *Dialect, queues []Queue) idler {
	i := idler{client: d.client, more: len(queues) > maxBlocked}
	for _, q := range queues[:min(len(queues), maxBlocked)] {
		i.keys = append(i.keys, d.queueKey(q.Name))
	}
	i.blocked = make([]bool, len(i.keys))
	i.woken = make(chan waitResult, len(i.keys)+1)
	return i
}

// start begins a wait for each queue that has none. A blocked command cannot be cancelled, so a wait may outlast Work
// for up to blockFor. It changes nothing, and the channel has a slot for its result.
func (i *idler) start(ctx context.Context) {
	polls := i.more
	for at, key := range i.keys {
		switch {
		case i.blocked[at]:
		case lent.begin(i.client):
			i.blocked[at] = true
			go func() { i.woken <- waitResult{at, i.wait(ctx, key)} }()
		default:
			polls = true
		}
	}
	if polls && !i.polling {
		i.polling = true
		go func() {
			clock.Sleep(ctx, pollEvery)
			i.woken <- waitResult{betweenPolls, true}
		}()
	}
}

// ended records the end of a wait and reports whether to poll the queues.
func (i *idler) ended(w waitResult) bool {
	if w.at == betweenPolls {
		i.polling = false
	} else {
		i.blocked[w.at] = false
	}
	return w.poll
}

// wait reports whether to poll: the queue has a job. After an error it sleeps and reports true: the poll returns the
// error.
func (i *idler) wait(ctx context.Context, key string) bool {
	err := i.client.BLMove(ctx, key, key, "RIGHT", "RIGHT", blockFor).Err()
	lent.end(i.client)
	if err == nil || errors.Is(err, redis.Nil) {
		return err == nil
	}
	clock.Sleep(ctx, blockFor)
	return true
}

// lent counts the connections of each client on which blocking commands wait, over all workers of the process. All
// other calls of these clients need connections, too.
var lent lending

type lending struct {
	mu sync.Mutex
	n  map[lua.Client]int
}

// begin takes a connection for a blocking command, and reports whether the client has one to spare.
func (l *lending) begin(client lua.Client) bool {
	if !reflect.TypeOf(client).Comparable() {
		return true // it cannot be counted
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n[client] >= spare(client) {
		return false
	}
	if l.n == nil {
		l.n = make(map[lua.Client]int)
	}
	l.n[client]++
	return true
}

func (l *lending) end(client lua.Client) {
	if !reflect.TypeOf(client).Comparable() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n[client]--; l.n[client] == 0 {
		delete(l.n, client)
	}
}

// spare is how many connections of a client may wait: all but two of its pool, that of one server in a cluster.
func spare(client lua.Client) int {
	size, most := 0, 0
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	case interface{ Options() *redis.ClusterOptions }:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	case interface{ Options() *redis.RingOptions }:
		size, most = c.Options().PoolSize, c.Options().MaxActiveConns
	default:
		return math.MaxInt // it does not say
	}
	if most > 0 {
		size = min(size, most)
	}
	return size - 2
}
