package sidekiq

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// Moved is the result of MoveDue.
type Moved struct {
	// Moved jobs are in their queues now.
	Moved int
	// Malformed members are in quarantine now.
	Malformed []Malformed
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next job is due; it has passed when more were due than the call moves. Absent when the set is empty.
	NextDue lua.Opt[time.Time]
}

// Malformed is a member of a set that no poller could make a job of: it is not a JSON object, or has no queue.
type Malformed struct {
	Set    Set
	Member []byte
	// Err says what is wrong with it: ErrPayload.
	Err error
}

// moveStep is how many jobs one script moves, so that others are served in between.
const moveStep = 500

// MoveDue moves up to max jobs whose time has come by the server's clock from Schedule or Retry to their queues, earliest first; 0 means
// MaxBatch, and more is MaxBatch. The payload keeps its bytes, except that the value of its own enqueued_at is replaced, or the field added.
//
// Any number of pollers may do that, Ruby's own among them: a job that another has moved, put off or deleted since it was read is left
// alone. A job is in its queue before it leaves the set, in one step, so a crash loses nothing. Members that are no jobs go to
// <set>:quarantine, a sorted set with their scores that stays until somebody looks, and into the result.
//
// A queue whose key cannot be written to keeps its jobs in the set; the others are moved, and the error names it. With any error, Moved
// counts the jobs of the steps before.
//
// Keys: the set, its quarantine, queues, and queue:<name> of each job. Cost: 2 round trips for each 500 jobs or 896 KiB, O(log n + k) for
// k jobs to read and O(k log n) to move. Errors: ErrSet.
func (d *Dialect) MoveDue(ctx context.Context, set Set, max int) (Moved, error) {
	var out Moved
	if set != Schedule && set != Retry {
		return out, fmt.Errorf("%w: %q", ErrSet, string(set))
	}
	if max <= 0 || max > MaxBatch {
		max = MaxBatch
	}
	for left := max; left > 0; {
		read, n, err := d.moveSome(ctx, set, min(left, moveStep), &out)
		if err != nil {
			return out, fmt.Errorf("sidekiq: move from %s: %w", set, err)
		}
		left -= read
		// Nothing moved means that others were faster, or that all is quarantined: what is left comes with the next call.
		if read == 0 || n == 0 {
			break
		}
	}
	return out, nil
}

// moveSome moves what one call reads, and says how many members that were and how many of them left the set.
func (d *Dialect) moveSome(ctx context.Context, set Set, max int, out *Moved) (read, gone int, err error) {
	due, err := script.Due(ctx, d.client, script.DueParams{Set: d.key(string(set)), Max: int64(max), Bytes: maxStep})
	if err != nil {
		return 0, 0, err
	}
	out.Now, out.NextDue = time.UnixMicro(due.Now), nextDue(due.Next)
	if len(due.Members) == 0 {
		return 0, 0, nil
	}
	batch, bad := d.batch(set, due.Members)
	if len(bad) > 0 {
		if err := d.quarantine(ctx, set, bad); err != nil {
			return 0, 0, err
		}
		out.Malformed = append(out.Malformed, bad...)
	}
	if len(batch.Members) == 0 {
		return len(due.Members), len(bad), nil
	}
	r, err := script.Move(ctx, d.client, batch)
	if err != nil {
		return 0, 0, err
	}
	out.Moved += int(r.Moved)
	out.Now = time.UnixMicro(r.Now)
	if r.Failed > 0 && int(r.Failed) <= len(batch.Queues) {
		return 0, 0, fmt.Errorf("%q cannot be written to, its jobs stay in %s: %s", batch.Queues[r.Failed-1], set, r.Reason)
	}
	return len(due.Members), int(r.Moved) + len(bad), nil
}

// nextDue is a score as a time; scores that are none, such as inf, never come.
func nextDue(score lua.Opt[string]) (next lua.Opt[time.Time]) {
	text, there := score.Get()
	if !there {
		return next
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return next
	}
	if at, err := secondsTime(s); err == nil {
		return lua.Some(at)
	}
	return next
}

// batch finds the queue and the place of enqueued_at of each member; those without are no jobs.
func (d *Dialect) batch(set Set, due [][]byte) (p script.MoveParams, bad []Malformed) {
	p = script.MoveParams{
		Set: d.key(string(set)), Names: d.key("queues"), Skip: int64(len(d.queueKey(""))), Members: make([][]byte, 0, len(due)),
	}
	if d.milliseconds() {
		p.Clock = script.MoveClockMilliseconds
	}
	var src source
	places := make(map[string]int, 1)
	plan := make([]byte, 0, 12*len(due))
	for _, payload := range due {
		queue, from, till, err := destination(payload, &src)
		if err != nil {
			bad = append(bad, Malformed{Set: set, Member: payload, Err: err})
			continue
		}
		place := places[queue]
		if place == 0 {
			p.Queues = append(p.Queues, d.queueKey(queue))
			place = len(p.Queues)
			places[queue] = place
		}
		p.Members = append(p.Members, payload)
		plan = append(strconv.AppendInt(plan, int64(place), 10), ':')
		plan = append(strconv.AppendInt(plan, int64(from), 10), ':')
		plan = append(strconv.AppendInt(plan, int64(till), 10), ';')
	}
	p.Plan = string(plan)
	return p, bad
}

// destination is where a payload goes and where its enqueued_at stands, or is to stand.
func destination(payload []byte, src *source) (queue string, from, till int, err error) {
	var name []byte
	from = -1
	err = members(payload, func(m member) {
		switch string(m.name) {
		case "queue":
			name = payload[m.value:m.end]
		case "enqueued_at":
			from, till = m.value, m.end
		}
	})
	switch {
	case err != nil:
		return "", 0, 0, err
	case len(name) < 3 || name[0] != '"':
		return "", 0, 0, fmt.Errorf("%w: its queue is not the name of one", ErrPayload)
	}
	if from < 0 {
		from = bytes.LastIndexByte(payload, '}')
		till = from
	}
	return src.name(name), from, till, nil
}

func (d *Dialect) quarantine(ctx context.Context, set Set, bad []Malformed) error {
	p := script.QuarantineParams{Set: d.key(string(set)), Quarantine: d.key(string(set) + ":quarantine")}
	for _, m := range bad {
		p.Members = append(p.Members, m.Member)
	}
	_, err := script.Quarantine(ctx, d.client, p)
	return err
}
