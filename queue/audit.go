package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
)

// A queue gets out of step by what is done behind its back: a key deleted or evicted,
// a restore of some keys, a failover that lost some writes. An audit reads the queue
// in pages, as it changes under it, and so only suspects. queue_mend looks again, in
// one step.

// Audited is what an audit found.
type Audited struct {
	// Checked counts the bodies that were looked at.
	Checked int
	// Lost jobs have a body and are neither ready, scheduled, leased nor dead: no
	// worker would get them. The ids of the first 100, and how many there are.
	Lost      []string
	LostTotal int
	// Ghosts are scheduled, leased or dead, and have no body.
	Ghosts     []string
	GhostTotal int
	// StaleNames are unique names held by jobs that are gone, so that no other gets
	// them.
	StaleNames int
	// StaleCounts are the counts of failures, and the marks of cancelled jobs, that
	// nothing would clear away.
	StaleCounts int
	// DeadBytes is by how much the count of the dead set's bytes is too low, or,
	// below zero, too high.
	DeadBytes int
	// Mended counts what was mended of all this.
	Mended int
}

// OK reports that nothing is out of step.
func (a *Audited) OK() bool {
	return a.LostTotal+a.GhostTotal+a.StaleNames+a.StaleCounts == 0 && a.DeadBytes == 0
}

// Audit finds what is out of step, such as after a restore, an eviction or a DEL by
// hand, and mends it if told to. A lost job becomes ready at once: where it stood
// before is not known any more, so a job that was scheduled runs early, and one that
// was dead runs again. Ghosts, stale names and stale counts are removed.
//
// Without mend nothing changes, and it may run at any time. With mend, run it after
// such an event and when the queue is quiet: a job that moves during all of the audit
// can be taken for lost where ready holds more than 1000 jobs, and is then delivered
// twice, never lost. A second audit finds nothing but what happened since.
//
// No call takes the server more than a few milliseconds; ready and bodies are read in
// pages, and bodies travel only where HSCAN has no NOVALUES (before Redis 7.4). Ids of
// ready jobs are held in memory. An error leaves what was mended before it mended.
// Keys: all but i. Cost: O(n) in some round trips for each 100 to 1000 jobs.
func (q *Queue) Audit(ctx context.Context, mend bool) (Audited, error) {
	a := &audit{queue: q, mend: mend, count: firstPage}
	for _, step := range []func(context.Context) error{a.lost, a.ghosts, a.counts, a.names, a.deadBytes} {
		if err := step(ctx); err != nil {
			return a.out, fmt.Errorf("luatomic: audit of %q: %w", q.name, err)
		}
	}
	return a.out, nil
}

type audit struct {
	queue *Queue
	mend  bool
	out   Audited

	count    int64 // fields of the next HSCAN
	byValues bool  // the server has no HSCAN NOVALUES
}

const (
	firstPage = 10
	maxPage   = 1000
	maxScan   = 500 // fields in one scan, which takes longer
	maxMend   = 100
	pageBytes = 1 << 18 // of bodies in one reply
	maxNamed  = 100
)

