package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// What people do with a queue from outside of its work: look, cancel, put off,
// pause, revive and clear away. None of it searches a list, and none of it takes a
// job from under a worker.

// Stats are the counts of a queue at one instant.
type Stats struct {
	Ready, Scheduled, Leased, Dead int
	// Now is the server's time.
	Now time.Time
	// Oldest is the enqueued_at of the job at the head of ready.
	Oldest lua.Opt[time.Time]
	// NextDue is when the first scheduled job is due.
	NextDue lua.Opt[time.Time]
	// Paused and Limit are the settings of Pause and SetLimit.
	Paused bool
	Limit  int
	// DeadBytes is the size of the bodies of dead jobs.
	DeadBytes int
}

// Stats counts the jobs of the queue. It only reads. Ready counts a cancelled job
// until a worker has passed over its entry. Keys: r, s, l, d, c. Cost: O(log n).
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	r, err := gen.QueueStats(ctx, q.client, gen.QueueStatsParams{
		Ready: q.keys.Ready, Scheduled: q.keys.Scheduled, Leases: q.keys.Leases, Dead: q.keys.Dead,
		Control: q.keys.Control,
	})
	if err != nil {
		return Stats{}, fmt.Errorf("luatomic: stats of %q: %w", q.name, err)
	}
	return Stats{
		Ready: int(r.Ready), Scheduled: int(r.Scheduled), Leased: int(r.Leased), Dead: int(r.Dead),
		Now: r.Now, Oldest: r.Oldest, NextDue: r.NextDue,
		Paused: r.Paused, Limit: int(r.Limit), DeadBytes: int(r.DeadBytes),
	}, nil
}

// JobState is where a job stands.
type State int

// The states of a job. The numbers are those of the scripts.
const (
	Ready State = iota
	Scheduled
	Leased
	Dead
	Absent
)

var stateNames = [...]string{"ready", "scheduled", "leased", "dead", "absent"}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("JobState(%d)", int(s))
	}
	return stateNames[s]
}

// Peeked is a job as Peek found it.
type Peeked struct {
	ID   string
	Body []byte
	// At is when the job was enqueued, is due, loses its lease, or died, by its
	// state.
	At time.Time
	// Failures counts failed deliveries, Reason is the last one's.
	Failures int
	Reason   string
}

// maxPeek keeps a reply small.
const maxPeek = 200

// Peek reads up to 200 jobs of one state, from offset on, in the order in which
// they come up, without touching them. Keys: r, s, l, d, b, n. Cost: O(log n +
// offset).
func (q *Queue) Peek(ctx context.Context, state State, offset, max int) ([]Peeked, error) {
	if state < Ready || state > Dead {
		return nil, fmt.Errorf("luatomic: peek at %q: no job is %v", q.name, state)
	}
	rows, err := gen.QueuePeek(ctx, q.client, gen.QueuePeekParams{
		Ready: q.keys.Ready, Scheduled: q.keys.Scheduled, Leases: q.keys.Leases, Dead: q.keys.Dead,
		Bodies: q.keys.Bodies, Failures: q.keys.Failures,
		State: gen.QueuePeekState(state), Offset: int64(offset), Max: int64(min(max, maxPeek)),
	})
	if err != nil {
		return nil, fmt.Errorf("luatomic: peek at %q: %w", q.name, err)
	}
	out := make([]Peeked, len(rows))
	for i, r := range rows {
		out[i] = Peeked{ID: r.ID, Body: r.Body, At: r.At, Failures: int(r.Failures), Reason: r.Reason}
	}
	return out, nil
}

// cancelled translates the verdicts of queue_cancel.
var cancelled = [...]State{Absent, Scheduled, Ready, Leased, Dead}

// Cancel takes jobs out of the queue and says for each where it stood. Scheduled,
// ready and dead jobs are gone; a JobLeased one is left to its worker; a JobAbsent
// one was not there. The unique name is released.
//
// A ready job costs no search: its body goes now, its entry when a worker comes to
// it, and its id is known to the queue until then. Keys: s, b, l, n, d, u, ux, c.
// Cost: O(log n) for each.
func (q *Queue) Cancel(ctx context.Context, ids ...string) ([]State, error) {
	out := make([]State, 0, len(ids))
	for part := range slices.Chunk(ids, maxPeek) {
		verdicts, err := gen.QueueCancel(ctx, q.client, gen.QueueCancelParams{
			Scheduled: q.keys.Scheduled, Bodies: q.keys.Bodies, Leases: q.keys.Leases, Failures: q.keys.Failures,
			Dead: q.keys.Dead, Unique: q.keys.Unique, Expiry: q.keys.Expiry, Control: q.keys.Control, IDs: part,
		})
		if err != nil {
			return out, fmt.Errorf("luatomic: cancel in %q: %w", q.name, err)
		}
		for _, v := range verdicts {
			if v < 0 || int(v) >= len(cancelled) {
				return out, fmt.Errorf("luatomic: cancel in %q: %w: verdict %d", q.name, lua.ErrBadReply, v)
			}
			out = append(out, cancelled[v])
		}
	}
	return out, nil
}

// Rescheduled is the result of a reschedule.
type Rescheduled struct {
	// Found says that the job is scheduled, Moved that its time was changed.
	Found, Moved bool
	// Due is when it is due now.
	Due time.Time
}

// Reschedule changes when a scheduled job is due. A time that has passed makes it
// due at once. A job that is not scheduled any more is not found, and nothing
// changes: it cannot be both moved and ready. Keys: s. Cost: O(log n).
func (q *Queue) Reschedule(ctx context.Context, id string, at time.Time) (Rescheduled, error) {
	return q.reschedule(ctx, id, at, gen.QueueRescheduleModeAny)
}

