package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/lua"
)

// ErrNameHeld reports that a dead job was not requeued, because another job holds its unique name.
var ErrNameHeld = errors.New("luatomic: another job holds the unique name; requeue when that one is done, or cancel " +
	"one")

// maxPassed bounds the jobs that one Requeue without ids passes over because their names are held.
const maxPassed = 10_000

// NameHeld is a job that stays dead, and the job that holds its unique name.
type NameHeld struct{ ID, Holder string }

// NameHeldError lists the jobs that a Requeue has left dead. It matches ErrNameHeld. The call succeeded for the others.
type NameHeldError struct{ Jobs []NameHeld }

func (e *NameHeldError) Error() string {
	first := e.Jobs[0]
	if len(e.Jobs) == 1 {
		return fmt.Sprintf("%v: job %q, held by %q", ErrNameHeld, first.ID, first.Holder)
	}
	return fmt.Sprintf("%v: %d jobs, the first %q, held by %q", ErrNameHeld, len(e.Jobs), first.ID, first.Holder)
}

// Is matches ErrNameHeld.
func (e *NameHeldError) Is(target error) bool { return target == ErrNameHeld }

// Requeue makes dead jobs ready again, with no failures counted, and returns how many. Ids that are not dead are
// skipped. A job takes its unique name again, from now until it is acked, cancelled or dead; a UniqueTTL does not count
// again. While another job holds the name, the job stays dead and a NameHeldError names both.
// The limit of the queue does not hold it up. After a lost reply Requeue repeats itself, with the same answer: each
// script for at most 50 s. A copy that arrives after a later call changes nothing.
//
// A job whose ExpiresAt has passed counts as moved, and is then deleted when it is taken.
//
// Without ids it reads the ids of up to 200 jobs that died first and requeues them in a second round trip, so that
// a repeat moves the same jobs and no others. Where all of them stay dead it goes on with the next 200, up to 10 000.
// Then it returns how many of those that it read do not stay dead, and names the others in a NameHeldError; 0 without
// an error means that no job is dead.
//
// One script for up to 200 ids, atomic to other clients. A write refused half-way can deliver a job twice, never
// lose one. Keys: d, r, b, n, c, w, u, ux, i. Cost: O(log n) for each.
func (q *Queue) Requeue(ctx context.Context, ids ...string) (int, error) {
	if len(ids) > 0 {
		var held []NameHeld
		n, err := q.revive(ctx, ids, &held)
		if err == nil {
			err = q.heldError(held)
		}
		return n, err
	}
	var held []NameHeld
	for {
		n, read, err := q.reviveOldest(ctx, len(held), &held)
		if err != nil {
			return n, err
		}
		if n > 0 || read < maxRows || len(held) >= maxPassed {
			return n, q.heldError(held)
		}
	}
}

// reviveOldest revives the jobs that died first, but for so many that stay dead, and adds those that do.
func (q *Queue) reviveOldest(ctx context.Context, from int, held *[]NameHeld) (n, read int, _ error) {
	ids, err := nodes.Read(ctx, q.client,
		redis.NewStringSliceCmd(ctx, "zrange", q.keys.Dead, from, from+maxRows-1)).Result()
	if err != nil {
		err = plainError(ctx, q.client, err, typed{q.keys.Dead, "zset"})
		return 0, 0, q.wrap("requeue in", fmt.Errorf("%w: %w", lua.ErrNotExecuted, err))
	}
	before := len(*held)
	if _, err = q.revive(ctx, ids, held); err != nil {
		return 0, len(ids), err
	}
	return len(ids) - (len(*held) - before), len(ids), nil
}

// revive makes dead jobs ready, and adds those that stay dead.
func (q *Queue) revive(ctx context.Context, ids []string, held *[]NameHeld) (int, error) {
	p := q.requeueParams()
	total := 0
	for chunk := range slices.Chunk(ids, maxRows) {
		var r gen.QueueRequeueResult
		err := q.once(ctx, func(ctx context.Context, receipt string) (err error) {
			p.IDs, p.Receipt = chunk, receipt
			r, err = gen.QueueRequeue(ctx, q.client, p)
			return err
		})
		if err != nil {
			return total, q.wrap("requeue in", err)
		}
		total += int(r.Moved)
		for _, h := range r.Held {
			*held = append(*held, NameHeld{ID: h.ID, Holder: h.Holder})
		}
	}
	return total, nil
}

// heldError names the jobs that stay dead, if there are some.
func (q *Queue) heldError(held []NameHeld) error {
	if len(held) == 0 {
		return nil
	}
	return q.wrap("requeue in", &NameHeldError{Jobs: held})
}

// DeadLimits bound the dead set: by number of jobs, by bytes of their bodies, and by time since death, by the
// server's clock, rounded up to a millisecond. A zero field sets no bound, but for Options.Dead.Jobs, which has a
// default.
type DeadLimits struct {
	Jobs  int
	Bytes int
	Age   time.Duration
}

// Trim deletes the oldest dead jobs until the dead set is within the limits, and returns how many. With an error it
// returns those deleted before.
//
// Each script deletes up to 200 jobs, atomic to other clients. A write refused half-way leaves some of them. Keys:
// d, b, n, c, o, f, u. Cost: O(log n) for each.
func (q *Queue) Trim(ctx context.Context, limits DeadLimits) (int, error) {
	total := 0
	for {
		n, err := q.trimOnce(ctx, limits)
		if total += n; err != nil || n < maxRows {
			return total, err
		}
	}
}

// trimOnce deletes up to maxRows of the oldest dead jobs.
func (q *Queue) trimOnce(ctx context.Context, limits DeadLimits) (int, error) {
	p := gen.QueueTrimParams{
		Dead: q.keys.Dead, Bodies: q.keys.Bodies, Failures: q.keys.Failures, Control: q.keys.Control,
		Options: q.keys.Options, Finished: q.keys.Finished,
		Unique: q.keys.Unique, Keep: orUnbounded(int64(limits.Jobs)), Bytes: orUnbounded(int64(limits.Bytes)),
		Age: orUnbounded(clock.CeilMilli(limits.Age)), Max: maxRows,
	}
	r, err := gen.QueueTrim(ctx, q.client, p)
	if err != nil {
		return 0, q.wrap("trim", err)
	}
	return int(r.Removed), nil
}

// trimAfter brings the dead set nearer to Options.Dead after so many deaths: each script deletes up to 200 jobs, and
// there is one more than the deaths need. What was above the bounds before goes with later deaths, so that none of them
// holds up the acks.
func (q *Queue) trimAfter(ctx context.Context, deaths int) error {
	for range 1 + deaths/maxRows {
		if n, err := q.trimOnce(ctx, q.opts.Dead); err != nil || n < maxRows {
			return err
		}
	}
	return nil
}

// orUnbounded is a limit in the form of the script, which takes -1 for none.
func orUnbounded(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}