// lost finds bodies that stand nowhere. A job can pass from one place to another
// between two looks, so who is missing is looked for once more.
func (a *audit) lost(ctx context.Context) error {
	ready := make(map[string]bool)
	if err := a.ready(ctx, func(id string) { ready[id] = true }); err != nil {
		return err
	}
	var missing []string
	err := a.fields(ctx, a.queue.keys.Bodies, false, func(page []string) error {
		a.out.Checked += len(page)
		page = slices.DeleteFunc(page, func(id string) bool { return ready[id] })
		found, err := a.nowhere(ctx, page)
		missing = append(missing, found...)
		return err
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	clear(ready)
	if err := a.ready(ctx, func(id string) { ready[id] = true }); err != nil {
		return err
	}
	missing = slices.DeleteFunc(missing, func(id string) bool { return ready[id] })
	suspects := make([]gen.QueueMendSuspect, len(missing))
	for i, id := range missing {
		suspects[i] = gen.QueueMendSuspect{Kind: gen.QueueMendKindLost, ID: id}
	}
	return a.check(ctx, suspects, func(id string, verdict int64) {
		if verdict == 2 {
			a.out.StaleCounts++
			return
		}
		a.out.LostTotal++
		a.out.Lost = listed(a.out.Lost, id)
	})
}

// ready calls f for the ids of the ready list, from its tail to its head: workers take
// from the head, so no entry that stays is passed over.
func (a *audit) ready(ctx context.Context, f func(id string)) error {
	for last := int64(-1); ; last -= maxPage {
		page, err := a.queue.client.LRange(ctx, a.queue.keys.Ready, last-maxPage+1, last).Result()
		if err != nil {
			return err
		}
		for _, entry := range page {
			_, id, _ := strings.Cut(entry, ":")
			f(id)
		}
		if len(page) < maxPage {
			return nil
		}
	}
}

// nowhere returns the ids that are neither scheduled nor leased nor dead.
func (a *audit) nowhere(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	k := &a.queue.keys
	var scores []*redis.FloatSliceCmd
	_, err := a.queue.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range []string{k.Scheduled, k.Leases, k.Dead} {
			scores = append(scores, p.ZMScore(ctx, key, ids...))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for i, id := range ids {
		if !slices.ContainsFunc(scores, func(c *redis.FloatSliceCmd) bool { return c.Val()[i] != 0 }) {
			out = append(out, id)
		}
	}
	return out, nil
}

// ghosts finds ids that stand somewhere without a body.
func (a *audit) ghosts(ctx context.Context) error {
	var all []gen.QueueMendSuspect
	k := &a.queue.keys
	for _, key := range []string{k.Scheduled, k.Leases, k.Dead} {
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			page, next, err := a.queue.client.ZScan(ctx, key, cursor, "", maxScan).Result()
			if err != nil {
				return err
			}
			var ids []string
			for i := 0; i < len(page); i += 2 { // each with its score
				ids = append(ids, page[i])
			}
			if err := a.gone(ctx, ids, func(i int) {
				all = append(all, gen.QueueMendSuspect{Kind: gen.QueueMendKindGhost, ID: ids[i]})
			}); err != nil {
				return err
			}
			cursor = next
		}
	}
	return a.check(ctx, all, func(id string, _ int64) {
		a.out.GhostTotal++
		a.out.Ghosts = listed(a.out.Ghosts, id)
	})
}

// counts finds failures of jobs that are gone.
func (a *audit) counts(ctx context.Context) error {
	var all []gen.QueueMendSuspect
	err := a.fields(ctx, a.queue.keys.Failures, false, func(page []string) error {
		for i := range page {
			page[i] = strings.TrimSuffix(page[i], "\n") // a count and a reason have two fields
		}
		return a.gone(ctx, page, func(i int) {
			all = append(all, gen.QueueMendSuspect{Kind: gen.QueueMendKindCount, ID: page[i]})
		})
	})
	if err != nil {
		return err
	}
	return a.check(ctx, all, func(string, int64) { a.out.StaleCounts++ })
}

// names finds unique names held by jobs that are gone. Either field of a hold may be
// there without the other.
func (a *audit) names(ctx context.Context) error {
	var all []gen.QueueMendSuspect
	err := a.fields(ctx, a.queue.keys.Unique, true, func(page []string) error {
		var holds []gen.QueueMendSuspect
		var ids []string
		for i := 0; i < len(page); i += 2 {
			name, id := strings.TrimPrefix(page[i], "k:"), page[i+1]
			if strings.HasPrefix(page[i], "j:") {
				name, id = page[i+1], strings.TrimPrefix(page[i], "j:")
			}
			holds = append(holds, gen.QueueMendSuspect{Kind: gen.QueueMendKindName, ID: id, Name: name})
			ids = append(ids, id)
		}
		return a.gone(ctx, ids, func(i int) { all = append(all, holds[i]) })
	})
	if err != nil {
		return err
	}
	return a.check(ctx, all, func(string, int64) { a.out.StaleNames++ })
}

// deadBytes adds up the bodies of the dead. The sum counts only if the set kept still
// meanwhile; if it does not, three times, the number is left for another audit.
func (a *audit) deadBytes(ctx context.Context) error {
	for range 3 {
		before, err := a.counted(ctx)
		if err != nil {
			return err
		}
		sum, err := a.deadSize(ctx)
		if err != nil {
			return err
		}
		after, err := a.counted(ctx)
		if err != nil || after == before && sum == before {
			return err
		}
		if after != before {
			continue
		}
		r, err := gen.QueueMend(ctx, a.queue.client, a.params(before, sum, nil))
		if err != nil || r.Corrected {
			if r.Corrected {
				a.out.DeadBytes = int(sum - before)
				a.mended(1)
			}
			return err
		}
	}
	return nil
}
