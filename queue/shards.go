package queue

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

// Take leases up to max jobs, at most MaxTake from each shard, shard by shard until it has max jobs. Each call begins
// with the next shard, so every shard comes first once in n calls. A max below 1 is lua.ErrOutOfRange.
//
// With an error the deliveries from the other shards are valid: handle them. From the first delivery on, Take asks the
// shards for at most a third of Options.Lease, so a shard that does not answer leaves time for the work. Now is the
// latest time of the shards that were asked. NextDue and NextLapse are the earliest. Paused reports that all of them
// are paused. Keys and atomicity: as Queue.Take, for each shard. Cost: one round trip and up to 1 MiB of bodies for
// each shard asked.
func (s *Shards) Take(ctx context.Context, max int) (Taken, error) {
	if max < 1 {
		return Taken{}, s.wrap("take from", &lua.RangeError{Field: "max", Value: fmt.Sprint(max), Min: "1"})
	}
	out, n := Taken{Paused: true}, len(s.queues)
	begin := int((s.turn.Add(1) - 1) % uint32(n))
	var errs []error
	var until time.Time // the end of the questions, once there is a job
	for i := 0; i < n && len(out.Deliveries) < max && (until.IsZero() || time.Now().Before(until)); i++ {
		t, err := takeUntil(ctx, until, s.queues[(begin+i)%n], max-len(out.Deliveries))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if out.plus(t); until.IsZero() && len(out.Deliveries) > 0 {
			until = time.Now().Add(s.queues[0].opts.Lease / 3)
		}
	}
	out.Paused = out.Paused && len(errs) < n
	return out, errors.Join(errs...)
}

// takeUntil is q.Take that ends at a time, unless that is zero.
func takeUntil(ctx context.Context, end time.Time, q *Queue, max int) (Taken, error) {
	if !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	return q.Take(ctx, max)
}

func (t *Taken) plus(u Taken) {
	t.Deliveries = append(t.Deliveries, u.Deliveries...)
	t.Now, t.Dropped, t.Paused = later(t.Now, u.Now), t.Dropped+u.Dropped, t.Paused && u.Paused
	t.NextDue, t.NextLapse = earlier(t.NextDue, u.NextDue), earlier(t.NextLapse, u.NextLapse)
}

func earlier(a, b lua.Opt[time.Time]) lua.Opt[time.Time] {
	at, hasA := a.Get()
	bt, hasB := b.Get()
	if !hasA || hasB && bt.Before(at) {
		return b
	}
	return a
}

// Ack finishes deliveries of any of the shards, with concurrent calls, one for each shard; see Queue.Ack. The
// deliveries must come from these Shards.
func (s *Shards) Ack(ctx context.Context, ds ...*Delivery) error {
	parts := make([][]*Delivery, len(s.queues))
	for _, d := range ds {
		i := slices.Index(s.queues, d.queue)
		if i < 0 {
			err := fmt.Errorf("job %q was not taken from these Shards; ack it with its own queue", d.ID)
			return s.wrap("ack on", err)
		}
		parts[i] = append(parts[i], d)
	}
	errs := make([]error, len(parts))
	_ = s.each(func(i int, q *Queue) error {
		errs[i] = q.Ack(ctx, parts[i]...)
		return nil
	})
	return joinLost(errs...)
}
