package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ShardsStats has the sums of all shards' counts, and the counts of each shard.
type ShardsStats struct {
	// Stats has the sums. Oldest and NextDue are the earliest times of the shards, Now is the latest. Paused reports
	// that all shards are paused. Limit is 0 if one shard has no limit.
	Stats
	Shards []Stats
}

// Stats counts the jobs of every shard, concurrently but not at one instant; see Queue.Stats. With an error the
// result is empty.
func (s *Shards) Stats(ctx context.Context) (ShardsStats, error) {
	out := ShardsStats{Shards: make([]Stats, len(s.queues))}
	if err := s.each(func(i int, q *Queue) (err error) {
		out.Shards[i], err = q.Stats(ctx)
		return err
	}); err != nil {
		return ShardsStats{}, err
	}
	out.Paused = true
	for _, t := range out.Shards {
		out.Stats.plus(t)
	}
	if slices.ContainsFunc(out.Shards, func(t Stats) bool { return t.Limit == 0 }) {
		out.Limit = 0
	}
	return out, nil
}

func (s *Stats) plus(t Stats) {
	s.Ready, s.Scheduled, s.Leased = s.Ready+t.Ready, s.Scheduled+t.Scheduled, s.Leased+t.Leased
	s.Lapsed += t.Lapsed
	s.Dead, s.DeadBytes, s.Limit = s.Dead+t.Dead, s.DeadBytes+t.DeadBytes, s.Limit+t.Limit
	s.Now, s.Paused = later(s.Now, t.Now), s.Paused && t.Paused
	s.Oldest, s.NextDue = earlier(s.Oldest, t.Oldest), earlier(s.NextDue, t.NextDue)
}

// Cancel removes jobs from the shards that have them; see Queue.Cancel. A job with a unique name may be in another
// shard than that of its id. So Cancel looks up ids that are Absent there in all other shards. With an error, a job
// reported as Absent may exist: if the shard of its id has not answered, no other shard is asked. Cost: at most two
// rounds of concurrent calls.
func (s *Shards) Cancel(ctx context.Context, ids ...string) ([]State, error) {
	return s.endJobs(ids, func(q *Queue, ids []string) ([]State, error) { return q.Cancel(ctx, ids...) })
}

// CancelIn is Cancel for jobs in one of these states; see Queue.CancelIn.
func (s *Shards) CancelIn(ctx context.Context, in []State, ids ...string) ([]State, error) {
	return s.endJobs(ids, func(q *Queue, ids []string) ([]State, error) { return q.CancelIn(ctx, in, ids...) })
}

// BuryJobs moves jobs to the dead sets of the shards that have them; see Queue.BuryJobs. Ids are looked up as in
// Cancel. Options.Dead bounds the dead set of each shard.
func (s *Shards) BuryJobs(ctx context.Context, reason string, ids ...string) ([]State, error) {
	return s.endJobs(ids, func(q *Queue, ids []string) ([]State, error) { return q.BuryJobs(ctx, reason, ids...) })
}

// BuryJobsIn is BuryJobs for jobs in one of these states; see Queue.BuryJobsIn.
func (s *Shards) BuryJobsIn(ctx context.Context, in []State, reason string, ids ...string) ([]State, error) {
	return s.endJobs(ids, func(q *Queue, ids []string) ([]State, error) {
		return q.BuryJobsIn(ctx, in, reason, ids...)
	})
}

// endJobs calls each shard for the ids that belong to it, and then the other shards for the ids that are Absent there.
// An id whose own shard has not answered is not looked up: another shard may have another job with that id.
func (s *Shards) endJobs(ids []string, call func(*Queue, []string) ([]State, error)) ([]State, error) {
	out := make([]State, len(ids))
	answered := make([]bool, len(s.queues))
	parts := make([][]int, len(s.queues)) // places of the ids to look up
	for i, id := range ids {
		out[i] = Absent
		parts[s.route(id)] = append(parts[s.route(id)], i)
	}
	err := s.endParts(ids, parts, out, func(shard int, q *Queue, ids []string) ([]State, error) {
		states, err := call(q, ids)
		answered[shard] = err == nil
		return states, err
	})
	parts = make([][]int, len(s.queues))
	for i, id := range ids {
		home := s.route(id)
		for shard := range parts {
			if out[i] == Absent && answered[home] && shard != home {
				parts[shard] = append(parts[shard], i)
			}
		}
	}
	return out, errors.Join(err, s.endParts(ids, parts, out, func(_ int, q *Queue, ids []string) ([]State, error) {
		return call(q, ids)
	}))
}

// endParts calls each shard for its part of the ids and writes the states of those it finds into out.
func (s *Shards) endParts(ids []string, parts [][]int, out []State,
	call func(int, *Queue, []string) ([]State, error)) error {
	var mu sync.Mutex
	return s.each(func(i int, q *Queue) error {
		part := make([]string, len(parts[i]))
		for k, place := range parts[i] {
			part[k] = ids[place]
		}
		states, err := call(i, q, part)
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

// Reschedule changes when a scheduled job is due, in the shard that has it; see Queue.Reschedule. It asks the shard of
// the id first, then all others concurrently.
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

// Pause stops all shards from giving out jobs; see Queue.Pause. The error names the shards that failed; the others
// are paused.
func (s *Shards) Pause(ctx context.Context) error {
	return s.each(func(_ int, q *Queue) error { return q.Pause(ctx) })
}

// Resume ends a pause of all shards. The error names the shards that failed; the others are resumed.
func (s *Shards) Resume(ctx context.Context) error {
	return s.each(func(_ int, q *Queue) error { return q.Resume(ctx) })
}
