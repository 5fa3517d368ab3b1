package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// Stats are the counts of a queue at one instant.
type Stats struct {
	Ready, Scheduled, Leased, Dead int
	// Lapsed jobs are those of the Leased whose lease has ended and that no consumer has taken back: their workers died
	// or stalled. A consumer takes them back within a moment; without one, Reclaim does.
	Lapsed int
	// Now is the server's time.
	Now time.Time
	// Oldest is the EnqueuedAt of the job at the head of the ready list.
	Oldest lua.Opt[time.Time]
	// NextDue is when the first scheduled job is due.
	NextDue lua.Opt[time.Time]
	// Paused and Limit are the settings of Pause and SetLimit.
	Paused bool
	Limit  int
	// DeadBytes is the size of the bodies of dead jobs.
	DeadBytes int
}

// Stats counts the jobs of the queue in one script, which only reads. Ready counts a cancelled job until a Take
// drops its entry. Keys: r, s, l, d, c. Cost: O(log n).
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	r, err := queuescript.Stats(ctx, q.client, queuescript.StatsParams{
		Ready: q.keys.Ready, Scheduled: q.keys.Scheduled, Leases: q.keys.Leases, Dead: q.keys.Dead,
		Control: q.keys.Control,
	})
	if err != nil {
		return Stats{}, q.wrap("stats of", err)
	}
	return Stats{
		Ready: int(r.Ready), Scheduled: int(r.Scheduled), Leased: int(r.Leased), Dead: int(r.Dead),
		Lapsed: int(r.Lapsed), Now: r.Now, Oldest: r.Oldest, NextDue: r.NextDue,
		Paused: r.Paused, Limit: int(min(r.Limit, math.MaxInt)),
		DeadBytes: int(min(r.DeadBytes, math.MaxInt)),
	}, nil
}

// empty reports whether no job is ready, scheduled or leased. In a paused queue the entries of cancelled and buried
// jobs stay, because no take drops them. The queue is empty if it has only such entries. The first reads are short,
// because most queues have a job at their head.
func (q *Queue) empty(ctx context.Context) (bool, error) {
	s, err := q.Stats(ctx)
	if err != nil || s.Scheduled+s.Leased > 0 {
		return false, err
	}
	for at, n := 0, 1; at < s.Ready; at, n = at+n, min(2*n, maxRows) {
		jobs, err := q.Peek(ctx, Ready, at, n)
		if err != nil || len(jobs) > 0 {
			return false, err
		}
	}
	return true, nil
}

// State is the state of a job.
type State string

// The states of a job.
const (
	Ready     State = "ready"
	Scheduled State = "scheduled"
	Leased    State = "leased"
	Dead      State = "dead"
	Absent    State = "absent"
)

// states are by the numbers that the scripts have for them.
var states = [...]State{Ready, Scheduled, Leased, Dead, Absent}

// stateOf returns the state of that number, and Absent for one of no script here.
func stateOf(number int64) State {
	if number < 0 || number >= int64(len(states)) {
		return Absent
	}
	return states[number]
}

// Peeked is a job as Peek read it.
type Peeked struct {
	ID   string
	Body []byte
	// At is when the job was enqueued, is due, loses its lease, or died, depending on its state. It is by the server's
	// clock.
	At time.Time
	// Fence is what Release needs to end the lease of a Leased job. It is 0 in the other states.
	Fence int64
	// Failures counts failed deliveries. Reason is the reason of the last failure.
	Failures int
	Reason   string
	Details
}

// Found is a job as Find read it. For an Absent job no other field is set. A Ready job has no At.
type Found struct {
	State State
	Peeked
}

// Find reads jobs by their ids, in any state. It returns one Found for each id, in order. An id that the queue does not
// know, or that was cancelled, is Absent. So is one that no call can name: the others are found, and the error is
// lua.ErrTooLarge. One script, which only reads, for up to 200 ids and 1 MiB of bodies, or one larger body. Keys: s, l,
// d, b, n, o. Cost: O(1) for each.
func (q *Queue) Find(ctx context.Context, ids ...string) (out []Found, tooLong error) {
	k := &q.keys
	p := queuescript.FindParams{Scheduled: k.Scheduled, Leases: k.Leases, Dead: k.Dead, Bodies: k.Bodies,
		Failures: k.Failures, Options: k.Options}
	p.Bytes = takeBytes
	for len(out) < len(ids) {
		p.IDs = first(ids[len(out):], maxRows, textSize)
		rows, err := queuescript.Find(ctx, q.client, p)
		if errors.Is(err, lua.ErrTooLarge) { // of one id, and the others do not wait for it
			out, tooLong = append(out, Found{State: Absent, Peeked: Peeked{ID: p.IDs[0]}}), q.wrap("find in", err)
			continue
		}
		if err == nil && (len(rows) == 0 || len(rows) > len(p.IDs)) {
			err = fmt.Errorf("%w: %d jobs for %d ids", lua.ErrBadReply, len(rows), len(p.IDs))
		}
		if err != nil {
			return out, q.wrap("find in", err)
		}
		for i, r := range rows {
			f := Found{State: stateOf(int64(r.State)), Peeked: Peeked{ID: p.IDs[i]}}
			if f.State != Absent {
				f.Body, f.Failures, f.Reason = r.Body, int(r.Failures), r.Reason
				f.Details = decodeDetails(r.Options)
			}
			if r.At > 0 {
				f.at(f.State, r.At)
			}
			out = append(out, f)
		}
	}
	return out, tooLong
}

// maxRows is the largest number of jobs in one script of this file and of Cancel, Requeue and Trim.
const maxRows = 200

// Peek reads up to 200 jobs of one state, from offset on, in the order of the time enqueued, due time, lease end or
// death. It changes nothing. One script reads up to 1 MiB of bodies, or one larger body. If Peek needs several scripts,
// it may miss a job or return one twice while others move. Keys: r, s, l, d, b, n, o. Cost: O(log n + offset) for each
// script.
func (q *Queue) Peek(ctx context.Context, state State, offset, max int) ([]Peeked, error) {
	number := slices.Index(states[:], state)
	if number < 0 || state == Absent {
		return nil, q.wrap("peek at", fmt.Errorf("no job is %q; give Ready, Scheduled, Leased or Dead", state))
	}
	p := q.peekParams()
	p.State, p.Offset, p.Bytes = queuescript.PeekState(number), int64(offset), takeBytes
	end, out := p.Offset+int64(min(max, maxRows)), []Peeked{}
	for {
		p.Max = end - p.Offset
		r, err := queuescript.Peek(ctx, q.client, p)
		if err != nil {
			return nil, q.wrap("peek at", err)
		}
		for _, j := range r.Jobs {
			out = append(out, peeked(state, j))
		}
		rest, more := r.Rest.Get()
		if !more {
			return out, nil
		}
		if rest <= p.Offset || rest >= end {
			return nil, q.wrap("peek at", fmt.Errorf("%w: the rest of %d to %d begins at %d",
				lua.ErrBadReply, p.Offset, end, rest))
		}
		p.Offset = rest
	}
}

// at keeps the time of a job: in ms, of a leased job the end of its lease in us, which is its fence.
func (p *Peeked) at(state State, at int64) {
	if state == Leased {
		p.Fence, at = at, at/1000
	}
	p.At = time.UnixMilli(at)
}

func peeked(state State, j queuescript.PeekJob) Peeked {
	p := Peeked{ID: j.ID, Body: j.Body, Failures: int(j.Failures), Reason: j.Reason}
	p.at(state, j.At)
	if j.Options != "" {
		p.Details = decodeDetails(j.Options)
	}
	return p
}
