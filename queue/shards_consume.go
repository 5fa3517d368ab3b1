package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// handedBack is what becomes of a job that waited for its turn when the consumer
// stopped: as if not taken.
var handedBack = Snooze(0)

// Consume runs a consumer for each shard, as Queue.Consume does, with Concurrency
// handlers in all. The shards take turns: however many jobs one of them has, a job of
// another waits for one handler of each shard at most. One busy shard alone can use all
// handlers; for that each shard takes up to Concurrency jobs, and those that wait for
// their turn are leased meanwhile. Lower Concurrency where jobs are slow and other
// processes could run them.
//
// With Drain it ends when all shards are empty; what comes to a shard that was empty
// waits until the others are. A failure that no repeat can cure, on any shard, ends the
// consumers of all. Each shard costs a connection that listens.
func (s *Shards) Consume(ctx context.Context, opts *ConsumeOptions, h Handler) (Consumed, error) {
	var o ConsumeOptions
	if opts != nil {
		o = *opts
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 10
	}
	if report := o.OnError; report != nil {
		o.OnError = func(err error) {
			if err != handedBack {
				report(err)
			}
		}
	}
	var total Consumed
	for {
		out, err := s.consume(ctx, &o, h)
		total.Acked, total.Retried, total.Dead = total.Acked+out.Acked, total.Retried+out.Retried, total.Dead+out.Dead
		if err != nil {
			return total, err
		}
		// A handler may have pushed to a shard that was empty by then.
		if left, err := s.Stats(ctx); err == nil && left.Ready+left.Scheduled+left.Leased == 0 {
			return total, nil
		}
	}
}

func (s *Shards) consume(ctx context.Context, o *ConsumeOptions, h Handler) (total Consumed, _ error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	turns := newTurns(len(s.queues), o.Concurrency)
	var mu sync.Mutex
	err := s.each(func(i int, q *Queue) error {
		out, err := q.Consume(ctx, o, func(job context.Context, d *Delivery) error {
			if !turns.begin(ctx, job, i) {
				return handedBack
			}
			defer turns.end()
			return h(job, d)
		})
		mu.Lock()
		defer mu.Unlock()
		total.Acked, total.Retried, total.Dead = total.Acked+out.Acked, total.Retried+out.Retried, total.Dead+out.Dead
		if err != nil {
			stop(err) // the others end too, with this cause
		}
		return err
	})
	if err != nil {
		return total, context.Cause(ctx)
	}
	return total, nil
}

// turns gives places to handlers. Only one handler of a shard at a time stands in line
// for a place, and who has waited longest comes first: so the shards take turns.
type turns struct {
	first  []chan struct{} // of each shard
	places chan struct{}
}

func newTurns(shards, places int) *turns {
	t := &turns{first: make([]chan struct{}, shards), places: make(chan struct{}, places)}
	for i := range t.first {
		t.first[i] = make(chan struct{}, 1)
	}
	return t
}

// begin waits for a place; false when the consumer stops or the lease is lost first.
func (t *turns) begin(consumer, job context.Context, shard int) bool {
	if !enter(consumer, job, t.first[shard]) {
		return false
	}
	defer func() { <-t.first[shard] }()
	return enter(consumer, job, t.places)
}

func enter(consumer, job context.Context, line chan struct{}) bool {
	select {
	case line <- struct{}{}:
		if consumer.Err() == nil && job.Err() == nil {
			return true
		}
		<-line
	case <-consumer.Done():
	case <-job.Done():
	}
	return false
}

func (t *turns) end() { <-t.places }

// Take leases up to max jobs, at most MaxTake of each shard, shard by shard until it has
// them. Each call begins with the next shard, so that in n calls every shard comes first
// once.
//
// With an error the deliveries of the shards before and after are valid: handle them.
// Now, NextDue and NextLapse are the latest and the earliest of the shards asked;
// Paused says that all of those are. Each shard adds up to 1 MiB of bodies. Cost: one
// round trip for each shard asked.
func (s *Shards) Take(ctx context.Context, max int) (Taken, error) {
	if max < 1 {
		return Taken{}, fmt.Errorf("luatomic: take from shards of %q: %w", s.name, &lua.RangeError{Field: "max", Value: fmt.Sprint(max), Min: "1"})
	}
	out, n := Taken{Paused: true}, len(s.queues)
	begin := int((s.turn.Add(1) - 1) % uint32(n))
	var errs []error
	for i := range n {
		t, err := s.queues[(begin+i)%n].Take(ctx, max-len(out.Deliveries))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Deliveries = append(out.Deliveries, t.Deliveries...)
		out.Now, out.Dropped, out.Paused = later(out.Now, t.Now), out.Dropped+t.Dropped, out.Paused && t.Paused
		out.NextDue, out.NextLapse = earlier(out.NextDue, t.NextDue), earlier(out.NextLapse, t.NextLapse)
		if len(out.Deliveries) == max {
			break
		}
	}
	out.Paused = out.Paused && len(errs) < n
	return out, errors.Join(errs...)
}

func earlier(a, b lua.Opt[time.Time]) lua.Opt[time.Time] {
	at, one := a.Get()
	bt, other := b.Get()
	if !one || other && bt.Before(at) {
		return b
	}
	return a
}

