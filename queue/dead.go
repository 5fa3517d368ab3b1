package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// maxPassed bounds the jobs that one Requeue without ids skips because other jobs hold their names.
const maxPassed = 10_000

// NameHeld is a job that stays dead, and the job that holds its unique name.
type NameHeld struct{ ID, Holder string }

// Requeue makes dead jobs ready again, with no failures counted, and returns how many. It skips ids that are not dead.
// A job holds its unique name again, from now until it is acked, cancelled or dead, whatever its UniqueTTL. While
// another job holds the name, the job stays dead and a NameHeldError names both. Requeue ignores the limit of the
// queue. After a lost reply Requeue repeats itself, with the same answer: each script for at most 50 s. A copy of a
// request that arrives after a later call changes nothing.
//
// A job whose ExpiresAt has passed counts as requeued. The next take that reaches it deletes it.
//
// Without ids, Requeue reads the ids of up to 200 jobs that died first and requeues them in a second round trip. So a
// repeat moves the same jobs and no others. If all of them stay dead, it goes on with the next 200, up to 10 000.
// Requeue returns how many of the jobs that it read do not stay dead, and names the others in a NameHeldError. A 0
// without an error means that no job is dead.
//
// Requeue runs one script for up to 200 ids, atomic to other clients. A write refused half-way can deliver a job twice,
// never lose one. Keys: d, r, b, n, c, w, u, ux, i. Cost: O(log n) for each.
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

// reviveOldest revives the jobs that died first, after the first from of them. It adds the jobs that stay dead to held.
func (q *Queue) reviveOldest(ctx context.Context, from int, held *[]NameHeld) (n, read int, _ error) {
	ids, err := servers.Read(ctx, q.client,
		redis.NewStringSliceCmd(ctx, "zrange", q.keys.Dead, from, from+maxRows-1)).Result()
	if err != nil {
		err = plainError(ctx, q.client, err, typed{q.keys.Dead, "zset"})
		return 0, 0, q.wrap("requeue in", fmt.Errorf("%w: %w", lua.ErrNotExecuted, err))
	}
	before := len(*held)
	if n, err = q.revive(ctx, ids, held); err != nil {
		return n, len(ids), err
	}
	return len(ids) - (len(*held) - before), len(ids), nil
}

// revive makes dead jobs ready, and adds the jobs that stay dead to held.
func (q *Queue) revive(ctx context.Context, ids []string, held *[]NameHeld) (int, error) {
	p := q.requeueParams()
	total := 0
	var tooLong error
	for chunk := range chunks(ids, maxRows, textSize) {
		var r queuescript.RequeueResult
		err := q.once(ctx, func(ctx context.Context, receipt string) (err error) {
			p.IDs, p.Receipt = chunk, receipt
			r, err = queuescript.Requeue(ctx, q.client, p)
			return err
		})
		switch {
		case errors.Is(err, lua.ErrTooLarge): // no call can name this job, and the others do not wait for it
			tooLong = q.wrap("requeue in", err)
			continue
		case err != nil:
			return total, q.wrap("requeue in", err)
		}
		total += int(r.Moved)
		for _, h := range r.Held {
			*held = append(*held, NameHeld{ID: h.ID, Holder: h.Holder})
		}
	}
	return total, tooLong
}

// heldError returns an error that names the jobs that stay dead, or nil if there are none.
func (q *Queue) heldError(held []NameHeld) error {
	if len(held) == 0 {
		return nil
	}
	return q.wrap("requeue in", &NameHeldError{Jobs: held})
}

// DeadLimits bound the dead set: by the number of jobs, by the bytes of their bodies, and by the time since death. That
// time is by the server's clock, and Age is rounded up to a millisecond. A zero field sets no bound, except that
// Options.Dead.Jobs has a default.
type DeadLimits struct {
	Jobs  int
	Bytes int
	Age   time.Duration
	// Stored takes the limits that the queue has in Redis; see Options.Dead. The other fields hold where it has none.
	Stored bool
}

// named says whose limits a trim to l has.
func (l DeadLimits) named() queuescript.TrimLimits {
	if l.Stored {
		return queuescript.TrimLimitsStored
	}
	return queuescript.TrimLimitsGiven
}

// kept is named for a consumer, which stores the limits of its Options.
func (l DeadLimits) kept() queuescript.TrimLimits {
	if l.Stored {
		return queuescript.TrimLimitsStored
	}
	return queuescript.TrimLimitsStore
}

// Trim deletes the jobs that died first until the dead set is within the limits, and returns how many it deleted, also
// with an error.
//
// Each script deletes up to 200 jobs, atomic to other clients. A write refused half-way leaves some of them. Keys:
// d, b, n, c, o, f, u. Cost: O(log n) for each.
func (q *Queue) Trim(ctx context.Context, limits DeadLimits) (int, error) {
	total := 0
	for {
		n, err := q.trimOnce(ctx, limits, limits.named(), maxRows)
		if total += n; err != nil || n < maxRows {
			return total, err
		}
	}
}

// trimOnce deletes up to most of the oldest dead jobs.
func (q *Queue) trimOnce(ctx context.Context, limits DeadLimits, whose queuescript.TrimLimits, most int64) (int,
	error) {
	p := queuescript.TrimParams{
		Dead: q.keys.Dead, Bodies: q.keys.Bodies, Failures: q.keys.Failures, Control: q.keys.Control,
		Options: q.keys.Options, Finished: q.keys.Finished,
		Unique: q.keys.Unique, Keep: orUnbounded(int64(limits.Jobs)), Bytes: orUnbounded(int64(limits.Bytes)),
		Age: orUnbounded(clock.CeilMilli(limits.Age)), Max: most, Limits: whose, Known: q.known(),
	}
	r, err := queuescript.Trim(ctx, q.client, p)
	if err != nil {
		return 0, q.wrap("trim", err)
	}
	return int(r.Removed), nil
}

// trimAfter trims the dead set towards Options.Dead after that many deaths. Each script deletes up to 200 jobs, and
// there is one script more than the deaths need. Later deaths trim what was above the bounds before, so no trim holds
// up the acks for long.
func (q *Queue) trimAfter(ctx context.Context, deaths int, whose queuescript.TrimLimits) error {
	for range 1 + deaths/maxRows {
		if n, err := q.trimOnce(ctx, q.opts.Dead, whose, maxRows); err != nil || n < maxRows {
			return err
		}
	}
	return nil
}

// orUnbounded returns a limit in the form of the script, for which -1 means none.
func orUnbounded(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}
