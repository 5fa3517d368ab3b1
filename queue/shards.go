package queue

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/luatomic/luatomic/lua"
)

// MaxShards bounds the shards of one queue.
const MaxShards = 256

// Shards is a queue in n parts, the queues name.0 to name.(n-1). Each shard has a hash tag of its own, so the shards
// spread over the nodes of a Redis Cluster. The promises of a Queue hold within a shard. Between shards there is no
// order and no atomic step.
//
// A job belongs to the shard of its unique name or, without one, of its id. So a unique name is held once over all
// shards. An id exists once within its shard: the same id with two unique names can exist twice. Another n assigns ids
// and names to other shards, so change n only while the shards are empty. The methods are safe for concurrent use.
type Shards struct {
	name   string
	queues []*Queue
	turn   atomic.Uint32 // number of Takes, which chooses the first shard of the next
}

// NewShards returns the queue of that name in n shards; nil options mean the defaults. Nothing is sent. An n
// outside 1 to MaxShards is lua.ErrOutOfRange, a bad name lua.ErrBadName. Shards have no Tag.
func NewShards(client lua.Client, name string, n int, opts *Options) (*Shards, error) {
	if n < 1 || n > MaxShards {
		return nil, fmt.Errorf("luatomic: shards of %q: %w", name,
			&lua.RangeError{Field: "shards", Value: fmt.Sprint(n), Min: "1", Max: fmt.Sprint(MaxShards)})
	}
	if opts != nil && opts.Tag != "" {
		return nil, fmt.Errorf("luatomic: shards of %q: the tag %q would put all shards into one slot; "+
			"leave queue.Options.Tag empty", name, opts.Tag)
	}
	s := &Shards{name: name, queues: make([]*Queue, n)}
	for i := range s.queues {
		var err error
		if s.queues[i], err = New(client, fmt.Sprintf("%s.%d", name, i), opts); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Queues returns the shards in order, for uses without a method of Shards: SetLimit, Audit, Peek, a Poller. The slice
// is a copy.
func (s *Shards) Queues() []*Queue { return slices.Clone(s.queues) }

// route returns the shard of a unique name or id. It is FNV-1a of 64 bits, mixed once more because its lowest bits
// depend only on the lowest bits of each byte. It must never change: existing jobs depend on it.
func (s *Shards) route(text string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return int((x ^ x>>33) % uint64(len(s.queues)))
}

// each calls f for all shards concurrently and joins the errors.
func (s *Shards) each(f func(i int, q *Queue) error) error {
	errs := make([]error, len(s.queues))
	var calls sync.WaitGroup
	for i, q := range s.queues {
		calls.Go(func() { errs[i] = f(i, q) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// wrap puts what was tried, such as "push to", and the name of the shards before an error.
func (s *Shards) wrap(what string, err error) error {
	return fmt.Errorf("luatomic: %s shards of %q: %w", what, s.name, err)
}
