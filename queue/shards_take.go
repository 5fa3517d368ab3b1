package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/luatomic/luatomic/lua"
)

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