// RescheduleEarlier is Reschedule, unless the job is due before at already.
func (q *Queue) RescheduleEarlier(ctx context.Context, id string, at time.Time) (Rescheduled, error) {
	return q.reschedule(ctx, id, at, gen.QueueRescheduleModeEarlier)
}

// RescheduleLater is Reschedule, unless the job is due after at already.
func (q *Queue) RescheduleLater(ctx context.Context, id string, at time.Time) (Rescheduled, error) {
	return q.reschedule(ctx, id, at, gen.QueueRescheduleModeLater)
}

func (q *Queue) reschedule(ctx context.Context, id string, at time.Time, mode gen.QueueRescheduleMode) (Rescheduled, error) {
	when, err := due(at, 0)
	if err == nil {
		err = lua.CheckName("id", id)
	}
	if err != nil {
		return Rescheduled{}, fmt.Errorf("luatomic: reschedule in %q: %w", q.name, err)
	}
	r, err := gen.QueueReschedule(ctx, q.client, gen.QueueRescheduleParams{
		Scheduled: q.keys.Scheduled, Wake: q.keys.Wake, ID: id, Due: when, Mode: mode,
	})
	if err != nil {
		return Rescheduled{}, fmt.Errorf("luatomic: reschedule in %q: %w", q.name, err)
	}
	return Rescheduled{Found: r.Found, Moved: r.Moved, Due: r.Due.Or(time.Time{})}, nil
}

// Pause lets the queue give out no more jobs. Pushing, promoting and the work on
// jobs already taken go on. Keys: c. Cost: O(1).
func (q *Queue) Pause(ctx context.Context) error { return q.control(ctx, gen.QueueControlPauseOn, -1) }

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error {
	return q.control(ctx, gen.QueueControlPauseOff, -1)
}

// SetLimit bounds the jobs that are ready, scheduled or leased, for every producer:
// a push that would pass it is refused with ErrFull. Zero lifts the limit. Jobs that
// are there already stay. Keys: c. Cost: O(1).
func (q *Queue) SetLimit(ctx context.Context, jobs int) error {
	if jobs < 0 {
		return fmt.Errorf("luatomic: limit of %q: %w", q.name, &lua.RangeError{Field: "jobs", Value: fmt.Sprint(jobs), Min: "0"})
	}
	return q.control(ctx, gen.QueueControlPauseKeep, int64(jobs))
}

func (q *Queue) control(ctx context.Context, pause gen.QueueControlPause, limit int64) error {
	_, err := gen.QueueControl(ctx, q.client, gen.QueueControlParams{Control: q.keys.Control, Wake: q.keys.Wake, Pause: pause, Limit: limit})
	if err != nil {
		return fmt.Errorf("luatomic: settings of %q: %w", q.name, err)
	}
	return nil
}

// Requeue makes dead jobs ready again as if they had never failed, and returns how
// many: of those with the ids, the ones that were dead. After a lost reply it is
// repeated, and the jobs that the first attempt moved are not counted.
//
// Given no ids, it reads those of up to 200 jobs that died first, and requeues them in
// a second round trip: so a repeat moves the same ones and no more. It returns how many
// it read; 0 means that no job is dead.
//
// Keys: d, r, b, n, c, w. Cost: O(log n) for each.
func (q *Queue) Requeue(ctx context.Context, ids ...string) (int, error) {
	if len(ids) > 0 {
		return q.requeue(ctx, ids)
	}
	oldest, err := q.client.ZRange(ctx, q.keys.Dead, 0, maxPeek-1).Result()
	if err != nil {
		return 0, fmt.Errorf("luatomic: requeue in %q: %w: %w", q.name, lua.ErrNotExecuted, err)
	}
	if _, err := q.requeue(ctx, oldest); err != nil {
		return 0, err
	}
	return len(oldest), nil
}

func (q *Queue) requeue(ctx context.Context, ids []string) (int, error) {
	p := gen.QueueRequeueParams{
		Dead: q.keys.Dead, Ready: q.keys.Ready, Bodies: q.keys.Bodies, Failures: q.keys.Failures, Control: q.keys.Control, Wake: q.keys.Wake,
	}
	total := 0
	for part := range slices.Chunk(ids, maxPeek) {
		p.IDs = part
		n, err := gen.QueueRequeue(ctx, q.client, p)
		if err != nil {
			return total, fmt.Errorf("luatomic: requeue in %q: %w", q.name, err)
		}
		total += int(n)
	}
	return total, nil
}

// DeadLimits bound the dead set. A zero field sets no bound.
type DeadLimits struct {
	Jobs  int
	Bytes int
	Age   time.Duration
}

// Trim removes the oldest dead jobs for good, as many as pass the limits, and
// returns how many. Keys: d, b, n, c. Cost: O(log n) for each.
func (q *Queue) Trim(ctx context.Context, limits DeadLimits) (int, error) {
	bound := func(n int64) int64 {
		if n <= 0 {
			return -1
		}
		return n
	}
	total := 0
	for {
		r, err := gen.QueueTrim(ctx, q.client, gen.QueueTrimParams{
			Dead: q.keys.Dead, Bodies: q.keys.Bodies, Failures: q.keys.Failures, Control: q.keys.Control,
			Keep: bound(int64(limits.Jobs)), Bytes: bound(int64(limits.Bytes)), Age: bound(limits.Age.Milliseconds()),
			Max: maxPeek,
		})
		if err != nil {
			return total, fmt.Errorf("luatomic: trim %q: %w", q.name, err)
		}
		total += int(r.Removed)
		if r.Removed < maxPeek {
			return total, nil
		}
	}
}