// Ack finishes deliveries of any of the shards, one call for each shard, all at once;
// see Queue.Ack. It is only for deliveries that came from these Shards.
func (s *Shards) Ack(ctx context.Context, ds ...*Delivery) error {
	parts := make([][]*Delivery, len(s.queues))
	for _, d := range ds {
		i := slices.Index(s.queues, d.queue)
		if i < 0 {
			return fmt.Errorf("luatomic: ack on shards of %q: job %q was not taken from them", s.name, d.ID)
		}
		parts[i] = append(parts[i], d)
	}
	var mu sync.Mutex
	var gone LeaseLostError
	err := s.each(func(i int, q *Queue) error {
		err := q.Ack(ctx, parts[i]...)
		var lost *LeaseLostError
		if !errors.As(err, &lost) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		gone.IDs = append(gone.IDs, lost.IDs...)
		return nil
	})
	if len(gone.IDs) > 0 {
		err = errors.Join(err, &gone)
	}
	return err
}

// ShardsStats are the counts of all shards, added up, and of each.
type ShardsStats struct {
	// Stats are sums. Oldest and NextDue are the earliest, Now is the latest. Paused
	// says that all are paused; Limit is 0 when one has none.
	Stats
	Shards []Stats
}

// Stats counts the jobs of every shard, all at once but not at one instant.
func (s *Shards) Stats(ctx context.Context) (ShardsStats, error) {
	out := ShardsStats{Shards: make([]Stats, len(s.queues))}
	if err := s.each(func(i int, q *Queue) (err error) {
		out.Shards[i], err = q.Stats(ctx)
		return err
	}); err != nil {
		return ShardsStats{}, err
	}
	sum, unlimited := &out.Stats, false
	sum.Paused = true
	for _, t := range out.Shards {
		sum.Ready, sum.Scheduled, sum.Leased = sum.Ready+t.Ready, sum.Scheduled+t.Scheduled, sum.Leased+t.Leased
		sum.Dead, sum.DeadBytes, sum.Limit = sum.Dead+t.Dead, sum.DeadBytes+t.DeadBytes, sum.Limit+t.Limit
		sum.Now, sum.Paused = later(sum.Now, t.Now), sum.Paused && t.Paused
		sum.Oldest, sum.NextDue = earlier(sum.Oldest, t.Oldest), earlier(sum.NextDue, t.NextDue)
		unlimited = unlimited || t.Limit == 0
	}
	if unlimited {
		sum.Limit = 0
	}
	return out, nil
}

// Cancel takes jobs out of whichever shard has them; see Queue.Cancel. A job with a
// unique name does not stand in the shard of its id: so ids that are absent there are
// asked for in all others. With an error, one reported as absent may not be.
func (s *Shards) Cancel(ctx context.Context, ids ...string) ([]State, error) {
	out := make([]State, len(ids))
	parts := make([][]int, len(s.queues)) // places of the ids to ask for
	for i, id := range ids {
		out[i] = Absent
		parts[s.route(id)] = append(parts[s.route(id)], i)
	}
	err := s.cancel(ctx, ids, parts, out)
	parts = make([][]int, len(s.queues))
	for i, id := range ids {
		for shard := range parts {
			if out[i] == Absent && shard != s.route(id) {
				parts[shard] = append(parts[shard], i)
			}
		}
	}
	return out, errors.Join(err, s.cancel(ctx, ids, parts, out))
}

// cancel asks each shard for its places of ids and puts what it finds into out.
func (s *Shards) cancel(ctx context.Context, ids []string, parts [][]int, out []State) error {
	var mu sync.Mutex
	return s.each(func(i int, q *Queue) error {
		asked := make([]string, len(parts[i]))
		for k, place := range parts[i] {
			asked[k] = ids[place]
		}
		states, err := q.Cancel(ctx, asked...)
		mu.Lock()
		defer mu.Unlock()
		for k, state := range states {
			if state != Absent {
				out[parts[i][k]] = state
			}
		}
		return err
	})
}

// Reschedule changes when a scheduled job is due, in whichever shard has it; see
// Queue.Reschedule. The shard of the id is asked first, then all others.
func (s *Shards) Reschedule(ctx context.Context, id string, at time.Time) (Rescheduled, error) {
	home := s.route(id)
	out, err := s.queues[home].Reschedule(ctx, id, at)
	if err != nil || out.Found {
		return out, err
	}
	var mu sync.Mutex
	err = s.each(func(i int, q *Queue) error {
		if i == home {
			return nil
		}
		r, err := q.Reschedule(ctx, id, at)
		mu.Lock()
		defer mu.Unlock()
		if r.Found {
			out = r
		}
		return err
	})
	return out, err
}

// Pause lets all shards give out no more jobs; see Queue.Pause. With an error, which
// names the queues, the others are paused.
func (s *Shards) Pause(ctx context.Context) error {
	return s.each(func(_ int, q *Queue) error { return q.Pause(ctx) })
}

// Resume ends a pause of all shards.
func (s *Shards) Resume(ctx context.Context) error {
	return s.each(func(_ int, q *Queue) error { return q.Resume(ctx) })
}
