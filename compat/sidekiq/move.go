package sidekiq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// ErrQueueRefused reports that due members stay in their set because the key of their queue cannot be written to, or
// that of the quarantine for those that are not jobs: it has another type, or the Redis user lacks the permission.
var ErrQueueRefused = errors.New("sidekiq: queue cannot be written to")

// Moved is the result of MoveDue.
type Moved struct {
	// Moved counts the jobs that are in their queues now. Jobs of a step whose reply was lost are there too, but not
	// counted.
	Moved int
	// Malformed are the members that are in quarantine now.
	Malformed []Malformed
	// Now is the server's time.
	Now time.Time
	// NextDue is when the next job is due; it is not after Now when more were due than the call moves. Absent when the
	// set is empty.
	NextDue lua.Opt[time.Time]
}

// Malformed is a member of a set that is not a job: it is not a JSON object, or has no queue.
type Malformed struct {
	Set    Set
	Member []byte
	// Err is the fault; it wraps ErrPayload.
	Err error
}

const (
	moveStep  = 500   // jobs that one script moves, so that other clients are served in between
	stepsOver = 10000 // jobs of refused queues that one call skips
)

// MoveDue moves up to max jobs that are due by the server's clock from Schedule or Retry to their queues, earliest
// first. 0 means MaxBatch, which is also the limit. The payload keeps its bytes, except that enqueued_at is replaced or
// added.
//
// Any number of pollers may run, Ruby's own among them: a job that another process has moved, rescheduled or deleted
// since it was read is left alone. The script adds a job to its queue before it removes it from the set, so a crash
// loses nothing. Members that are not jobs go to <set>:quarantine, a sorted set that keeps their scores and does not
// expire. The result lists them.
//
// If the key of a queue cannot be written to, its jobs stay in the set. If that of the quarantine cannot, members that
// are not jobs stay. Other jobs are moved, except those behind the first 10 000 of these, which a Poller moves. The
// error is ErrQueueRefused and names the key. With any error, Moved counts the jobs moved.
//
// Keys: the set, its quarantine, queues, and queue:<name> of each job. Cost: 2 round trips for each 500 jobs or 896
// KiB, O(log n + k) for k jobs to read and O(k log n) to move; what is read is linear in its bytes. Errors: ErrSet,
// ErrQueueRefused.
func (d *Dialect) MoveDue(ctx context.Context, set Set, max int) (Moved, error) {
	if set != Schedule && set != Retry {
		return Moved{}, fmt.Errorf("%w: %q", ErrSet, string(set))
	}
	if max <= 0 || max > MaxBatch {
		max = MaxBatch
	}
	out, _, err := d.moveFrom(ctx, set, 0, max)
	return out, err
}

// moveFrom moves as MoveDue does, without the first members of the set. next says how many the next call passes over:
// those that stay before the place where this one ended, or none if nothing is due behind it.
func (d *Dialect) moveFrom(ctx context.Context, set Set, first, max int) (out Moved, next int, err error) {
	var refused error
	for next = first; max > 0 && next-first <= stepsOver; {
		s, err := d.moveSome(ctx, set, next, min(max, moveStep), &out)
		if err != nil {
			return out, 0, fmt.Errorf("sidekiq: move from %s: %w", set, err)
		}
		max -= s.gone
		next += s.stuck
		if s.refused != nil {
			refused = fmt.Errorf("sidekiq: move from %s: %w", set, s.refused)
		}
		// Nothing moved and nothing refused: other pollers moved these jobs. The next call moves the rest.
		if s.read == 0 || s.gone == 0 && s.stuck == 0 {
			return out, 0, refused
		}
	}
	return out, next, refused
}

// moveResult is the result of one step: how much was read, how much has left the set, how much stays because of its
// queue.
type moveResult struct {
	read, gone, stuck int
	refused           error
}

// moveSome moves one step's jobs.
func (d *Dialect) moveSome(ctx context.Context, set Set, skip, max int, out *Moved) (s moveResult, err error) {
	due, err := script.Due(ctx, d.client, script.DueParams{
		Set: d.key(string(set)), Skip: int64(skip), Max: int64(max), Bytes: maxStep,
	})
	if err != nil {
		return s, err
	}
	out.Now, out.NextDue = time.UnixMicro(due.Now), nextDue(due.Next)
	s.read = len(due.Members)
	if s.read == 0 {
		return s, nil
	}
	batch, bad := d.batch(set, due.Members)
	if err := d.quarantine(ctx, set, bad, &s, out); err != nil || len(batch.Members) == 0 {
		return s, err
	}
	r, err := script.Move(ctx, d.client, batch)
	if err != nil {
		return s, err
	}
	out.Moved += int(r.Moved)
	out.Now = time.UnixMicro(r.Now)
	s.gone += int(r.Moved)
	s.stuck += int(r.Stuck)
	if r.Failed > 0 && int(r.Failed) <= len(batch.Queues) {
		s.refused = fmt.Errorf("%w: %q; its jobs stay in the set: %s", ErrQueueRefused, batch.Queues[r.Failed-1],
			r.Reason)
	}
	return s, nil
}

// nextDue converts a score to a time; a score that is no time, such as inf, is absent.
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

// batch finds the queue of each member and the place of its enqueued_at. Members without a queue are malformed.
func (d *Dialect) batch(set Set, due [][]byte) (p script.MoveParams, bad []Malformed) {
	p = script.MoveParams{
		Set: d.key(string(set)), Names: d.key("queues"), Skip: int64(len(d.queueKey(""))),
		Members: make([][]byte, 0, len(due)),
	}
	if d.milliseconds() {
		p.Clock = script.MoveClockMilliseconds
	}
	var src source
	places := make(map[string]int, 1)
	p.Plan = make([]byte, 0, 10*len(due))
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
		p.Plan = binary.BigEndian.AppendUint16(p.Plan, uint16(place))
		p.Plan = binary.BigEndian.AppendUint32(p.Plan, uint32(from))
		p.Plan = binary.BigEndian.AppendUint32(p.Plan, uint32(till))
	}
	return p, bad
}

// destination returns the queue of a payload and the range of its enqueued_at, empty where it is to be added.
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
		return "", 0, 0, fmt.Errorf("%w: its queue is not the name of a queue", ErrPayload)
	}
	if from < 0 {
		from = bytes.LastIndexByte(payload, '}')
		till = from
	}
	return src.name(name), from, till, nil
}

// quarantine puts the malformed members aside. If their key cannot be written to, they stay in the set; the jobs move.
func (d *Dialect) quarantine(ctx context.Context, set Set, bad []Malformed, s *moveResult, out *Moved) error {
	if len(bad) == 0 {
		return nil
	}
	p := script.QuarantineParams{Set: d.key(string(set)), Quarantine: d.key(string(set) + ":quarantine")}
	for _, m := range bad {
		p.Members = append(p.Members, m.Member)
	}
	var reply *lua.Error
	switch _, err := script.Quarantine(ctx, d.client, p); {
	case err == nil:
		s.gone = len(bad)
		out.Malformed = append(out.Malformed, bad...)
	case errors.As(err, &reply) && (reply.Code == "WRONGTYPE" || reply.Code == "NOPERM"):
		s.stuck = len(bad)
		s.refused = fmt.Errorf("%w: %q; what is not a job stays in the set: %w", ErrQueueRefused, p.Quarantine, err)
	default:
		return err
	}
	return nil
}
